package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
)

// Main runs the command line args with the given streams and returns the exit
// code.
func Main(args []string, stdin, stdout, stderr *os.File) int {
	ctx, end := context.WithCancelCause(context.Background())
	defer end(nil)
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(caught)
	go func() {
		select {
		case s := <-caught:
			signal.Stop(caught) // another one ends the program at once
			end(console.ExitError{Code: 128 + int(s.(syscall.Signal))})
		case <-ctx.Done():
		}
	}()
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, say: console.New("assay-run", stderr)}
	root := rootCommand(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)

	err := root.ExecuteContext(ctx)
	if ended := (console.ExitError{}); errors.As(context.Cause(ctx), &ended) {
		return ended.Code
	}
	if errors.Is(err, syscall.EPIPE) { // like other filters, end quietly when the reader of the output is gone
		return exitFailed
	}
	return a.say.ExitCode(err, exitFailed)
}

func rootCommand(a *app) *cobra.Command {
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
	root.AddCommand(showCommand(a), replayCommand(a), queryCommand(a), diffCommand(a), gateCommand(a),
		reportCommand(a), exportCommand(a), storeCommand(a))
	return root
}
