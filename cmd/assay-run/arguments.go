package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
)

// unknownCommand is the error for words before "--", the first of which is not a subcommand.
type unknownCommand struct{ words []string }

func (u unknownCommand) Error() string { return fmt.Sprintf("unknown command %q", u.words[0]) }

// commandAfterDash accepts words only after "--". The error for another word is an unknownCommand.
func commandAfterDash(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	if dash == -1 {
		dash = len(args)
	}
	if dash > 0 {
		return unknownCommand{args}
	}
	return nil
}

// one accepts exactly one argument. For the error, what says what the argument is, as in "a
// contract file".
func one(what, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return console.WithHint(fmt.Errorf("%s takes %s, got %d arguments", cmd.CommandPath(), what, len(args)),
			"as in: %s %s", cmd.CommandPath(), example)
	}
}

// someBundles accepts one argument or more.
func someBundles(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return console.WithHint(fmt.Errorf("%s takes one bundle or more, got none", cmd.Name()), "as in: %s run.tar.gz",
			cmd.CommandPath())
	}
	return nil
}
