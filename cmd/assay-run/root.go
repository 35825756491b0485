package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
)

// app is one invocation: its arguments and streams.
type app struct {
	args                  []string
	stdin, stdout, stderr *os.File
	say                   *console.Messages
}

// Main runs the command line args with the given streams and returns the exit
// code. It installs signal handlers only while a command runs.
func Main(args []string, stdin, stdout, stderr *os.File) int {
	a := &app{args: args, stdin: stdin, stdout: stdout, stderr: stderr, say: console.New("assay-run", stderr)}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)

	err := root.ExecuteContext(context.Background())
	var exit console.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if exit.Err != nil {
			a.say.Failure(exit.Err)
		}
		return exit.Code
	}
	a.say.Failure(err)
	return runner.ExitRunner
}

// rootCommand makes the tree of commands as far as the arguments reach into it:
// what one subcommand needs costs the others no start-up.
func (a *app) rootCommand() *cobra.Command {
	called, first := called(a.args, a.subcommands())
	root := &cobra.Command{}
	if !first {
		root = a.runCommand()
		printsVersion(root)
	}
	root.Use = "assay-run [flags] -- CMD [ARG...]"
	root.Short = "Run a command, record what it did, seal the evidence"
	root.Long, root.Example = longHelp, examples
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SuggestionsMinimumDistance = 2
	groupFlags(root)
	usual := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd == root {
			cmd = a.everyCommand() // the help lists them
		}
		usual(cmd, args)
	})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return console.WithHint(err, "%s", a.flagHint(cmd, err))
	})
	for _, s := range called {
		root.AddCommand(s.command())
	}
	return root
}

// printsVersion adds --version to run. Cobra's own prints another line.
func printsVersion(run *cobra.Command) {
	args, runE := run.Args, run.RunE
	wanted := run.Flags().BoolP("version", "v", false, "version for assay-run")
	run.Args = func(cmd *cobra.Command, words []string) error {
		if *wanted {
			return nil
		}
		return args(cmd, words)
	}
	run.RunE = func(cmd *cobra.Command, words []string) error {
		if *wanted {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "assay-run", version())
			return err
		}
		return runE(cmd, words)
	}
}

// commandAfterDash accepts words only after "--" and refuses, with a hint, a
// word before it that is no subcommand.
func (a *app) commandAfterDash(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	if dash == -1 {
		dash = len(args)
	}
	if dash > 0 {
		word := args[0]
		hint := fmt.Sprintf("to run it, write: assay-run -- %s", strings.Join(args, " "))
		_, notFound := exec.LookPath(word)
		if near := a.everyCommand().SuggestionsFor(word); len(near) > 0 && notFound != nil {
			hint = fmt.Sprintf("did you mean %q? %s", near[0], hint)
		}
		return console.WithHint(fmt.Errorf("unknown command %q", word), "%s", hint)
	}
	return nil
}

const longHelp = `assay-run runs a command unchanged (same stdin, stdout, stderr and exit code) in
a cgroup of its own, records what happened, and seals it into one bundle: what
the run did, what the kernel saw, and what you may conclude from it.

The command comes after "--". assay-run writes its own messages to stderr.

Exit codes:
  the command's own, or 128+n if signal n ended it
  122  the outcome contract failed
  123  the outcome contract was inconclusive
  124  the run timed out
  125  assay-run failed, or required evidence is missing or wrong
  126  the command is not executable
  127  the command was not found
A command may use the same numbers; result.json tells them apart.`

const examples = `  assay-run -- make test                     run it, leave assay-run-<run_id>.tar.gz
  assay-run -o run.tar.zst -- ./agent.sh     choose the bundle's name and codec
  assay-run --timeout 10m --memory 2G -- ./agent.sh
  assay-run --mode workspace-write -- ./agent.sh   let it write here and in /tmp only
  assay-run verify run.tar.zst               check a bundle, offline
  assay-run inspect run.tar.zst              read it`
