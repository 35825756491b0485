package main

import (
	"errors"
	"fmt"
	"io"
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
	cmd := &cobra.Command{
		Use:   "mcp --policy FILE [flags] -- SERVER [ARG...]",
		Short: "Check an MCP client's tool calls against a policy",
		Long: `mcp starts an MCP server that speaks over stdin and stdout, and stands between it
and the client. A tools/call that the policy denies is answered with a JSON-RPC
error and never reaches the server; tools that may not be called are left out of
tools/list; everything else goes through untouched.

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
			var err error
			if cfg.Policy, err = a.loadPolicy(policyFile); err != nil {
				return err
			}
			for _, r := range cfg.Policy.Rules {
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
			return a.mcp(cfg, args)
		},
		DisableFlagsInUseLine: true,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&policyFile, "policy", "", "policy `FILE` in YAML or JSON, read once")
	fs.StringVar(&decisionLog, "decision-log", "", "append each decision to `FILE` (default $"+runner.EnvDecisionLog+")")
	fs.StringVar(&source, "event-source", "assay-run:mcp", "`URI` that decisions name as their source")
	return cmd
}

// mcp runs the server behind the proxy and ends with its exit code.
func (a *app) mcp(cfg mcp.Config, args []string) error {
	server := exec.Command(args[0], args[1:]...)
	server.Stderr = a.stderr
	in, err := server.StdinPipe()
	if err != nil {
		return err
	}
	// Our own pipe, since Wait would close one of StdoutPipe under the reader.
	out, outW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	server.Stdout = outW
	signals := catchSignals()
	signals.wait()
	err = server.Start()
	outW.Close()
	if err != nil {
		code := runner.ExitRunner
		switch {
		case errors.Is(err, os.ErrNotExist), errors.Is(err, exec.ErrNotFound):
			code = runner.ExitNotFound
		case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOEXEC):
			code = runner.ExitNotExecutable
		}
		return exitError{code, fmt.Errorf("start the MCP server %q: %w", args[0], err)}
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals.C:
				server.Process.Signal(s)
			case <-ended:
				return
			}
		}
	}()
	relay := mcp.New(cfg).Relay(a.stdin, a.stdout, in, io.Reader(out), func() { in.Close() })
	if relay != nil {
		server.Process.Kill() // it would wait for a reader for ever
	}
	err = server.Wait()
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
