package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

// someBundles refuses a command line that names no bundle.
func someBundles(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return console.WithHint(fmt.Errorf("%s takes one bundle or more, got none", cmd.Name()), "as in: %s run.tar.gz",
			cmd.CommandPath())
	}
	return nil
}

// one refuses a command line with anything but one argument.
func one(what, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return console.WithHint(fmt.Errorf("%s takes %s, got %d arguments", cmd.CommandPath(), what, len(args)),
			"as in: %s %s", cmd.CommandPath(), example)
	}
}

// reading says how bundles are read. With titles, the name of each of several is printed
// above it. unverified also reads those that do not verify, with a warning. follow is as in view.Options.
type reading struct {
	titles, unverified bool
	follow             func(*schema.Evaluation) view.Follower
}

// eachBundle verifies the named bundles and calls read with one after another.
func (a *app) eachBundle(ctx context.Context, names []string, how reading, read func(*view.Bundle) error) error {
	verifying, bar := console.NewProgress(ctx, a.stderr, "verifying")
	set, err := view.Open(verifying, names,
		view.Options{Unverified: how.unverified, Without: []string{schema.SurfacePath}, Stdin: a.stdin,
			Stage: bar.Item, Follow: how.follow})
	bar.Done()
	if errors.Is(err, view.ErrUnverified) {
		err = console.WithHint(err, view.UnverifiedHint)
	}
	if err != nil {
		return console.ExitError{Code: view.ExitBundle, Err: err}
	}
	defer set.Close()
	for i, b := range set.Bundles {
		if !b.Verified() {
			a.say.Unverified(b.Name, &b.Report.Problems[0])
		}
		if how.titles && len(names) > 1 {
			gap := "\n"
			if i == 0 {
				gap = ""
			}
			if _, err := fmt.Fprintf(a.stdout, "%s== %s\n", gap, console.Printable(b.Name)); err != nil {
				return err
			}
		}
		if err := read(b); err != nil {
			return err
		}
	}
	return nil
}
