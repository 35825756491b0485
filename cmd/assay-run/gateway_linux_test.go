package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// underRun is a scripted client's command under assay-run, which writes its
// bundle to run.tar.gz in dir.
func underRun(t *testing.T, dir string, flags []string, script string, args ...string) *exec.Cmd {
	t.Helper()
	client := pythonClient(t, script, args...)
	args = append(append([]string{"-q", "-o", "run.tar.gz"}, flags...), "--")
	cmd := self(t, dir, append(args, client.Args...)...)
	script, err := filepath.Abs(script)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args[slices.Index(cmd.Args, client.Args[1])] = script
	cmd.Env = append(client.Env, "XDG_STATE_HOME="+filepath.Join(dir, ".state"))
	return cmd
}

// opened is the verified bundle of a run in dir.
func opened(t *testing.T, dir string) *archive.Reader {
	t.Helper()
	path := filepath.Join(dir, "run.tar.gz")
	verifyBundle(t, path, 0)
	r, err := archive.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// nameServiceCache is where glibc asks first for who a user is, as python does
// where HOME is not set: /var/run/nscd/socket, by the name that the kernel has
// for /var/run.
const nameServiceCache = "unix:/run/nscd/socket"

func layerLines(t *testing.T, r *archive.Reader, layer string, f func(line []byte)) (n uint64) {
	t.Helper()
	for line, err := range r.Lines(context.Background(), layer) {
		if err != nil {
			t.Fatal(err)
		}
		f(line)
		n++
	}
	return n
}

// TestScriptedClientInARun drives every method and every rejection from inside
// a run, with a client that shares no code with the gateway, and holds the
// bundle against what the client saw.
func TestScriptedClientInARun(t *testing.T) {
	dir := t.TempDir()
	rules := `
tools: {deny: [from_file]}
capabilities: [net.connect, fs.read]
rules:
- {name: file_rule, rule: deny_tool, target: also_from_file}
`
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	id := uniqueID()
	cmd := underRun(t, dir, []string{"--run-id", id, "--gateway", "ws", "--policy", "policy.yaml", "--env",
		"RUN_ID=" + id},
		"../../runner/gateway/testdata/scenario.py")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var seen struct {
		Turns   uint64
		Metrics struct {
			Calls    uint64
			Outcomes map[string]uint64
		}
		Seen []any
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		t.Fatal(err)
	}
	r := opened(t, dir)
	i := 0
	layerLines(t, r, schema.TurnsPath, func(line []byte) {
		var turn any
		if err := json.Unmarshal(line, &turn); err != nil {
			t.Fatal(err)
		}
		if i < len(seen.Seen) && !cmp.Equal(turn, seen.Seen[i]) {
			t.Errorf("turn %d is not what the client was told: %.300s", i, line)
		}
		i++
	})
	if uint64(i) != seen.Turns {
		t.Errorf("%d turns, the client counted %d", i, seen.Turns)
	}
	kinds := map[string]uint64{}
	audits := layerLines(t, r, schema.AuditPath, func(line []byte) {
		e, err := schema.ParseCallEvent(line)
		if err != nil {
			t.Fatal(err)
		}
		kinds[e.Outcome.Kind]++
	})
	if d := cmp.Diff(seen.Metrics.Outcomes, kinds); d != "" || audits != seen.Metrics.Calls {
		t.Errorf("%d call events, the metrics said %d (-metrics +layer):\n%s", audits, seen.Metrics.Calls, d)
	}
	decisions := map[string]bool{}
	policies := layerLines(t, r, schema.PolicyPath, func(line []byte) {
		var e schema.PolicyEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		decisions[e.Decision+":"+e.Tool] = true
	})
	docs, err := r.Documents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := docs.Health
	for layer, n := range map[string]uint64{"turns": seen.Turns, "audit": audits, "policy": policies} {
		if h.Layers[layer].Written != n || n == 0 {
			t.Errorf("health counts %+v in layer %s, there are %d", h.Layers[layer], layer, n)
		}
	}
	if h.PolicyLayer != schema.Present || len(decisions) == 0 {
		t.Errorf("the policy layer is %s with %d decisions", h.PolicyLayer, policies)
	}
	for _, d := range docs.Surface.PolicyDecisions {
		if _, tool, _ := strings.Cut(d, ":"); !decisions[d] || !slices.Contains(docs.Surface.MCPTools, tool) {
			t.Errorf("the capability surface has %s, which is not among %v of %v", d, decisions, docs.Surface.MCPTools)
		}
	}
	if len(docs.Surface.PolicyDecisions) != len(decisions) {
		t.Errorf("the capability surface has %d decisions, the layer %d", len(docs.Surface.PolicyDecisions),
			len(decisions))
	}
	for _, e := range docs.Surface.NetworkEndpoints {
		if e != nameServiceCache {
			t.Errorf("the way to the gateway is taken for the agent's: %s", e)
		}
	}
	// A call that was allowed and then not dispatched is not one that ran
	// unseen, and none is open for ever.
	for _, a := range docs.Correlation.Ambiguities {
		if strings.HasPrefix(a, schema.AmbiguousNeverEnded) {
			t.Error(a)
		}
	}
}

// agent runs one of the agents of testdata/agent.py in a fresh directory, and
// gives that, its bundle and what it said.
func agent(t *testing.T, flags []string, args ...string) (dir string, r *archive.Reader, out []byte) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := underRun(t, dir, flags, "testdata/agent.py", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &stderr)
	}
	return dir, opened(t, dir), out
}

func session(t *testing.T, dir string) (s schema.GatewaySession) {
	t.Helper()
	data, err := exec.Command("tar", "-xOf", filepath.Join(dir, "run.tar.gz"), schema.SessionPath).Output()
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		t.Fatalf("session.json: %v", err)
	}
	return s
}

func TestAClientThatVanishesLeavesARunIncomplete(t *testing.T) {
	dir, r, _ := agent(t, nil, "vanish")
	if s := session(t, dir); s.State != "incomplete" || s.Outcome != "" || s.Turns != 3 || s.Calls["success"] != 2 {
		t.Errorf("session.json: %+v", s)
	}
	if n := layerLines(t, r, schema.TurnsPath, func([]byte) {}); n != 3 {
		t.Errorf("%d turns", n)
	}
}
