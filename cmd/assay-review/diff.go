package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/judge"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

// diffCodes are the exit codes of diff, by its answer.
var diffCodes = map[judge.State]int{judge.Equal: 0, judge.Different: 1, judge.Unknown: 2}

func diffCommand(a *app) *cobra.Command {
	var format, against string
	var unverified, allowUnknown bool
	cmd := &cobra.Command{
		Use:   "diff [flags] BASE HEAD",
		Short: "Show what differs between two runs",
		Long: `diff compares two bundles: programs, commands, hosts, files, tool calls, policy
outcomes, how the runs ended, and how much of that could be observed. It marks with
"?" what one of the records may be missing, and never calls that equal.

Formats: text; markdown; json, with everything; capability-diff, the document
assay.runner.capability_diff.v0 alone.

Exit status: 0 equal; 1 different; 2 the records do not allow an answer, or an error
occurred; 4 a bundle cannot be read or does not verify.`,
		Example: `  assay-run diff monday.tar.gz tuesday.tar.gz
  assay-run diff --against nightly/ run.tar.gz
  assay-run diff --format markdown base.tar.gz head.tar.gz >> "$GITHUB_STEP_SUMMARY"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if want := 2; len(args) != want && (against == "" || len(args) != 1) {
				return a.usage(cmd, fmt.Errorf("diff takes two bundles, or one with --against; got %d", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			write, ok := diffFormats[format]
			if !ok {
				return a.usage(cmd, fmt.Errorf("--format is %q, want text, json, markdown or capability-diff", format))
			}
			set, err := a.open(cmd.Context(), args, !unverified)
			if err != nil {
				return err
			}
			defer set.Close()
			head := set.Bundles[len(set.Bundles)-1]
			base := set.Bundles[0]
			if against != "" {
				closeBase, b, err := lastGood(cmd.Context(), a, against, head)
				if err != nil {
					return err
				}
				defer closeBase()
				base = b
			}
			d, err := judge.Compare(cmd.Context(), base, head)
			if err != nil {
				return err
			}
			if err := a.print(format, changes, func(w io.Writer) error { return write(d, w) }); err != nil {
				return err
			}
			if code := diffCodes[d.Answer]; code != 0 && !(allowUnknown && d.Answer == judge.Unknown) {
				return console.ExitError{Code: code}
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&format, "format", "text", "write `FORMAT`: text, json, markdown, capability-diff")
	fs.StringVar(&against, "against", "", "compare with the last good run in `DIR` that has the same labels")
	fs.BoolVar(&allowUnknown, "allow-unknown", false,
		"exit with 0 if no difference is known, even if the records do not allow an answer")
	fs.BoolVar(&unverified, "unverified", false, "also compare bundles that do not verify")
	console.Completes(cmd, map[string][]string{"format": {"text", "json", "markdown", "capability-diff"}})
	return cmd
}

// changes colours what diff prints: what only the base has, and what only the head has.
var changes = view.Colours(`^( [ ?]\+ .*)`, "", `^( [ ?]- .*)`)

var diffFormats = map[string]func(*judge.Diff, io.Writer) error{
	"text":            (*judge.Diff).WriteText,
	"markdown":        (*judge.Diff).WriteMarkdown,
	"json":            func(d *judge.Diff, w io.Writer) error { return schema.PrintDocument(w, d) },
	"capability-diff": func(d *judge.Diff, w io.Writer) error { return schema.PrintDocument(w, d.Capability) },
}

func lastGood(ctx context.Context, a *app, dir string, head *view.Bundle) (func() error, *view.Bundle, error) {
	path, err := judge.LastGood(ctx, dir, head)
	if errors.Is(err, judge.ErrNoBase) {
		err = console.WithHint(err, "name the base: assay-run diff BASE %s", head.Name)
	}
	if err != nil {
		return nil, nil, err
	}
	a.say.Info("base is %s", path)
	set, err := a.open(ctx, []string{path}, true)
	if err != nil {
		return nil, nil, err
	}
	return set.Close, set.Bundles[0], nil
}
