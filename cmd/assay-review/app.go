package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
)

// release is set by the linker for released builds.
var release = ""

const (
	// exitFailed is the exit code of a failure that has no code of its own, as in grep
	// and diff.
	exitFailed = 2
	// exitRules is what gate exits with for wrong usage and for rules that it cannot use.
	exitRules = 3
)

// app is one invocation: its streams.
type app struct {
	stdin, stdout, stderr *os.File
	say                   *console.Messages
}

// usage makes the error for wrong usage of a command.
func (a *app) usage(cmd *cobra.Command, err error) error {
	code := exitFailed
	if cmd.Name() == "gate" { // whose code 2 means unknown
		code = exitRules
	}
	return console.ExitError{Code: code, Err: console.WithHint(err, "see %s --help", cmd.CommandPath())}
}

// open opens bundles for a command. With needVerified, a bundle that does not verify
// is an error; otherwise it is a warning. The documents at the paths in without are
// left empty.
func (a *app) open(ctx context.Context, names []string, needVerified bool, without ...string) (*view.Set, error) {
	return a.openWith(ctx, names, view.Options{Unverified: !needVerified, Without: without})
}

// openWith is open with other options.
func (a *app) openWith(ctx context.Context, names []string, opt view.Options) (*view.Set, error) {
	ctx, bar := a.progress(ctx, "verifying", false)
	opt.Stdin, opt.Stage = a.stdin, bar.Item
	set, err := view.Open(ctx, names, opt)
	bar.Done()
	if err != nil {
		return nil, unopened(err)
	}
	for _, b := range set.Bundles {
		a.warn(b)
	}
	return set, nil
}

// unopened is the error for a bundle that could not be opened.
func unopened(err error) error {
	if errors.Is(err, view.ErrUnverified) {
		err = console.WithHint(err, view.UnverifiedHint)
	}
	return console.ExitError{Code: view.ExitBundle, Err: err}
}

// warn says that a bundle does not verify, if so.
func (a *app) warn(b *view.Bundle) {
	if !b.Verified() {
		a.say.Unverified(b.Name, &b.Report.Problems[0])
	}
}

func version() string { return console.Version(release) }

// print writes to stdout: the format "text" as a page that paint colours, any other as
// it is.
func (a *app) print(format string, paint view.Painter, write func(io.Writer) error) error {
	if format != "text" {
		return write(a.stdout)
	}
	return console.Page(a.stdout, paint).Write(a.stdout, write)
}

// progress makes a bar for what is done under the context that it returns. There
// is none when the results themselves go to a terminal.
func (a *app) progress(ctx context.Context, what string, printing bool) (context.Context, *console.Progress) {
	if printing && console.Terminal(a.stdout) {
		return ctx, nil
	}
	return console.NewProgress(ctx, a.stderr, what)
}
