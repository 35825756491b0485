package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

// reading says how bundles are read. With titles, the name of each of several is printed
// above it. unverified also reads those that do not verify, with a warning. follow is as in view.Options.
type reading struct {
	titles, unverified bool
	follow             func(*schema.Evaluation) view.Follower
}

// eachBundle verifies the named bundles and calls read with one after another.
func eachBundle(ctx context.Context, a *app, names []string, how reading, read func(*view.Bundle) error) error {
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

// exitStatus is what verify exits with for the gravest class of problems.
var exitStatus = map[archive.Class]int{archive.Damaged: 1, archive.Invalid: 2, archive.Unreadable: 3}

// problemExit has the exit status of a bundle that is at fault, and the hint.
func problemExit(err error, format string, args ...any) error {
	var p *archive.Problem
	if errors.As(err, &p) {
		return console.ExitError{Code: exitStatus[p.Class], Err: console.WithHint(err, format, args...)}
	}
	return err
}
