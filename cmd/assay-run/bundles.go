package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
)

// someBundles refuses a command line that names no bundle.
func someBundles(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return console.WithHint(fmt.Errorf("%s takes one bundle or more, got none", cmd.Name()), "as in: %s run.tar.gz", cmd.CommandPath())
	}
	return nil
}

// one refuses a command line with anything but one argument.
func one(what, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return console.WithHint(fmt.Errorf("%s takes %s, got %d arguments", cmd.CommandPath(), what, len(args)), "as in: %s %s", cmd.CommandPath(), example)
	}
}

// reading says how bundles are read. With titles, the name of each of several is printed
// above it. refuse ends at a bundle that does not verify.
type reading struct{ titles, refuse bool }

// eachBundle verifies the named bundles and calls read with one after another. It
// warns of a bundle that does not verify, or refuses it.
func (a *app) eachBundle(ctx context.Context, names []string, how reading, read func(name string, bundle *archive.Reader) error) error {
	inputs, err := archive.OpenInputs(ctx, names, a.stdin)
	if err != nil {
		return console.ExitError{Code: exitStatus[archive.Unreadable], Err: err}
	}
	defer inputs.Close()
	for i, in := range inputs.All {
		verifying, bar := console.NewProgress(ctx, a.stderr, "verifying")
		bundle, report, err := in.Verified(verifying)
		bar.Done()
		if err == nil && bundle == nil {
			err = fmt.Errorf("%s: the bundle cannot be read: %w", in.Name, &report.Problems[0])
		}
		if err != nil {
			return console.ExitError{Code: exitStatus[archive.Unreadable], Err: err}
		}
		if !report.OK() && how.refuse {
			err := fmt.Errorf("%s: the bundle does not verify: %w", in.Name, &report.Problems[0])
			return console.ExitError{Code: exitStatus[report.Class()], Err: console.WithHint(err, "see all problems with assay-run verify; --unverified shows what the bundle claims")}
		}
		if !report.OK() {
			a.say.Unverified(in.Name, &report.Problems[0])
		}
		if how.titles && len(names) > 1 {
			gap := "\n"
			if i == 0 {
				gap = ""
			}
			if _, err := fmt.Fprintf(a.stdout, "%s== %s\n", gap, console.Printable(in.Name)); err != nil {
				return err
			}
		}
		if err := read(in.Name, bundle); err != nil {
			return err
		}
	}
	return nil
}
