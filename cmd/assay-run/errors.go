package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
)

// nothingRun says that err came before the command started. It keeps err's hint.
func nothingRun(err error) error { return nothingWas("run", err) }

// nothingWas says that nothing was done before err, where done is a word such as "recorded". It
// keeps err's hint.
func nothingWas(done string, err error) error {
	said := fmt.Errorf("nothing was %s: %w", done, err)
	var hint console.HintError
	if errors.As(err, &hint) {
		return console.WithHint(said, "%s", hint.Hint)
	}
	return said
}

// noRuns adds a hint to an error of [runner.CheckHost].
func noRuns(err error) error {
	hint := "run it on Linux"
	if errors.Is(err, runner.ErrNoProc) {
		hint = "mount it with: mount -t proc proc /proc"
	}
	return nothingRun(console.WithHint(err, "%s", hint))
}

// nowhere adds a hint to err if the current directory cannot be used.
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

// fileHint returns the hint for a file that cannot be used: to check its name if it does not exist,
// else otherwise.
func fileHint(err error, otherwise string) string {
	if errors.Is(err, os.ErrNotExist) {
		return "check the name: it is relative to the current directory, and in a spec file to that file"
	}
	return otherwise
}

// descriptorHint adds to err how to get more file descriptors.
func descriptorHint(err error) error {
	var few *runner.DescriptorError
	if errors.As(err, &few) {
		return console.WithHint(err, "%s", few.Remedy())
	}
	return err
}

// cannotRun adds to the error of a command that could not be executed its exit code: 127, 126, or
// 125 for an error of assay-run itself.
func cannotRun(name string, err error) error {
	code := schema.ExitRunner
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		code = schema.ExitNotFound
	case errors.Is(err, fs.ErrPermission):
		code = schema.ExitNotExecutable
	}
	return console.ExitError{Code: code, Err: fmt.Errorf("start %q: %w", name, err)}
}

// callFailure is cannotRun for a command that is executed directly: every other error gives 126.
func callFailure(command string, err error) error {
	code := schema.ExitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		code = schema.ExitNotFound
	}
	return console.ExitError{Code: code, Err: fmt.Errorf("start %q: %w", command, err)}
}

// exitCode is what a command exited with, or 128+n if signal n ended it.
func exitCode(s *os.ProcessState) int {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return s.ExitCode()
}
