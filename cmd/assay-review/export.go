package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/render"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
)

func exportCommand(a *app) *cobra.Command {
	var format, to, output string
	var quiet, unverified bool
	cmd := &cobra.Command{
		Use:   "export --format FORMAT [flags] BUNDLE...",
		Short: "Convert bundles to the format of another tool",
		Long: `export converts bundles. It lists on stderr what the format cannot express.

  otlp       OpenTelemetry traces, as JSON: the run, its tool calls by the
             conventions for generative AI, its processes, connections and denials
  perfetto   a trace for ui.perfetto.dev
  junit, ctrf, sarif
             how the run ended, the contract's checks, calls that did more than
             they claimed, and what was not observed
  in-toto    a statement with a runtime trace about the bundle, not signed

perfetto and in-toto take one bundle, the others several.

With --to v0, export writes a bundle again, as a run with --compat v0 would have
left it: for programs that know only the v0 contracts.`,
		Example: `  assay-run export --format perfetto -o run.pftrace run.tar.gz
  assay-run export --format otlp run.tar.gz | curl -H 'Content-Type: application/json' --data-binary @- http://localhost:4318/v1/traces
  assay-run export --to v0 -o v0.tar.gz run.tar.gz`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return a.usage(cmd, errors.New("export takes at least one bundle"))
			case to != "" && format != "":
				return a.usage(cmd, errors.New("--to and --format cannot be used together"))
			case to != "" && to != archive.CompatV0:
				return a.usage(cmd, fmt.Errorf("--to is %q, want %s", to, archive.CompatV0))
			case to != "" && len(args) > 1:
				return a.usage(cmd, errors.New("--to takes one bundle"))
			case to != "" && unverified:
				return a.usage(cmd, errors.New("--to and --unverified cannot be used together: "+
					"the new bundle would verify"))
			case to != "":
				return nil
			case format == "":
				return a.usage(cmd, errors.New("--format is missing: one of "+strings.Join(render.Names(), ", ")))
			case render.Formats[format] == nil:
				return a.usage(cmd, fmt.Errorf("--format is %q, want one of %s", format,
					strings.Join(render.Names(), ", ")))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if to != "" {
				return exportV0(cmd.Context(), a, args, output)
			}
			set, err := a.open(cmd.Context(), args, !unverified)
			if err != nil {
				return err
			}
			defer set.Close()
			ctx, bar := a.progress(cmd.Context(), "exporting", output == "" || output == "-")
			defer bar.Done()
			var left []string
			write := func(w io.Writer) (err error) {
				left, err = render.Formats[format](ctx, w, version(), set.Bundles)
				return err
			}
			if output == "" || output == "-" {
				err = write(a.stdout)
			} else {
				err = console.WriteFile(output, write)
			}
			if err != nil {
				return err
			}
			bar.Done()
			a.say.Quiet = quiet
			for _, l := range left {
				a.say.Info("not in %s: %s", format, l)
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&format, "format", "", "convert to `FORMAT`: "+strings.Join(render.Names(), ", "))
	fs.StringVar(&to, "to", "", "write the bundle in the form of `VERSION`: "+archive.CompatV0)
	fs.StringVarP(&output, "output", "o", "", "write to `FILE` instead of stdout")
	fs.BoolVar(&unverified, "unverified", false, "also convert bundles that do not verify")
	fs.BoolVarP(&quiet, "quiet", "q", false, "do not list what the format cannot express")
	console.Completes(cmd, map[string][]string{"format": render.Names(), "to": {archive.CompatV0}})
	return cmd
}

// exportV0 writes a bundle in the v0 form to a file, or to stdout.
func exportV0(ctx context.Context, a *app, names []string, output string) error {
	in, err := archive.OpenInputs(ctx, names, a.stdin)
	if err != nil {
		return err
	}
	defer in.Close()
	toStdout := output == "" || output == "-"
	if toStdout {
		if console.Terminal(a.stdout) {
			return console.WithHint(errors.New("export does not write a bundle to a terminal"),
				"name a file with -o, or redirect the output")
		}
		dir, err := os.MkdirTemp("", "assay-review-*")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		output = filepath.Join(dir, "v0.tar.gz")
	}
	ctx, bar := a.progress(ctx, "exporting", toStdout)
	defer bar.Done()
	sealed, err := archive.ExportV0(ctx, in.All[0].Path, output, true)
	bar.Done()
	switch {
	case errors.Is(err, archive.ErrNotVerified):
		return console.ExitError{Code: view.ExitBundle,
			Err: console.WithHint(err, "assay-run verify lists what is wrong with it")}
	case err != nil:
		return err
	}
	for _, note := range sealed.Notes {
		a.say.Warning("not in v0: %s", note)
	}
	if !toStdout {
		return nil
	}
	f, err := os.Open(output)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(a.stdout, f)
	return err
}
