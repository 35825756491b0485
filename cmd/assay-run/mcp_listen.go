package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/cmd/internal/signals"
	"github.com/assay-run/assay-run/runner/gateway/mcp"
	"github.com/assay-run/assay-run/runner/policy"
)

// envMCPToken is the bearer token of clients that come by HTTP.
const envMCPToken = "ASSAY_MCP_TOKEN"

// mcpListen serves clients over HTTP until a signal ends it.
func (a *app) mcpListen(f *mcpFlags, cfg mcp.Config, file *policy.File, servers map[string]startServer) error {
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

// mcpWrapCommand is mcp wrap.
func (a *app) mcpWrapCommand() *cobra.Command {
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
				return a.wrapped("restored", args[0], func() ([]string, error) { return mcp.Unwrap(args[0]) })
			}
			if policyFile == "" {
				return console.WithHint(errors.New("no policy given"), "name one with --policy FILE")
			}
			if _, err := a.loadPolicy(policyFile); err != nil {
				return err
			}
			program, err := os.Executable()
			if err != nil {
				return err
			}
			if policyFile, err = filepath.Abs(policyFile); err != nil {
				return err
			}
			return a.wrapped("wrapped", args[0], func() ([]string, error) {
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

func (a *app) wrapped(done, path string, f func() ([]string, error)) error {
	names, err := f()
	for _, name := range names {
		fmt.Fprintf(a.stdout, "%s %s\n", done, name)
	}
	if err == nil && len(names) == 0 {
		a.say.Info("%s: nothing to change", path)
	}
	return err
}
