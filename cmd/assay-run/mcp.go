package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/cmd/internal/signals"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/gateway/mcp"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

// mcpFlags holds the flags of mcp.
type mcpFlags struct {
	policy, decisionLog, source string
	changes                     bool
	url, listen, config, server string
	headers                     []string
	noAuth                      bool
}

func mcpCommand(a *app) *cobra.Command {
	f := &mcpFlags{}
	cmd := &cobra.Command{
		Use:   "mcp --policy FILE [flags] -- SERVER [ARG...]",
		Short: "Check an MCP client's requests against a policy",
		Long: `mcp is a proxy between an MCP client and an MCP server. It answers a request that
the policy denies with a JSON-RPC error; the request never reaches the server. It
removes denied entries from the lists of tools, resources and prompts, and passes
everything else through unchanged. The policy's "resources", "prompts" and
"server_requests" list, by name or glob, what a client may read and what the server
may ask of it. A tool that the server changes after it was first listed is denied.

The server is a program that speaks over stdin and stdout (after --), a remote one
that speaks Streamable HTTP (--url), or one named in an MCP client's configuration file
(--config with --server). The client speaks over stdin and stdout, or, with
--listen, Streamable HTTP: mcp then prints the address and, unless
ASSAY_MCP_TOKEN is set, a bearer token. Each client gets its own server. With
--config but no --server, each server is at /NAME/mcp.

mcp passes a client's login headers and a remote server's challenges through, and never
records them. A challenge names the server's own URL, because a login is valid for that
server only. A client that accepts only mcp's URL there cannot log in: have it accept the
server's (validateResourceURL in MCP's TypeScript SDK), or pass the login with --header.
When mcp ends, even if it is killed, the server and everything that it started end too.

mcp writes each decision as one line of the decision log. Inside a run (assay-run -- CMD),
mcp also reports the calls to the run, and the run's policy applies too. mcp exits with
the server's exit code.

mcp wrap rewrites a configuration file so that every server in it goes
through mcp.`,
		Example: "  assay-run mcp --policy policy.yaml -- npx some-mcp-server\n  assay-run mcp --policy policy.yaml " +
			"--url https://mcp.example.com/mcp\n  assay-run mcp --policy policy.yaml --listen 127.0.0.1:0 -- " +
			"./server\n  assay-run mcp wrap --policy policy.yaml .mcp.json",
		Args: commandAfterDash,
		RunE: func(cmd *cobra.Command, args []string) error { return mcpRun(a, f, args) },

		DisableFlagsInUseLine: true,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.policy, "policy", "", "policy `FILE` in YAML or JSON, read once")
	fs.StringVar(&f.url, "url", "", "`URL` of a remote server")
	fs.StringArrayVar(&f.headers, "header", nil,
		"send `'NAME: VALUE'` to the remote server; ${VARIABLE} is expanded from the environment; may be repeated")
	fs.StringVar(&f.listen, "listen", "", "serve clients over HTTP at `HOST:PORT` instead of stdin and stdout")
	fs.BoolVar(&f.noAuth, "no-auth", false, "require no token; only with --listen on a loopback address")
	fs.StringVar(&f.config, "config", "", "take servers from `FILE`, in the mcpServers form")
	fs.StringVar(&f.server, "server", "", "use only the server `NAME` of --config")
	fs.StringVar(&f.decisionLog, "decision-log", "", "append each decision to `FILE` (default $"+runner.EnvDecisionLog+
		")")
	fs.BoolVar(&f.changes, "allow-tool-changes", false,
		"allow calls of a tool that the server changed after it was first listed")
	fs.StringVar(&f.source, "event-source", "assay-run:mcp", "`URI` that decisions name as their source")
	cmd.AddCommand(mcpWrapCommand(a))
	return cmd
}

// mcpRun reads the policy, opens what decisions go to, and serves the clients.
func mcpRun(a *app, f *mcpFlags, args []string) error {
	servers, err := f.servers(args, a)
	if err != nil {
		return err
	}
	if f.policy == "" {
		return console.WithHint(errors.New("no policy given"), "name one with --policy FILE")
	}
	if f.source == agentlog.GatewaySource {
		return console.WithHint(fmt.Errorf("--event-source %s is reserved for a run's gateway", f.source),
			"name another URI")
	}
	cfg := mcp.Config{Source: f.source, Warn: func(m string) { a.say.Warning("%s", m) }}
	file, err := loadPolicy(a.say, f.policy)
	if err != nil {
		return err
	}
	for _, r := range file.Rules {
		if r.Rule == policyfile.RequireState && !slices.Contains(r.Value, "") {
			a.say.Warning("%s: rule %q denies every call of %s: only a run knows its state, so it belongs "+
				"in a run's policy", f.policy, r.Name, r.Target)
		}
	}
	if f.decisionLog == "" {
		f.decisionLog = os.Getenv(runner.EnvDecisionLog)
	}
	if f.decisionLog != "" {
		log, err := os.OpenFile(f.decisionLog, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("--decision-log: %w", err)
		}
		defer log.Close()
		cfg.Decisions, cfg.Logged = log, isRunsLog(log)
	}
	if socket := os.Getenv(gateway.EnvSocket); socket != "" {
		if cfg.Run, err = mcp.Dial(socket, f.source); err != nil {
			a.say.Warning("%v; calls are checked, but not reported to the run", err)
		}
		defer cfg.Run.Close()
	}
	if f.listen != "" {
		return mcpListen(a, f, cfg, file, servers)
	}
	cfg.Rules = mcp.NewRules(file, f.changes)
	for _, start := range servers {
		return mcpRelay(a, cfg, func() (*mcp.Server, error) { return start(nil) })
	}
	return nil
}

// isRunsLog reports whether a file is the decision log that the surrounding run reads.
func isRunsLog(log *os.File) bool {
	own, err := log.Stat()
	runs, missing := os.Stat(os.Getenv(runner.EnvDecisionLog))
	return err == nil && missing == nil && os.SameFile(own, runs)
}

// startServer starts a server for one client. forward returns the client's own headers that a
// remote server gets.
type startServer = func(forward func() http.Header) (*mcp.Server, error)

// servers returns the servers that the flags name, by their paths over HTTP. Without --listen there
// is only one.
func (f *mcpFlags) servers(args []string, a *app) (map[string]startServer, error) {
	named := 0
	for _, given := range []bool{len(args) > 0, f.url != "", f.config != ""} {
		if given {
			named++
		}
	}
	switch {
	case named == 0:
		return nil, console.WithHint(specfile.ErrEmptyCommand,
			"write the server after --, as in: assay-run mcp --policy policy.yaml -- ./server; or name one with "+
				"--url or --config")
	case named > 1:
		return nil, errors.New("more than one server given: use only one of --url, --config and a command after --")
	case f.server != "" && f.config == "":
		return nil, errors.New("--server needs --config")
	case len(f.headers) > 0 && f.url == "":
		return nil, errors.New("--header needs --url")
	case f.noAuth && f.listen == "":
		return nil, errors.New("--no-auth needs --listen")
	}
	const path = "/mcp"
	switch {
	case len(args) > 0:
		return map[string]startServer{path: func(func() http.Header) (*mcp.Server, error) {
			return mcp.Command{Args: args, Stderr: a.stderr}.Start()
		}}, nil
	case f.url != "":
		e := mcp.Entry{URL: f.url, Headers: map[string]string{}}
		for _, h := range f.headers {
			name, value, ok := strings.Cut(h, ":")
			if !ok {
				return nil, fmt.Errorf("--header %q: write 'NAME: VALUE'", h)
			}
			e.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
		start, err := startEntry(a, e)
		return map[string]startServer{path: start}, err
	}
	entries, err := mcp.LoadConfig(f.config)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if f.server == "" && f.listen == "" && len(entries) != 1 {
		return nil, console.WithHint(fmt.Errorf("--config %s has %d servers", f.config, len(entries)),
			"name one with --server, or serve them all with --listen")
	}
	starts := map[string]startServer{}
	for name, e := range entries {
		if f.server != "" && name != f.server {
			continue
		}
		at := "/" + name + path
		if f.server != "" {
			at = path
		}
		if starts[at], err = startEntry(a, e); err != nil {
			return nil, fmt.Errorf("--config %s: %s: %w", f.config, name, err)
		}
	}
	if len(starts) == 0 {
		return nil, fmt.Errorf("--config %s has no server %q", f.config, f.server)
	}
	return starts, nil
}

// startEntry returns how a server of a configuration file is started.
func startEntry(a *app, e mcp.Entry) (startServer, error) {
	e, err := e.Expand()
	if err != nil {
		return nil, err
	}
	if e.URL == "" {
		return func(func() http.Header) (*mcp.Server, error) {
			return mcp.Command{Args: append([]string{e.Command}, e.Args...), Env: e.Environ(), Dir: e.Dir,
				Stderr: a.stderr}.Start()
		}, nil
	}
	if !strings.HasPrefix(e.URL, "https://") && !strings.HasPrefix(e.URL, "http://") {
		return nil, errors.New("a URL must begin with https:// or http://")
	}
	return func(forward func() http.Header) (*mcp.Server, error) {
		return mcp.Remote{URL: e.URL, Header: e.Header(), Forward: forward, Warn: func(m string) {
			a.say.Warning("%s", m)
		}}.Start()
	}, nil
}

// mcpRelay runs the server behind the proxy and ends with its exit code.
func mcpRelay(a *app, cfg mcp.Config, start func() (*mcp.Server, error)) error {
	caught := signals.Catch()
	caught.Wait()
	server, err := start()
	if err != nil {
		return notStarted(err)
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-caught.C:
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
		return console.ExitError{Code: exitCode(exit.ProcessState)}
	}
	return err
}

// notStarted adds to the error of a server that could not be started the exit code that a command
// would have.
func notStarted(err error) error {
	code := schema.ExitRunner
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, exec.ErrNotFound):
		code = schema.ExitNotFound
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.ENOEXEC):
		code = schema.ExitNotExecutable
	}
	return console.ExitError{Code: code, Err: err}
}

// envMCPToken names the variable with the bearer token of HTTP clients.
const envMCPToken = "ASSAY_MCP_TOKEN"

// mcpListen serves clients over HTTP until a signal ends it.
func mcpListen(a *app, f *mcpFlags, cfg mcp.Config, file *policyfile.File, servers map[string]startServer) error {
	ln, err := net.Listen("tcp", f.listen)
	if err != nil {
		return console.WithHint(fmt.Errorf("--listen: %w", err), "write HOST:PORT, as in 127.0.0.1:0")
	}
	defer ln.Close()
	front := &mcp.Front{Loopback: ln.Addr().(*net.TCPAddr).IP.IsLoopback(), Servers: map[string]mcp.Backend{}}
	if f.noAuth && !front.Loopback {
		return fmt.Errorf("--listen %s: without a token, only a loopback address is allowed, such as 127.0.0.1:0",
			f.listen)
	}
	made := false
	if !f.noAuth {
		if front.Token = os.Getenv(envMCPToken); front.Token == "" {
			front.Token, made = rand.Text(), true
		}
	}
	var paths []string
	for path, start := range servers {
		own := cfg
		own.Rules = mcp.NewRules(file, f.changes) // tools are pinned for each server
		front.Servers[path] = mcp.Backend{Proxy: own, Start: start}
		paths = append(paths, path)
	}
	caught := signals.Catch()
	caught.Wait()
	server := front.HTTPServer()
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	slices.Sort(paths)
	for _, path := range paths {
		fmt.Fprintf(a.stdout, "http://%s%s\n", ln.Addr(), path)
	}
	if made {
		fmt.Fprintf(a.stdout, "%s=%s\n", envMCPToken, front.Token)
	}
	for s := range caught.C {
		if s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP {
			break
		}
	}
	front.Close() // streams end with their sessions
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// mcpWrapCommand returns the command mcp wrap.
func mcpWrapCommand(a *app) *cobra.Command {
	var policyFile string
	var undo bool
	cmd := &cobra.Command{
		Use:   "wrap --policy FILE CONFIG",
		Short: "Put every server of a configuration file behind mcp",
		Long: `wrap rewrites a configuration file of an MCP client (the mcpServers form that
Claude Code, Cursor and others use) so that the client starts every server in it
through assay-run mcp. Everything else in the file stays as it is. wrap moves the
servers, with their secrets, to CONFIG.assay-run.json, where mcp reads them: do not
commit that file. --undo moves them back and removes it.`,
		Example: "  assay-run mcp wrap --policy policy.yaml .mcp.json\n  assay-run mcp wrap --undo .mcp.json",
		Args:    one("a configuration file", ".mcp.json"),
		RunE: func(_ *cobra.Command, args []string) error {
			if undo {
				return wrapped(a, "restored", args[0], func() ([]string, error) { return mcp.Unwrap(args[0]) })
			}
			if policyFile == "" {
				return console.WithHint(errors.New("no policy given"), "name one with --policy FILE")
			}
			if _, err := loadPolicy(a.say, policyFile); err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			if policyFile, err = filepath.Abs(policyFile); err != nil {
				return err
			}
			return wrapped(a, "wrapped", args[0], func() ([]string, error) {
				return mcp.Wrap(args[0], program, []string{"mcp", "--policy", policyFile})
			})
		},
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&policyFile, "policy", "", "policy `FILE` in YAML or JSON that mcp will read")
	cmd.Flags().BoolVar(&undo, "undo", false, "restore the servers as they were")
	return cmd
}

func wrapped(a *app, done, path string, f func() ([]string, error)) error {
	names, err := f()
	for _, name := range names {
		fmt.Fprintf(a.stdout, "%s %s\n", done, name)
	}
	if err == nil && len(names) == 0 {
		a.say.Info("%s: nothing to change", path)
	}
	return err
}
