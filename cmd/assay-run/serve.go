package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/cmd/internal/signals"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/serve"
	"github.com/assay-run/assay-run/schema/redact"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	listen []string
	dir    string
	policy string
	audit  []string
	noAuth bool
	tokens string
	grace  time.Duration
	turns  runner.Turns
	faults faults
	redact redactFlags
}

func (a *app) serveCommand() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve --dir DIR [flags]",
		Short: "Record what many agents report, without starting them",
		Long: `serve offers the gateway without a command: agents register tools, propose
calls and record turns over a socket, many at a time. Each run has a live record
in DIR/<agent_id>/<run_id>.jsonl, and serve seals one bundle beside it when a client
completes it. If the client vanished, serve seals the run as incomplete.

It prints the addresses it listens on, one per line. A WebSocket client must send
the bearer token in ASSAY_RUN_TOKEN; if that is not set, serve generates a token and
prints it on the last line. Only the owner can connect to a unix socket. With
--token-file, a WebSocket client can start, read and change only the runs of its own
agent. Each line of the file has an agent's id and its token.

Every call must belong to an open run. A rate limit applies to one agent and one
tool, across all runs and connections of that agent.

serve ends on SIGINT or SIGTERM, and seals open runs as incomplete. After SIGTERM, or
if serve is killed, the next serve with the same DIR resumes the runs that were open, if
their clients return within --grace. It still knows idempotency keys, and the calls that
count against rate limits.`,
		Example: `  assay-run serve --dir runs --listen ws:127.0.0.1:0
  assay-run serve --dir runs --listen unix:/run/agents.sock --policy policy.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },

		DisableFlagsInUseLine: true,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.dir, "dir", "", "write live records and bundles to `DIR`")
	fs.StringArrayVar(&f.listen, "listen", nil,
		"`ADDRESS` to listen on, unix:PATH or ws:HOST:PORT (default ws:127.0.0.1:0); may be repeated")
	fs.StringVar(&f.policy, "policy", "", "policy `FILE` in YAML or JSON, read once")
	fs.BoolVar(&f.noAuth, "no-auth", false, "require no token; only on a loopback address")
	fs.StringVar(&f.tokens, "token-file", "", "accept the agents listed in `FILE`, each with its own token")
	auditFlag(fs, &f.audit)
	durationFlag(fs, &f.grace, "grace", 30*time.Second, "wait `TIME` for a client that vanished, then seal its run")
	turnFlags(fs, &f.turns)
	f.redact.register(fs)
	f.faults.gather(fs)
	return cmd
}

// serve runs until a signal ends it.
func (a *app) serve(ctx context.Context, f *serveFlags) (err error) {
	if err := f.faults.err(); err != nil {
		return console.WithHint(err, "see assay-run serve --help")
	}
	if f.dir == "" {
		return console.WithHint(errors.New("no directory given"),
			"name one with --dir; live records and bundles go there")
	}
	redactors := a.servedRedactors(&f.redact)
	cfg, err := a.gatewayConfig(f, redactors)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return err
	}
	spools := filepath.Join(dir, ".spool")
	if err := os.MkdirAll(spools, 0o700); err != nil {
		return console.WithHint(err, "choose another directory with --dir")
	}
	cfg.Journal = filepath.Join(dir, journalName)
	runs := serve.New(serve.Config{Dir: dir, Program: "assay-run " + version(), Turns: f.turns,
		Spool: servedSpools(spools), Redactor: redactors})
	runs.Bind(cfg)
	g, err := gateway.New(*cfg)
	if err != nil {
		return err
	}
	caught := signals.Catch()
	caught.Wait()
	end := g.Suspend // nothing has happened yet
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, end(ctx))
	}()
	if err := resumeServed(ctx, spools, runs, g, a.say.Warning); err != nil {
		return err
	}
	if len(f.listen) == 0 {
		f.listen = []string{"ws:127.0.0.1:0"}
	}
	for _, address := range f.listen {
		network, at, _ := strings.Cut(address, ":")
		at = strings.TrimPrefix(at, "//") // ws://host:port is what it prints
		if network == "unix" && at == "" {
			return fmt.Errorf("--listen %s: a unix socket needs a path", address)
		}
		told, err := g.Listen(network, at)
		if err != nil {
			return console.WithHint(fmt.Errorf("--listen %s: %w", address, err),
				"write unix:PATH or ws:HOST:PORT, as in ws:127.0.0.1:0")
		}
		if network == "unix" {
			told = "unix:" + told
		}
		fmt.Fprintln(a.stdout, told)
	}
	end = g.Close
	if cfg.Token != "" && os.Getenv(gateway.EnvToken) == "" {
		fmt.Fprintf(a.stdout, "%s=%s\n", gateway.EnvToken, cfg.Token)
	}
	for s := range caught.C {
		if s == syscall.SIGTERM { // perhaps to be started again
			end = func(ctx context.Context) error {
				return errors.Join(g.Suspend(ctx), sealSuspended(ctx, spools, a.say.Warning))
			}
		}
		if s == syscall.SIGINT || s == syscall.SIGTERM {
			break
		}
	}
	return nil
}

// gatewayConfig is what the flags say, without the recordings.
func (a *app) gatewayConfig(f *serveFlags, redactors func(string) (*redact.Redactor, error)) (*gateway.Config, error) {
	cfg := &gateway.Config{
		Now:  gateway.BootTime,
		Warn: func(message string) { a.say.Warning("%s", message) },
	}
	cfg.Limits.Grace = f.grace
	var err error
	switch {
	case f.noAuth && f.tokens != "":
		return nil, errors.New("--no-auth and --token-file cannot be used together")
	case f.tokens != "":
		if cfg.Agents, err = gateway.LoadTokens(f.tokens); err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
	case !f.noAuth:
		if cfg.Token = os.Getenv(gateway.EnvToken); cfg.Token == "" {
			cfg.Token = rand.Text()
		}
	}
	if cfg.Policy, err = a.loadPolicy(f.policy); err != nil {
		return nil, err
	}
	outs, err := a.openAudit(f.audit)
	if err != nil {
		return nil, err
	}
	r, err := redactors("none") // as a call event outside of runs says
	for _, out := range redactSinks(outs, r) {
		cfg.Sinks = append(cfg.Sinks, gateway.NewSink(out.Name, out.Writer))
	}
	return cfg, err
}
