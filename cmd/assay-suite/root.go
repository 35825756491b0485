//go:build linux

package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/suite"
)

// release is set by the linker for released builds.
var release = ""

// memoryGoal is the size, in bytes, above which the garbage collector runs more often.
const memoryGoal = 64 << 20

// app is one invocation of the program: its streams, and where messages go.
type app struct {
	stdin, stdout, stderr *os.File
	say                   *console.Messages
}

// Main runs the command line args with the given streams and returns the exit code.
func Main(args []string, stdin, stdout, stderr *os.File) int {
	debug.SetGCPercent(1000) // below memoryGoal, memory is cheaper than collecting garbage
	debug.SetMemoryLimit(memoryGoal)
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, say: console.New("assay-suite", stderr)}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return a.say.ExitCode(root.ExecuteContext(context.Background()), suite.ExitBadInput)
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "assay-suite",
		Short: "Run tasks × agents × attempts, with a verified bundle behind each verdict",
		Long: `assay-suite runs each task of a suite file with each agent, several times. Each attempt is one
run of assay-run with a bundle of its own, in a copy of the task's workspace. The suite's directory
keeps what is done: run the same command again to continue after an interruption.

Exit status: 0 all attempts passed; 1 one failed; 2 none failed, but one is inconclusive or the
machine failed; 3 the suite file is bad; 130 the suite was interrupted.`,
		Version:           console.Version(release),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetVersionTemplate("assay-suite {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, err) })
	root.AddCommand(a.runCommand(), a.checkCommand(), a.statusCommand(), a.showCommand(), a.compareCommand(),
		a.reportCommand(), a.workerCommand(), a.newCommand(), a.judgeCommand(), a.pruneCommand(), a.attemptCommand())
	for _, command := range packaging {
		root.AddCommand(command())
	}
	return root
}

// packaging are commands that only exist in builds with the tag man.
var packaging []func() *cobra.Command

// usage is the error for a wrong flag or argument of a command.
func usage(cmd *cobra.Command, err error) error {
	return console.ExitError{Code: suite.ExitBadInput, Err: console.WithHint(err, "see %s --help", cmd.CommandPath())}
}
