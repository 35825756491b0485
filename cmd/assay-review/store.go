package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/store"
	"github.com/assay-run/assay-run/archive/store/index"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
)

func storeCommand(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "store",
		Short: "List, fetch and prune stored bundles",
		Long: `The store is a directory with one bundle per run: $ASSAY_RUN_STORE if that is an
absolute path, else $XDG_STATE_HOME/assay-run/store. "assay-run --store -- CMD" puts
its bundle there, and so does every run if ASSAY_RUN_STORE is set. An index
of what was read from the bundles is kept beside them, in .index.sqlite. You can remove it
at any time.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&dir, "dir", "", "use the store in `DIR`")
	where := func() (string, error) {
		if dir != "" {
			return dir, nil
		}
		return store.DefaultDir()
	}
	cmd.AddCommand(storeList(a, where), storeGet(a, where), storePrune(a, where))
	return cmd
}

// listBundles lists the store in dir, with the help of its index.
func listBundles(ctx context.Context, a *app, dir string) ([]store.Entry, error) {
	files, err := store.Files(dir)
	if err != nil {
		return nil, err
	}
	ctx, bar := console.NewProgress(ctx, a.stderr, "reading")
	defer bar.Done()
	opt := store.Options{Stage: bar.Item, Facts: query.FactsOf}
	if x, err := index.Open(ctx, dir, version()); err == nil { // it only saves time
		defer x.Close()
		opt.Index = x
	}
	known, err := store.Read(ctx, dir, files, opt)
	return store.Newest(dir, known), err
}

func storeList(a *app, where func() (string, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls", Short: "List the bundles, the newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := where()
			if err != nil {
				return err
			}
			all, err := listBundles(cmd.Context(), a, dir)
			if err != nil {
				return err
			}
			if asJSON {
				return schema.PrintDocument(a.stdout, all)
			}
			return writeEntries(a.stdout, all)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the same as JSON")
	return cmd
}

func writeEntries(w io.Writer, all []store.Entry) error {
	var b strings.Builder
	for _, e := range all {
		what, outcome := view.QuoteArgs(e.Command), schema.OneLine(e.Outcome)
		if e.ExitCode != nil {
			outcome += fmt.Sprintf(" %d", *e.ExitCode)
		}
		if e.Damage != "" {
			what, outcome = schema.OneLine(e.Damage), "damaged"
		}
		fmt.Fprintf(&b, "%-32s %s %10s  %-14s %s\n", schema.OneLine(e.RunID),
			e.StartedAt.Local().Format("2006-01-02 15:04:05"), view.Size(uint64(e.Bytes)), outcome, view.Cut(what, 80))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func storeGet(a *app, where func() (string, error)) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "get ID", Short: "Print where the bundle of a run is, or copy it",
		Long: "get finds a bundle by its run id or identity, or a prefix of either, and prints its\npath. With " +
			"-o it copies the bundle; \"-\" is stdout.",
		Example: "  assay-run show \"$(assay-run store get run_01m7)\"\n  assay-run store get run_01m7 -o run.tar.gz",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return a.usage(cmd, fmt.Errorf("get takes one run, got %d", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := where()
			if err != nil {
				return err
			}
			all, err := listBundles(cmd.Context(), a, dir)
			if err != nil {
				return err
			}
			e, err := store.Find(all, args[0])
			if errors.Is(err, store.ErrNone) {
				return console.WithHint(err, "assay-run store ls lists them")
			}
			if err != nil {
				return err
			}
			if output == "" {
				_, err := fmt.Fprintln(a.stdout, e.Path)
				return err
			}
			f, err := os.Open(e.Path)
			if err != nil {
				return err
			}
			defer f.Close()
			copy := func(w io.Writer) error { _, err := io.Copy(w, f); return err }
			if output == "-" {
				return copy(a.stdout)
			}
			return console.WriteFile(output, copy)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "copy the bundle to `FILE`")
	return cmd
}

func storePrune(a *app, where func() (string, error)) *cobra.Command {
	var p store.Prune
	var older string
	var size config.Bytes
	var dryRun bool
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove bundles",
		Long: `prune removes the bundles older than --older, and then the oldest until at most
--max-size is left. It always keeps the newest --keep bundles; without the other two
flags, it removes the rest.`,
		Example: "  assay-run store prune --keep 20 --older 30d --max-size 10G",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if p.Older, err = days(older); err != nil {
				return a.usage(cmd, fmt.Errorf("--older: %w", err))
			}
			if size < 0 {
				return a.usage(cmd, errors.New("--max-size: it must be more than 0"))
			}
			p.MaxBytes = int64(size)
			if p.Keep < 0 || p == (store.Prune{}) {
				return a.usage(cmd, errors.New("prune needs at least one of --keep, --older and --max-size"))
			}
			dir, err := where()
			if err != nil {
				return err
			}
			all, err := listBundles(cmd.Context(), a, dir)
			if err != nil {
				return err
			}
			gone := p.Select(all, time.Now())
			var freed int64
			for _, e := range gone {
				if !dryRun {
					if err := os.Remove(e.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
						return fmt.Errorf("remove a bundle: %w", err)
					}
				}
				freed += e.Bytes
			}
			word := "removed"
			if dryRun {
				word = "would remove"
			}
			if err := writeEntries(a.stdout, gone); err != nil {
				return err
			}
			a.say.Info("%s %d of %d bundles, %s", word, len(gone), len(all), view.Size(uint64(freed)))
			return nil
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.IntVar(&p.Keep, "keep", 0, "always keep the newest `N` bundles")
	fs.StringVar(&older, "older", "", "remove bundles older than `TIME` (30d, 12h)")
	fs.Var(&size, "max-size", "remove the oldest until at most `SIZE` is left (500M, 10G)")
	fs.BoolVar(&dryRun, "dry-run", false, "print what would be removed, and remove nothing")
	return cmd
}

// days reads a duration that may be in days.
func days(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	if n, ok := strings.CutSuffix(s, "d"); ok {
		d, err := strconv.ParseUint(n, 10, 16)
		if err != nil || d == 0 {
			return 0, fmt.Errorf("%q is not a number of days such as 30d", s)
		}
		return time.Duration(d) * 24 * time.Hour, nil
	}
	d, err := config.ParseDuration(s)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q must be more than 0", s)
	}
	return d, err
}
