package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/cmd/internal/signals"
	"github.com/assay-run/assay-run/runner/hook"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
)

func hookCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "hook AGENT [-- CMD [ARG...]]",
		Short: "Report an agent's tool calls to the surrounding run",
		Long: `Set up your agent program to run "assay-run hook" as its hook. hook reads the agent's
events on standard input and reports the tool calls to the run that the agent is part of.
Outside of a run it reports nothing. AGENT is one of: ` + strings.Join(hook.Agents(), ", ") + `.

With CMD, hook runs CMD, an interactive Codex or a program that starts Codex, and
reports the calls from the rollout files that Codex writes to $CODEX_HOME/sessions.
"assay-run --agent" starts every agent in this way. hook first writes the recipe's files to
the private home.

docs/agents shows how to set up each of them.

Exit status: 0 all went well; 1 a call could not be reported (the agent continues). With
CMD: its own; 126 CMD is not executable; 127 not found.`,
		Example: `  assay-run hook claude-code                      in a hook of .claude/settings.json
  codex exec --json "..." | assay-run hook codex  passes the events on
  assay-run hook codex -- codex                   follows the rollout files`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case dash < 0:
				return one("an agent", "claude-code")(cmd, args)
			case dash != 1 || len(args) < 2:
				return errors.New("write one agent before --, and the command after it")
			case args[0] != "codex" && os.Getenv(agents.EnvSetup) == "":
				return fmt.Errorf("hook %s takes no command: only Codex has rollout files", args[0])
			}
			return nil
		},
		ValidArgs:             hook.Agents(),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return startAgent(a, args[1:])
			}
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

// startAgent starts an agent, after it has written what the run's recipe says to the home.
func startAgent(a *app, command []string) error {
	setup, err := agents.SetupOf(os.Getenv)
	if err == nil && setup != nil {
		err = errors.Join(os.Unsetenv(agents.EnvSetup), hook.Write(setup, os.Getenv("HOME")))
	}
	switch {
	case err != nil:
		return console.ExitError{Code: schema.ExitRunner, Err: err}
	case setup == nil || setup.Reader:
		return followCodex(a, command)
	}
	path, err := exec.LookPath(command[0])
	if err == nil || errors.Is(err, exec.ErrDot) {
		err = syscall.Exec(path, command, os.Environ())
	}
	return callFailure(command[0], err)
}

// followCodex runs a command while it reports what Codex writes of its sessions.
func followCodex(a *app, command []string) error {
	caught := signals.Catch()
	caught.Wait()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	stop := hook.Follow(os.Getenv)
	if err := cmd.Start(); err != nil {
		return callFailure(command[0], err)
	}
	go func() {
		for s := range caught.C {
			// A terminal's signals have reached the command as well.
			if terminals := s == syscall.SIGINT || s == syscall.SIGQUIT; !terminals || !console.Terminal(a.stdin) {
				_ = cmd.Process.Signal(s)
			}
		}
	}()
	_ = cmd.Wait()
	if err := stop(); err != nil {
		a.say.Warning("some calls of Codex could not be reported: %v", err)
	}
	if code := exitCode(cmd.ProcessState); code != 0 {
		return console.ExitError{Code: code}
	}
	return nil
}
