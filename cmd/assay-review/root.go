package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
)

// release is set by the linker for released builds.
var release = ""

// exitFailed is the exit code of a failure that has no code of its own, as in grep
// and diff.
const exitFailed = 2

// app is one invocation: its streams.
type app struct {
	stdin, stdout, stderr *os.File
	say                   *console.Messages
}

// Main runs the command line args with the given streams and returns the exit
// code.
func Main(args []string, stdin, stdout, stderr *os.File) int {
	// Like other filters, end quietly when the reader of the output is gone.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, say: console.New("assay-run", stderr)}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)

	err := root.ExecuteContext(ctx)
	if errors.Is(err, syscall.EPIPE) {
		return exitFailed
	}
	return a.say.ExitCode(err, exitFailed)
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "assay-run",
		Short: "Show, query, compare and judge bundles",
		Long: `assay-review is the part of assay-run for reviewers. It reads bundles, offline, and
changes none. "assay-run show" and the other commands below start it.

"-" reads a bundle from standard input.`,
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetVersionTemplate("assay-review {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return a.usage(cmd, err)
	})
	root.AddCommand(a.showCommand(), a.replayCommand(), a.queryCommand(), a.diffCommand(), a.gateCommand(),
		a.reportCommand(), a.exportCommand(), a.storeCommand())
	return root
}

// usageCodes are the exit codes for wrong usage of the commands that do not use
// exitFailed for it.
var usageCodes = map[string]int{"gate": exitRules}

// usage makes the error for wrong usage of a command.
func (a *app) usage(cmd *cobra.Command, err error) error {
	code := exitFailed
	if c, ok := usageCodes[cmd.Name()]; ok {
		code = c
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
