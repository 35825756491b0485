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
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/schema/specfile"
)

func callCommand(a *app) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "call --id ID -- CMD [ARG...]",
		Short: "Run a command as a tool call of the surrounding run",
		Long: `call runs CMD in a cgroup that the run makes for the tool call, so that the bundle
attributes everything CMD does to that call. call also sets ` + runner.EnvToolCall + `.
Outside of a run, and if the run cannot make a cgroup, only this variable identifies the
call. CMD replaces the call process.

Exit codes: the command's own; 125 call itself failed; 126 the command is not
executable; 127 not found.`,
		Example: `  assay-run call --id call_123 -- grep -rn TODO src`,
		Args:    commandAfterDash,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := runner.CheckCallID(id); err != nil {
				return console.WithHint(fmt.Errorf("--id: %w", err),
					"pass the id that the SDK or the model uses for the call")
			}
			if len(args) == 0 {
				return console.WithHint(specfile.ErrEmptyCommand,
					"write it after --, as in: assay-run call --id call_123 -- ls")
			}
			return execCall(id, args)
		},
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().StringVar(&id, "id", "", "the tool call's `ID`, 1 to 128 bytes")
	return cmd
}

// execCall replaces this process with the command. It returns only if that fails.
func execCall(id string, args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return callFailure(args[0], err)
	}
	if socket := os.Getenv(gateway.EnvSocket); socket != "" {
		_ = runner.JoinCall(socket, id) // if it fails, the environment identifies the call; the report says so
	}
	env := make([]string, 0, len(os.Environ())+1)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, runner.EnvToolCall+"=") {
			env = append(env, kv)
		}
	}
	return callFailure(args[0], syscall.Exec(path, args, append(env, runner.EnvToolCall+"="+id)))
}
