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

// reading says how bundles are read.
type reading struct {
	titles     bool                                   // print each bundle's name above it, if there are several
	unverified bool                                   // also read bundles that do not verify, with a warning
	follow     func(*schema.Evaluation) view.Follower // as in view.Options
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
			if _, err := fmt.Fprintf(a.stdout, "%s== %s\n", gap, schema.OneLine(b.Name)); err != nil {
				return err
			}
		}
		if err := read(b); err != nil {
			return err
		}
	}
	return nil
}

// exitStatus is the exit code for a bundle whose gravest problem is of a class.
var exitStatus = map[archive.Class]int{archive.Damaged: 1, archive.Invalid: 2, archive.Unreadable: 3}

// problemExit adds the exit code and a hint to err if it is a problem of a bundle.
func problemExit(err error, format string, args ...any) error {
	var p *archive.Problem
	if errors.As(err, &p) {
		return console.ExitError{Code: exitStatus[p.Class], Err: console.WithHint(err, format, args...)}
	}
	return err
}
