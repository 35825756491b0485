package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOnlySubcommandsThatMayBeCalledAreMade(t *testing.T) {
	for _, c := range []struct {
		what   string
		args   []string
		made   []string
		itself bool // the root takes the flags of a run
	}{
		{"a run makes none, whatever its command is called", []string{"-q", "--", "verify", "sandbox"}, nil, true},
		{"the version needs none", []string{"--version"}, nil, true},
		{"a subcommand that comes first needs no other, and no flags of a run",
			[]string{"verify", "--json", "a.tar.gz"}, []string{"verify"}, false},
		{"a flag before a subcommand is one of a run", []string{"-q", "verify", "a.tar.gz"}, []string{"verify"}, true},
		{"the value of a flag may be called like a subcommand", []string{"-o", "verify", "--", "true"},
			[]string{"verify"}, true},
		{"a name that is only the beginning of one is no subcommand", []string{"ver"}, nil, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			a := &app{args: c.args, stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
			root := rootCommand(a)
			var made []string
			for _, sub := range root.Commands() {
				made = append(made, sub.Name())
			}
			if diff := cmp.Diff(c.made, made); diff != "" {
				t.Errorf("subcommands made (-want +got):\n%s", diff)
			}
			if itself := root.Flags().Lookup("output") != nil; itself != c.itself {
				t.Errorf("the root has the flags of a run: %t, want %t", itself, c.itself)
			}
		})
	}
}

// A command is made by its name in the list, so cobra must find it by that name alone.
func TestEverySubcommandHasItsNameInTheListAndNoOther(t *testing.T) {
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	for _, s := range subcommands() {
		if made := s.command(a); made.Name() != s.name || len(made.Aliases) > 0 {
			t.Errorf("%q in the list is the command %q with the aliases %q, want the same name and no alias", s.name,
				made.Name(), made.Aliases)
		}
	}
	for _, args := range [][]string{{"help"}, {"completion", "bash"}, {"__complete", ""}} {
		a.args = args
		if made := len(rootCommand(a).Commands()); made != len(subcommands()) {
			t.Errorf("%q looks at all %d subcommands, and sees %d", args, len(subcommands()), made)
		}
	}
}
