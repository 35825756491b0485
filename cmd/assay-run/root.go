package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

	return a.say.ExitCode(root.ExecuteContext(context.Background()), runner.ExitRunner)
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
  124  the run timed out, or --model-budget-end ended it
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

// subcommand is a command below the root. It is made only where it may be called.
type subcommand struct {
	name    string
	command func() *cobra.Command
}

// subcommands are all of them, by the names that users type.
func (a *app) subcommands() []subcommand {
	all := []subcommand{
		{"run", a.runCommand},
		{"call", a.callCommand},
		{"hook", a.hookCommand},
		{"verify", a.verifyCommand},
		{"prove", a.proveCommand},
		{"sign", a.signCommand},
		{"redact", a.redactCommand},
		{"inspect", a.inspectCommand},
		{"events", a.eventsCommand},
		{"recover", a.recoverCommand},
		{"contract", a.contractCommand},
		{"doctor", a.doctorCommand},
		{"observe", a.observeCommand},
		{"serve", a.serveCommand},
		{"mcp", a.mcpCommand},
		{"policy", a.policyCommand},
	}
	all = append(all, a.reviewCommands()...)
	all = append(all, a.linuxOnly()...)
	for name, command := range packaging {
		all = append(all, subcommand{name, func() *cobra.Command { return command(a) }})
	}
	return all
}

// packaging are the commands of builds that package the program, by name.
var packaging = map[string]func(*app) *cobra.Command{}

// ofTheTree are the words that call a command which looks at all others.
var ofTheTree = []string{"help", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd, "man"}

// called are the subcommands that args may call: those that a word before "--" names. Such a
// word may still be the value of a flag, unless it comes first: then the root needs no flags.
func called(args []string, all []subcommand) (named []subcommand, first bool) {
	if dash := slices.Index(args, "--"); dash >= 0 {
		args = args[:dash]
	}
	if slices.ContainsFunc(args, func(word string) bool { return slices.Contains(ofTheTree, word) }) {
		return all, false
	}
	for _, s := range all {
		if slices.Contains(args, s.name) {
			named = append(named, s)
			first = first || args[0] == s.name
		}
	}
	return named, first
}

// everyCommand is the whole tree, to be listed or searched.
func (a *app) everyCommand() *cobra.Command {
	every := &app{args: []string{"help"}, stdin: a.stdin, stdout: a.stdout, stderr: a.stderr, say: a.say}
	root := every.rootCommand()
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.InitDefaultHelpFlag()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}

// texts is the value of a flag that may be repeated. Pflag's own takes 4 KiB for each
// such flag, whether it is given or not.
type texts []string

func (t *texts) String() string { return strings.Join(*t, " ") }
func (*texts) Type() string     { return "stringArray" }

func (t *texts) Set(s string) error {
	*t = append(*t, s)
	return nil
}

// again returns a function that resets a flag's variable to its present value.
func again(v pflag.Value) func() {
	if t, ok := v.(*texts); ok {
		now := slices.Clone(*t)
		return func() { *t = now }
	}
	if n, ok := v.(*named); ok {
		now := maps.Clone(*n)
		return func() { put((*map[string]string)(n), now) }
	}
	now := v.String()
	return func() { _ = v.Set(now) } // which worked before
}
