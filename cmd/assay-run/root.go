package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
)

// Main runs the command line args with the given streams and returns the exit
// code. It installs signal handlers only while a command runs.
func Main(args []string, stdin, stdout, stderr *os.File) int {
	a := &app{args: args, stdin: stdin, stdout: stdout, stderr: stderr, say: console.New("assay-run", stderr)}
	for i, word := range args[:dashOf(args)] { // --help is cobra's own
		if word == "--help-all" {
			args, a.helpAll = slices.Concat(args[:i], []string{"--help"}, args[i+1:]), true
			a.args = args
			break
		}
	}
	root := rootCommand(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)

	err := root.ExecuteContext(context.Background())
	var unknown unknownCommand
	if errors.As(err, &unknown) {
		err = console.WithHint(err, "%s", commandHint(a, unknown.words))
	}
	return a.say.ExitCode(err, schema.ExitRunner)
}

// dashOf is how many of the arguments come before "--".
func dashOf(args []string) int {
	if dash := slices.Index(args, "--"); dash >= 0 {
		return dash
	}
	return len(args)
}

// rootCommand makes the root and the subcommands that the arguments may call. What one subcommand
// needs so costs the others no start-up.
func rootCommand(a *app) *cobra.Command {
	called, first := called(a.args, subcommands())
	root := &cobra.Command{}
	if !first {
		root = runCommand(a)
		printsVersion(root)
	}
	root.Use = "assay-run [flags] -- CMD [ARG...]"
	root.Short = "Run a command, record what it did, seal the evidence"
	root.Long, root.Example = longHelp, examples
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SuggestionsMinimumDistance = 2
	groupFlags(root, a.helpAll)
	usual := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd == root {
			cmd = everyCommand(a) // help lists all subcommands
		}
		usual(cmd, args)
	})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return console.WithHint(err, "%s", flagHint(a, cmd, err))
	})
	for _, g := range commandGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
	}
	root.SetHelpCommandGroupID(commandGroups[len(commandGroups)-1].title)
	root.SetCompletionCommandGroupID(commandGroups[len(commandGroups)-1].title)
	for _, s := range called {
		cmd := s.command(a)
		cmd.GroupID = groupOf(s.name)
		root.AddCommand(cmd)
	}
	return root
}

// groupOf is the heading that the help shows a subcommand under; empty: none.
func groupOf(name string) string {
	for _, g := range commandGroups {
		if slices.Contains(g.commands, name) {
			return g.title
		}
	}
	return ""
}

// printsVersion adds --version to run. Cobra's own would print the line in another form.
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

// commandHint returns the hint for an unknown subcommand: how to run it as a program, and, unless
// there is such a program, the subcommand with the nearest name.
func commandHint(a *app, words []string) string {
	hint := "to run it, write: assay-run -- " + strings.Join(words, " ")
	_, notFound := exec.LookPath(words[0])
	if near := everyCommand(a).SuggestionsFor(words[0]); len(near) > 0 && notFound != nil {
		hint = fmt.Sprintf("did you mean %q? %s", near[0], hint)
	}
	return hint
}

// flagHint returns the hint for an unknown flag. If the flag follows a command without "--", it
// shows where "--" belongs. Otherwise it suggests the known flag with the nearest name.
func flagHint(a *app, cmd *cobra.Command, err error) string {
	help := "see " + cmd.CommandPath() + " --help"
	if words := cmd.Flags().Args(); len(words) > 0 && cmd.Flags().Lookup("spec") != nil {
		at := max(0, slices.Index(a.args, words[0]))
		return "put -- before the command, as in: assay-run -- " + view.QuoteArgs(a.args[at:])
	}
	_, name, ok := strings.Cut(err.Error(), "unknown flag: --")
	if !ok {
		return help
	}
	var known []string
	cmd.Flags().VisitAll(func(fl *pflag.Flag) { known = append(known, fl.Name) })
	nearest, distance := schema.Nearest(name, known)
	if distance > 2 {
		return help
	}
	return fmt.Sprintf("did you mean --%s? %s", nearest, help)
}

// subcommands returns all subcommands by the names that users type.
func subcommands() []subcommand {
	all := []subcommand{
		{"run", runCommand},
		{"agents", agentsCommand},
		{"call", callCommand},
		{"hook", hookCommand},
		{"verify", verifyCommand},
		{"sign", signCommand},
		{"redact", redactCommand},
		{"inspect", inspectCommand},
		{"events", eventsCommand},
		{"recover", recoverCommand},
		{"ps", psCommand},
		{"contract", contractCommand},
		{"doctor", doctorCommand},
		{"observe", observeCommand},
		{"serve", serveCommand},
		{"mcp", mcpCommand},
		{"policy", policyCommand},
	}
	all = append(all, reviewCommands()...)
	all = append(all, linuxOnly()...)
	for name, command := range packaging {
		all = append(all, subcommand{name, command})
	}
	return all
}

// packaging are the subcommands, by name, of builds that package the program.
var packaging = map[string]func(*app) *cobra.Command{}

// ofTheTree are the commands that need all others, such as help.
var ofTheTree = []string{"help", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd, "man"}

// called returns the subcommands that args may call: those that a word before "--" names. Such a
// word may be the value of a flag. It cannot be one if it comes first, and then the root needs no
// flags of a run.
func called(args []string, all []subcommand) (named []subcommand, first bool) {
	args = args[:dashOf(args)]
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

// everyCommand makes the whole tree, for help and for suggestions.
func everyCommand(a *app) *cobra.Command {
	every := &app{args: []string{"help"}, helpAll: a.helpAll, stdin: a.stdin, stdout: a.stdout, stderr: a.stderr,
		say: a.say}
	root := rootCommand(every)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.InitDefaultHelpFlag()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}
