package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/render"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

func showCommand(a *app) *cobra.Command {
	var opt render.ShowOptions
	var follow, noPager, unverified bool
	var spoolDir string
	cmd := &cobra.Command{
		Use:   "show [flags] BUNDLE...",
		Short: "Show what a run did, in order of time",
		Long: `show prints what a run did, in order of time: turns and tool calls, the programs
that ran, the files that changed, the hosts that were contacted, what was denied, and
the output. It ends with what the record may be missing.

With --follow it shows a live run, named by its run id or by its spool's directory.

On a terminal, show pages its output with $PAGER, or less.`,
		Example: `  assay-run show run.tar.gz
  assay-run show --reads run.tar.gz | grep -w /etc
  assay-run show --follow run_01m7yx6han80d70amec48f314h`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || follow && len(args) > 1 {
				return a.usage(cmd, errors.New("show takes at least one bundle, or with --follow one run"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			opt.Colour = console.Colours(a.stdout)
			if follow {
				return followRun(cmd.Context(), a, args[0], spoolDir, opt)
			}
			set, err := a.open(cmd.Context(), args, !unverified)
			if err != nil {
				return err
			}
			defer set.Close()
			return writePaged(a, !noPager, func(w io.Writer) error {
				for i, b := range set.Bundles {
					if len(set.Bundles) > 1 {
						if i > 0 {
							fmt.Fprintln(w)
						}
						fmt.Fprintf(w, "== %s\n", schema.OneLine(b.Name))
					}
					if !b.Verified() {
						fmt.Fprintf(w, "warning: the bundle does not verify; nothing below is proven\n")
					}
					if err := render.Show(cmd.Context(), w, b, opt); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVarP(&follow, "follow", "f", false, "follow a live run until it ends")
	fs.BoolVar(&opt.Reads, "reads", false, "also show files that were opened for reading")
	fs.BoolVar(&opt.All, "all", false, "also show loaders, locales, runtimes and the runner itself")
	fs.BoolVar(&unverified, "unverified", false, "also show bundles that do not verify")
	fs.BoolVar(&noPager, "no-pager", false, "do not page on a terminal")
	fs.StringVar(&spoolDir, "spool-dir", "",
		"look for the live run under `DIR` (default $XDG_STATE_HOME/assay-run/spool)")
	return cmd
}

// followRun shows a live run, named by its id or by its spool's directory.
func followRun(ctx context.Context, a *app, run, spoolDir string, opt render.ShowOptions) error {
	dir := run
	if info, err := os.Stat(run); err != nil || !info.IsDir() {
		if spoolDir == "" {
			if spoolDir, err = archive.DefaultSpoolDir(); err != nil {
				return err
			}
		}
		dir = filepath.Join(spoolDir, filepath.Base(run))
	}
	err := console.Page(a.stdout, nil).Write(a.stdout, func(w io.Writer) error {
		return render.Follow(ctx, w, dir, opt)
	})
	if errors.Is(err, os.ErrNotExist) {
		return console.WithHint(fmt.Errorf("no run %s is alive", run),
			"if it has ended, show its bundle; assay-run recover lists interrupted runs")
	}
	return err
}

// writePaged writes a page to the pager's input if want is set and stdout is a terminal,
// else to stdout.
func writePaged(a *app, want bool, content func(io.Writer) error) error {
	write := func(w io.Writer) error { return console.Page(a.stdout, nil).Write(w, content) }
	pager := os.Getenv("PAGER")
	if pager == "" {
		pager = "less"
	}
	if !want || pager == "cat" || !console.Terminal(a.stdout) || os.Getenv("TERM") == "dumb" {
		return write(a.stdout)
	}
	cmd := exec.Command("sh", "-c", pager)
	cmd.Stdout, cmd.Stderr = a.stdout, a.stderr
	cmd.Env = os.Environ()
	if os.Getenv("LESS") == "" {
		cmd.Env = append(cmd.Env, "LESS=FRX") // as git does: exit if the text fits the screen, keep colours
	}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return write(a.stdout)
	}
	err = write(in)
	in.Close()
	if werr := cmd.Wait(); err == nil {
		err = werr
	}
	return err
}
