package main

import (
	"slices"

	"github.com/spf13/cobra"
)

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
