package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/review/export"
	"github.com/assay-run/assay-run/cmd/internal/console"
)

func (a *app) exportCommand() *cobra.Command {
	var format, output string
	var quiet bool
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

perfetto and in-toto take one bundle, the others several.`,
		Example: `  assay-run export --format perfetto -o run.pftrace run.tar.gz
  assay-run export --format otlp run.tar.gz | curl -H 'Content-Type: application/json' --data-binary @- http://localhost:4318/v1/traces`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return a.usage(cmd, errors.New("export takes at least one bundle"))
			case format == "":
				return a.usage(cmd, errors.New("--format is missing: one of "+strings.Join(export.Names(), ", ")))
			case export.Formats[format] == nil:
				return a.usage(cmd, fmt.Errorf("--format is %q, want one of %s", format, strings.Join(export.Names(), ", ")))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := a.open(cmd.Context(), args, false)
			if err != nil {
				return err
			}
			defer set.Close()
			ctx, bar := a.progress(cmd.Context(), "exporting", output == "" || output == "-")
			defer bar.Done()
			var left []string
			write := func(w io.Writer) (err error) {
				left, err = export.Formats[format](ctx, w, version(), set.Bundles)
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
	fs.StringVar(&format, "format", "", "convert to `FORMAT`: "+strings.Join(export.Names(), ", "))
	fs.StringVarP(&output, "output", "o", "", "write to `FILE` instead of stdout")
	fs.BoolVarP(&quiet, "quiet", "q", false, "do not list what the format cannot express")
	console.Completes(cmd, map[string][]string{"format": export.Names()})
	return cmd
}
