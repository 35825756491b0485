package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/hook"
)

func (a *app) hookCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "hook AGENT",
		Short: "Report an agent's tool calls to the surrounding run",
		Long: `Set up your agent program to run hook as its hook. hook reads the agent's events on
standard input and reports the tool calls to the run that the agent is part of. Outside
of a run it reports nothing. AGENT is one of: ` + strings.Join(hook.Agents(), ", ") + `.

docs/agents shows how to set up each of them.

Exit status: 0 all went well; 1 a call could not be reported (the agent continues).`,
		Example: `  assay-run hook claude-code                      in a hook of .claude/settings.json
  codex exec --json "..." | assay-run hook codex  passes the events on`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: hook.Agents(),
		RunE: func(_ *cobra.Command, args []string) error {
			err := hook.Run(args[0], a.stdin, a.stdout, os.Getenv)
			switch {
			case errors.Is(err, hook.ErrAgent):
				return err
			case err != nil:
				return console.ExitError{Code: 1, Err: err}
			}
			return nil
		},
	}
}
