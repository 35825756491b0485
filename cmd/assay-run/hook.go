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
		Long: `hook is what an agent program runs for its hooks. It reads on standard input what the
agent says, and reports the tool calls to the run that the agent is part of. Outside
of a run it does nothing. AGENT is one of: ` + strings.Join(hook.Agents(), ", ") + `.

docs/agents shows how to set up each of them.

Exit status: 0; 1 a call could not be reported, which does not stop the agent.`,
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
