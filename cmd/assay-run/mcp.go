package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/gateway/mcp"
	"github.com/assay-run/assay-run/runner/policy"
)

func (a *app) mcpCommand() *cobra.Command {
	var policyFile, decisionLog, source string
	var changes bool
	cmd := &cobra.Command{
		Use:   "mcp --policy FILE [flags] -- SERVER [ARG...]",
		Short: "Check an MCP client's tool calls against a policy",
		Long: `mcp starts an MCP server that speaks over stdin and stdout, and stands between it
and the client. A request that the policy denies is answered with a JSON-RPC
error and never reaches the server; what may not be used is left out of the
lists of tools, resources and prompts; everything else goes through untouched.
The policy's "resources", "prompts" and "server_requests" list by name or glob
what a client may read and what the server may ask of it. A tool that the server
changes after it was first listed is denied.

The server and all that it starts end with mcp, however mcp ends.

Each decision is a line of the decision log. Inside a run (assay-run -- CMD) the
calls are also reported to the run, and its policy applies too. mcp ends with
the server's exit code.`,
		Example: "  assay-run mcp --policy policy.yaml -- npx some-mcp-server\n  assay-run mcp --policy policy.yaml --decision-log decisions.ndjson -- ./server",
		Args:    commandAfterDash,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return withHint(runner.ErrEmptyCommand, "write the server after --, as in: assay-run mcp --policy policy.yaml -- ./server")
			}
			if policyFile == "" {
				return withHint(errors.New("no policy given"), "name one with --policy FILE")
			}
			if source == agentlog.GatewaySource {
				return withHint(fmt.Errorf("--event-source %s is that of a run's gateway", source), "name another URI")
			}
			cfg := mcp.Config{Source: source, Warn: func(m string) { a.say.warning("%s", m) }}
			file, err := a.loadPolicy(policyFile)
			if err != nil {
				return err
			}
			cfg.Rules = mcp.NewRules(file, changes)
			for _, r := range file.Rules {
				if r.Rule == policy.RequireState && !slices.Contains(r.Value, "") {
					a.say.warning("%s: rule %q denies every call of %s: only a run knows its state, so it belongs in a run's policy", policyFile, r.Name, r.Target)
				}
			}
			if decisionLog == "" {
				decisionLog = os.Getenv(runner.EnvDecisionLog)
			}
			if decisionLog != "" {
				f, err := os.OpenFile(decisionLog, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
				if err != nil {
					return fmt.Errorf("--decision-log: %w", err)
				}
				defer f.Close()
				cfg.Decisions = f
			}
			if socket := os.Getenv(gateway.EnvSocket); socket != "" {
				if cfg.Run, err = mcp.Dial(socket, source); err != nil {
					a.say.warning("%v; calls are checked, but not reported to the run", err)
				}
				defer cfg.Run.Close()
			}
			return a.mcp(cfg, mcp.Command{Args: args, Stderr: a.stderr}.Start)
		},
		DisableFlagsInUseLine: true,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&policyFile, "policy", "", "policy `FILE` in YAML or JSON, read once")
	fs.StringVar(&decisionLog, "decision-log", "", "append each decision to `FILE` (default $"+runner.EnvDecisionLog+")")
	fs.BoolVar(&changes, "allow-tool-changes", false, "allow calls of a tool that the server changed after it was first listed")
	fs.StringVar(&source, "event-source", "assay-run:mcp", "`URI` that decisions name as their source")
	return cmd
}

// mcp runs the server behind the proxy and ends with its exit code.
func (a *app) mcp(cfg mcp.Config, start func() (*mcp.Server, error)) error {
	signals := catchSignals()
	signals.wait()
	server, err := start()
	if err != nil {
		return notStarted(err)
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals.C:
				server.Signal(s.(syscall.Signal))
			case <-ended:
				return
			}
		}
	}()
	relay := mcp.New(cfg).Relay(a.stdin, a.stdout, server)
	err = server.Close()
	close(ended)
	var exit *exec.ExitError
	switch {
	case relay != nil:
		return relay
	case errors.As(err, &exit):
		code := exit.ExitCode()
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			code = 128 + int(ws.Signal())
		}
		return exitError{code: code}
	}
	return err
}

// notStarted gives a server that could not be started the exit code of a command
// that could not.
func notStarted(err error) error {
	code := runner.ExitRunner
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		code = runner.ExitNotFound
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOEXEC):
		code = runner.ExitNotExecutable
	}
	return exitError{code, err}
}
