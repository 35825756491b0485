package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// conformance runs MCP's own conformance tests.
type conformance struct {
	node, suite string // programs
	server      string // of the Go SDK, which has everything that the tests ask for
	client      string
	program     string // assay-run
	dir         string
}

func newConformance(t *testing.T) *conformance {
	t.Helper()
	nodes, _ := filepath.Glob("/opt/assay-run-nodes/*/node_modules/node/bin/node")
	if len(nodes) == 0 {
		t.Skip("the conformance tests need Node.js 22 or later in /opt/assay-run-nodes (make deps)")
	}
	if _, err := os.Stat("../../go.mod"); err != nil {
		t.Skip("the module is not here, which has the SDK's server and client: ", err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "suite"), os.DirFS("testdata/mcp-conformance")); err != nil {
		t.Fatal(err)
	}
	npmInstall(t, filepath.Join(dir, "suite"))
	const sdk = "github.com/modelcontextprotocol/go-sdk/conformance/"
	if out, err := exec.Command("go", "build", "-o", dir, sdk+"everything-server",
		sdk+"everything-client").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c := &conformance{
		node: nodes[0], suite: filepath.Join(dir, "suite", "node_modules", "@modelcontextprotocol", "conformance",
			"dist", "index.js"),
		server: filepath.Join(dir, "everything-server"), client: filepath.Join(dir, "everything-client"),
		program: filepath.Join(dir, "assay-run"), dir: dir, // testscript.Main goes by the name
	}
	if err := os.Symlink(self(t, dir).Path, c.program); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// verdict is a line of the summary, as in "✓ ping: 1 passed, 0 failed".
var verdict = regexp.MustCompile(`(?m)^[✓✗] (\S+: \d+ passed, \d+ failed)`)

// servers are the verdicts on the server at an address.
func (c *conformance) servers(t *testing.T, url string) []string {
	t.Helper()
	cmd := exec.Command(c.node, c.suite, "server", "--url", url, "--suite", "all", "-o", t.TempDir())
	cmd.Dir = c.dir
	out, _ := cmd.CombinedOutput() // it fails where a check does
	var found []string
	for _, m := range verdict.FindAllStringSubmatch(string(out), -1) {
		found = append(found, m[1])
	}
	if len(found) < 30 {
		t.Fatalf("%d verdicts:\n%s", len(found), out)
	}
	return found
}

// mcp starts mcp in front of a server and returns where it listens.
func (c *conformance) mcp(t *testing.T, args ...string) (url string) {
	t.Helper()
	cmd := exec.Command(c.program,
		append([]string{"mcp", "--policy", "policy.yaml", "--no-auth", "--listen", "127.0.0.1:0"}, args...)...)
	cmd.Dir = c.dir
	return startAndRead(t, cmd, 1)[0]
}

// TestMCPConformance: MCP's own tests find the same with mcp in between as without
// it, for servers and for clients.
func TestMCPConformance(t *testing.T) {
	layertest.Host(t)
	c := newConformance(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := ln.Addr().String()
	ln.Close()
	server := exec.Command(c.server, "-http", at, "-stateless=false")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", at); err == nil {
			conn.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	url := "http://" + at + "/mcp"
	direct := c.servers(t, url)
	if failed := slices.DeleteFunc(slices.Clone(direct), func(v string) bool {
		return strings.HasSuffix(v, " 0 failed")
	}); len(failed) > 0 {
		t.Fatalf("the SDK's own server fails: %q", failed)
	}
	for name, args := range map[string][]string{"a program": {"--", c.server}, "a remote server": {"--url", url}} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(direct, c.servers(t, c.mcp(t, args...))); d != "" {
				t.Errorf("verdicts without mcp and with it (-want +got):\n%s", d)
			}
		})
	}

	// The other way round: the tests are the server, and mcp is the client's way to it.
	through := filepath.Join(c.dir, "through")
	script := fmt.Sprintf(`#!/bin/sh
cd %s
%s mcp --policy policy.yaml --no-auth --listen 127.0.0.1:0 --url "$1" >at.$$ &
while ! [ -s at.$$ ]; do sleep 0.02; done
%s "$(head -n 1 at.$$)"
code=$?
kill $!
wait
exit $code
`, c.dir, c.program, c.client)
	if err := os.WriteFile(through, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for scenario, want := range map[string]string{
		"initialize": "Passed: 1/1, 0 failed", "tools_call": "Passed: 1/1, 0 failed",
		"elicitation-sep1034-client-defaults": "Passed: 5/5, 0 failed",
		// The challenge reaches the client, which asks where it says. It goes no
		// further: to RFC 9728 the resource has to be at the address that it called.
		"auth/metadata-default": `prm-pathbased-requested *\] \S*SUCCESS`,
	} {
		t.Run(scenario, func(t *testing.T) {
			cmd := exec.Command(c.node, c.suite, "client", "--command", through, "--scenario", scenario, "-o",
				t.TempDir())
			cmd.Dir = c.dir
			out, _ := cmd.CombinedOutput()
			if !regexp.MustCompile(want).Match(out) {
				t.Errorf("want %s:\n%s", want, out)
			}
		})
	}
}
