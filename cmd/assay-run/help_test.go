package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/spf13/pflag"
)

func TestEveryFlagOfARunIsInOneGroup(t *testing.T) {
	seen := map[string]int{}
	for _, group := range runFlagGroups {
		for _, name := range group.flags {
			seen[name]++
		}
	}
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	root := rootCommand(a)
	root.InitDefaultHelpFlag()
	root.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden && seen[flag.Name] != 1 {
			t.Errorf("--%s is in %d groups, want 1", flag.Name, seen[flag.Name])
		}
		delete(seen, flag.Name)
	})
	for name := range seen {
		t.Errorf("a group has --%s, which is no flag of a run", name)
	}
	for _, name := range firstFlags {
		if root.LocalFlags().Lookup(name) == nil {
			t.Errorf("the help names --%s, which is no flag of a run", name)
		}
	}
	for _, cmd := range everyCommand(a).Commands() {
		if cmd.GroupID == "" && !cmd.Hidden {
			t.Errorf("%s is in no group of commands", cmd.Name())
		}
	}
	a.helpAll = true
	root = rootCommand(a)
	bad := regexp.MustCompile(`(?m)^.*(--\S+ (string|strings|stringArray|duration|int|WORDS)\b|\(default \[\]\)).*$`)
	if line := bad.FindString(root.UsageString()); line != "" {
		t.Errorf("the help shows a type in place of a placeholder, or an empty default: %q", line)
	}
}
