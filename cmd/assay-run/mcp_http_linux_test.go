package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
)

const sdkPolicy = `
tools: {deny: [shell]}
resources: {deny: ["secret://**"]}
`

// TestMCPOfTheTypeScriptSDK: a client and a server of MCP's own SDK, by every way
// between them that mcp offers.
func TestMCPOfTheTypeScriptSDK(t *testing.T) {
	layertest.Host(t)
	need(t, "node")
	sdk := filepath.Join(t.TempDir(), "sdk")
	if err := os.CopyFS(sdk, os.DirFS("testdata/mcp-sdk")); err != nil {
		t.Fatal(err)
	}
	npmInstall(t, sdk)
	dir := t.TempDir()
	server := []string{"node", filepath.Join(sdk, "server.mjs")}
	remote := exec.Command(server[0], server[1], "http")
	remoteURL := startAndRead(t, remote, 1)[0]
	config, err := json.MarshalIndent(map[string]any{"other": 1, "mcpServers": map[string]any{
		"local":  map[string]any{"command": "node", "args": server[1:], "env": map[string]string{"FROM": "config"}},
		"remote": map[string]any{"type": "http", "url": remoteURL, "headers": map[string]string{"X-Key": "${PATH}"}},
	}}, "", "    ")
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"policy.yaml": sdkPolicy, "mcp.json": string(config)} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]any{
		"tools": []any{"echo", "slow", "ask"}, "resources": []any{"test://r"}, "echo": "echo", "read": "a resource",
		"slow":     "slow",
		"ask":      `{"type":"text","text":"sampled"}`,
		"shell":    `error -32010: MCP error -32010: denied by policy rule "tools.deny": the tool is on the list of denied tools`,
		"beside":   `error -32010: MCP error -32010: denied by policy rule "tools.deny": the tool is on the list of denied tools`,
		"secret":   `error -32010: MCP error -32010: denied by policy rule "resources.deny": it is on the list of what is denied`,
		"progress": []any{1.0, 2.0, 3.0, 4.0},
	}
	check := func(t *testing.T, env []string, args ...string) {
		t.Helper()
		client := exec.Command("node", append([]string{filepath.Join(sdk, "client.mjs")}, args...)...)
		client.Dir, client.Env, client.Stderr = dir, append(os.Environ(), env...), t.Output()
		out, err := client.Output()
		if err != nil {
			t.Fatalf("the client: %v", err)
		}
		var got map[string]any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	exe := self(t, dir)
	program := filepath.Join(t.TempDir(), "assay-run") // testscript.Main goes by the name
	if err := os.Symlink(exe.Path, program); err != nil {
		t.Fatal(err)
	}
	mcp := func(args ...string) []string {
		return append([]string{"stdio", program, "mcp", "--policy", "policy.yaml"}, args...)
	}
	t.Run("stdio to stdio", func(t *testing.T) { check(t, nil, mcp(append([]string{"--"}, server...)...)...) })
	t.Run("stdio to HTTP, with a stream that breaks off", func(t *testing.T) {
		check(t, nil, mcp("--url", remoteURL)...)
	})
	t.Run("a server of a configuration", func(t *testing.T) {
		check(t, nil, mcp("--config", "mcp.json", "--server", "remote")...)
	})
	t.Run("HTTP to both servers of a configuration", func(t *testing.T) {
		cmd := exec.Command(program, "mcp", "--policy", "policy.yaml", "--listen", "127.0.0.1:0", "--config",
			"mcp.json")
		cmd.Dir = dir
		lines := startAndRead(t, cmd, 3)
		for _, at := range lines[:2] {
			check(t, []string{lines[2]}, "http", at)
			// And once more, with a connection that breaks off in the middle of an answer.
			check(t, []string{lines[2]}, "http", breaking(t, at, `"progress":2`))
		}
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("after SIGTERM: %v", err)
		}
	})
	t.Run("a login by OAuth", func(t *testing.T) { login(t, program, dir, sdk) })
	t.Run("a configuration that is wrapped, and as it was", func(t *testing.T) {
		wrap := func(args ...string) {
			t.Helper()
			cmd := exec.Command(program, append([]string{"mcp", "wrap"}, args...)...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		wrap("--policy", "policy.yaml", "mcp.json")
		wrap("--policy", "policy.yaml", "mcp.json") // twice is once
		text, err := os.ReadFile(filepath.Join(dir, "mcp.json"))
		if err != nil {
			t.Fatal(err)
		}
		var now struct {
			Other   int
			Servers map[string]struct {
				Type, Command string
				Args          []string
			} `json:"mcpServers"`
		}
		if err := json.Unmarshal(text, &now); err != nil || now.Other != 1 ||
			strings.Contains(string(text), remoteURL) {
			t.Fatalf("%v: %s", err, text)
		}
		for name, s := range now.Servers {
			t.Run(name, func(t *testing.T) {
				// os.Executable is the test binary, which goes by its name.
				check(t, nil, append([]string{"stdio", program}, s.Args...)...)
			})
			if s.Command == "" || name == "remote" && s.Type != "stdio" {
				t.Errorf("%s is %+v", name, s)
			}
		}
		wrap("--undo", "mcp.json")
		if text, err := os.ReadFile(filepath.Join(dir, "mcp.json")); err != nil || string(text) != string(config) {
			t.Errorf("%v: it is not as it was:\n%s\n%s", err, text, config)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "mcp.json?*")); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

// startAndRead starts a program, and returns its first lines. It is killed at the
// end of the test.
func startAndRead(t *testing.T, cmd *exec.Cmd, n int) []string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr, cmd.WaitDelay = t.Output(), time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	var lines []string
	s := bufio.NewScanner(out)
	for len(lines) < n && s.Scan() {
		lines = append(lines, s.Text())
	}
	if len(lines) < n {
		t.Fatalf("%s said %q", cmd.Path, lines)
	}
	return lines
}

// breaking is a way to an address. The first connection over which a text comes breaks off then.
func breaking(t *testing.T, address, text string) string {
	t.Helper()
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	host := to.Host
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to.Host = ln.Addr().String()
	var mu sync.Mutex
	var open []net.Conn
	broken := false
	end := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			c.Close()
		}
		open = nil
	}
	t.Cleanup(func() {
		ln.Close()
		end()
		if !broken {
			t.Errorf("no connection broke off: %s never came", text)
		}
	})
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", host)
			if err != nil {
				client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			go func() { io.Copy(server, client); server.Close() }()
			go func() {
				defer client.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := server.Read(buf)
					if n > 0 {
						client.Write(buf[:n])
					}
					if err != nil {
						return
					}
					mu.Lock()
					breaks := !broken && strings.Contains(string(buf[:n]), text)
					broken = broken || breaks
					mu.Unlock()
					if breaks {
						server.Close()
						return
					}
				}
			}()
		}
	}()
	return to.String()
}
