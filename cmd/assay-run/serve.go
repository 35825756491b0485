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

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/cmd/internal/signals"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/serve"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
	"github.com/assay-run/assay-run/schema/specfile"
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
	turns  specfile.Turns
	faults faults
	redact redactFlags
}

func serveCommand(a *app) *cobra.Command {
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
		RunE: func(cmd *cobra.Command, _ []string) error { return runServe(cmd.Context(), a, f) },

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

// runServe runs until a signal ends it.
func runServe(ctx context.Context, a *app, f *serveFlags) (err error) {
	if err := f.faults.err(); err != nil {
		return console.WithHint(err, "see assay-run serve --help")
	}
	if f.dir == "" {
		return console.WithHint(errors.New("no directory given"),
			"name one with --dir; live records and bundles go there")
	}
	redactors := servedRedactors(&f.redact)
	cfg, err := gatewayConfig(a, f, redactors)
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
	end := g.Suspend // until the first client can connect
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
		at = strings.TrimPrefix(at, "//") // serve itself prints ws://host:port
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
		if s == syscall.SIGTERM { // serve may be started again
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

// gatewayConfig makes the gateway's configuration from the flags, without the recordings.
func gatewayConfig(a *app, f *serveFlags, redactors func(string) (*redact.Redactor, error)) (*gateway.Config, error) {
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
	if cfg.Policy, err = loadPolicy(a.say, f.policy); err != nil {
		return nil, err
	}
	outs, err := openAudit(a, f.audit)
	if err != nil {
		return nil, err
	}
	r, err := redactors("none") // the run id of call events outside of a run
	for _, out := range redactSinks(outs, r) {
		cfg.Sinks = append(cfg.Sinks, gateway.NewSink(out.Name, out.Writer))
	}
	return cfg, err
}

// servedSpool is a spool with the methods that package serve needs.
type servedSpool struct{ *archive.Spool }

func (s servedSpool) Seal(ctx context.Context) (string, error) {
	sealed, err := s.Spool.Seal(ctx)
	return sealed.Path, err
}

// servedSpools returns a function that makes the spool of a served run in dir.
func servedSpools(dir string) func(schema.Run) (serve.Spool, error) {
	return func(run schema.Run) (serve.Spool, error) {
		spool, err := archive.CreateSpool(dir, run)
		if err != nil {
			return nil, err
		}
		return servedSpool{spool}, nil
	}
}

// servedRedactors returns a function that makes the redactor of a served run. It knows the secrets
// of serve's own environment and those that the flags name.
func servedRedactors(f *redactFlags) func(runID string) (*redact.Redactor, error) {
	return func(runID string) (*redact.Redactor, error) {
		if f.disabled {
			return nil, nil
		}
		r, err := f.open()
		if err != nil {
			return nil, err
		}
		r.Keep(runID)
		for _, file := range f.files {
			value, err := readSecret(file)
			if err != nil {
				return nil, err
			}
			r.Add(redact.RuleGiven, value)
		}
		r.AddEnv(os.Environ(), append(f.env, redact.DefaultEnv...))
		return r, nil
	}
}

// journalName is the file in serve's directory from which the next serve learns idempotency keys
// and rate limits.
const journalName = ".journal"

// resumeServed resumes the runs that an earlier serve left open, and seals those that cannot be
// resumed.
func resumeServed(ctx context.Context, dir string, runs *serve.Runs, g *gateway.Gateway,
	warn func(string, ...any)) error {
	spools, err := archive.ListSpools(dir)
	if err != nil {
		return err
	}
	for _, info := range spools {
		if info.Alive {
			continue
		}
		spool, err := archive.ResumeSpool(dir, info.RunID)
		if err == nil {
			err = runs.Resume(g, servedSpool{spool}, spool.Run())
		}
		if err == nil {
			warn("run %s was interrupted and is resumed", info.RunID)
			continue
		}
		sealed, rerr := archive.Recover(ctx, dir, info.RunID, archive.RecoverOptions{})
		if rerr != nil {
			warn("the interrupted run %s could not be sealed and stays in %s: %v", info.RunID, dir, rerr)
			continue
		}
		warn("sealed the interrupted run %s as incomplete: %s (%v)", info.RunID, sealed.Path, err)
	}
	return nil
}

// sealSuspended seals the runs that a later serve may resume, and keeps their spools for that.
func sealSuspended(ctx context.Context, dir string, warn func(string, ...any)) error {
	spools, err := archive.ListSpools(dir)
	for _, info := range spools {
		if info.Alive {
			continue
		}
		sealed, rerr := archive.Recover(ctx, dir, info.RunID, archive.RecoverOptions{Keep: true})
		if rerr != nil {
			err = errors.Join(err, rerr)
			continue
		}
		warn("sealed the open run %s as incomplete: %s; it resumes if serve is started again with the same --dir",
			info.RunID, sealed.Path)
	}
	return err
}
