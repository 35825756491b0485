package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

const mcpPolicy = `
tools: {deny: [shell]}
rules:
- {name: no_etc, rule: deny_tool_param, target: read_file, key: path, value: /etc}
`

func mcpClient(t *testing.T) *exec.Cmd {
	dir := t.TempDir()
	file := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(file, []byte(mcpPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	return pythonClient(t, "testdata/mcp.py", file, filepath.Join(dir, "decisions.ndjson"), "testdata/mcp_server.py")
}

func TestMCP(t *testing.T) {
	if out, err := mcpClient(t).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Inside a run the proxy reports to the run's gateway: its policy applies too,
// and its layers have each call once.
func TestMCPInARun(t *testing.T) {
	dir := t.TempDir()
	spool, err := archive.CreateSpool(filepath.Join(dir, "spool"), schema.Run{RunID: "run_1", Output: filepath.Join(dir, "x.tar.gz")})
	if err != nil {
		t.Fatal(err)
	}
	defer spool.Close()
	rules, err := policy.ParseYAML([]byte("rules:\n- {name: of_the_run, rule: deny_tool_param, target: '*', key: path, value: forbidden}\n"))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	g, err := gateway.New(gateway.Config{
		Run: &gateway.Recording{RunID: "run_1", Recorder: spool, TurnsFile: filepath.Join(spool.Dir(), schema.TurnsPath)},
		Now: func() time.Duration { return time.Since(began) }, Policy: rules,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Listen("unix", ""); err != nil {
		t.Fatal(err)
	}
	cmd := mcpClient(t)
	cmd.Env = append(cmd.Env, g.Env()...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	data, err := os.ReadFile(filepath.Join(spool.Dir(), schema.AuditPath))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range linesOf(data) {
		e, err := schema.ParseCallEvent(line)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.ToolID+" "+e.ToolCallID+" "+e.Outcome.Kind+" "+e.CallerID)
	}
	want := []string{
		"read_file 2 success urn:test", "write_file from_arguments success urn:test", "write_file from_params success urn:test",
		"read_file 11 success urn:test", "write_file 12 policy_denied urn:test",
	}
	slices.Sort(want) // calls that came together end in any order
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("audit layer (-want +got):\n%s", d)
	}
}

func linesOf(data []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		d := json.NewDecoder(bytes.NewReader(data))
		for {
			var raw json.RawMessage
			if d.Decode(&raw) != nil || !yield(raw) {
				return
			}
		}
	}
}
