package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
)

// nothingRun is an error from before the command started.
func nothingRun(err error) error { return nothingWas("run", err) }

// nothingWas says that err came before anything was done. It keeps err's hint.
func nothingWas(done string, err error) error {
	said := fmt.Errorf("nothing was %s: %w", done, err)
	var hint console.HintError
	if errors.As(err, &hint) {
		return console.WithHint(said, "%s", hint.Hint)
	}
	return said
}

// noRuns says what to do about an error of [runner.CheckHost].
func noRuns(err error) error {
	hint := "run it on Linux"
	if errors.Is(err, runner.ErrNoProc) {
		hint = "mount it with: mount -t proc proc /proc"
	}
	return nothingRun(console.WithHint(err, "%s", hint))
}

// nowhere says what to do when the cause of err is that our own directory cannot be used.
func nowhere(err error) error {
	_, here := os.Getwd()
	if here == nil {
		return err
	}
	what := "the current directory is gone"
	if errors.Is(here, os.ErrPermission) {
		what = "you have no permission for the current directory"
	}
	return console.WithHint(err, "%s: change to another, or name absolute paths with -o and --workdir", what)
}

// fileHint is what to do about a file that cannot be used.
func fileHint(err error, otherwise string) string {
	if errors.Is(err, os.ErrNotExist) {
		return "check the name: it is relative to the current directory, and in a spec file to that file"
	}
	return otherwise
}
