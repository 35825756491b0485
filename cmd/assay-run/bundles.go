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

// eachBundle verifies the named bundles and calls read with one after another. It
// warns of a bundle that does not verify. With titles, it prints the name above
// each of several.
func (a *app) eachBundle(ctx context.Context, names []string, titles bool, read func(name string, bundle *archive.Reader) error) error {
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
		if !report.OK() {
			a.say.Unverified(in.Name, &report.Problems[0])
		}
		if titles && len(names) > 1 {
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
