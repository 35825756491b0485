package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

const mcpPolicy = `
tools: {deny: [shell]}
rules:
- {name: no_etc, rule: deny_tool_param, target: read_file, key: path, value_path: /etc}
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
	rules := "rules:\n- {name: of_the_run, rule: deny_tool_param, target: '*', key: path, pattern: forbidden}\n"
	for file, text := range map[string]string{"run.yaml": rules, "mcp.yaml": mcpPolicy} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server, err := filepath.Abs("testdata/mcp_server.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := underRun(t, dir, []string{"--policy", "run.yaml"}, "testdata/mcp.py", "mcp.yaml", "decisions.ndjson", server)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	var got []string
	layerLines(t, opened(t, dir), schema.AuditPath, func(line []byte) {
		e, err := schema.ParseCallEvent(line)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.ToolID+" "+e.ToolCallID+" "+e.Outcome.Kind+" "+e.CallerID)
	})
	want := []string{
		"read_file 2 success urn:test", "write_file from_arguments success urn:test",
		"write_file from_params success urn:test",
		"read_file 11 success urn:test", "write_file 12 policy_denied urn:test", "write_file ü success urn:test",
		// What the proxy denied, or the gateway could not look at.
		"shell odd policy_denied urn:test", "shell odd policy_denied urn:test", "shell odd policy_denied urn:test",
		"shell odd policy_denied urn:test",
		"shell 3 policy_denied urn:test", "read_file four policy_denied urn:test", "shell 10 policy_denied urn:test",
		"write_file 13 policy_denied urn:test", "write_file 14 policy_denied urn:test",
		"write_file 15 policy_denied urn:test",
	}
	slices.Sort(want) // calls that came together end in any order
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("audit layer (-want +got):\n%s", d)
	}
}

// TestMCPOfTheSDKInARun: the events of a server that was there before any call
// are bound to the call that they were done for, and to no other. What the client and
// its children do while a call is open belongs to none.
func TestMCPOfTheSDKInARun(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"run.yaml": "rules:\n- {name: of_the_run, rule: deny_tool_param, target: '*', key: path, pattern: forbidden}\n",
		"mcp.yaml": "tools: {deny: [delete_all]}\n", "in": "text",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := self(t, dir, "-q", "-o", "run.tar.gz", "--policy", "run.yaml", "--policy-decision-log", "decisions.ndjson",
		"--", "mcp-agent")
	// or it tells of a cancelled call after the next has begun
	cmd.Env = append(cmd.Env, "MCPGODEBUG=blockingcancelnotify=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"tool read_file\ntool touch\ntool wait\ntc_read done", "tc_touch done", `tc_mcp_denies error .*tools\.deny`,
		`tc_run_denies error .*of_the_run`,
		"tc_wait error .*cancel", "tc_again done",
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("the agent was not told %q:\n%s", want, out)
		}
	}
	r := opened(t, dir)
	outcomes := map[string]string{}
	layerLines(t, r, schema.AuditPath, func(line []byte) {
		e, err := schema.ParseCallEvent(line)
		if err != nil {
			t.Fatal(err)
		}
		outcomes[e.ToolCallID] += e.Outcome.Kind + e.Outcome.Code
	})
	want := map[string]string{
		"tc_read": schema.CallSuccess, "tc_touch": schema.CallSuccess, "tc_mcp_denies": schema.CallPolicyDenied,
		"tc_run_denies": schema.CallPolicyDenied,
		"tc_wait":       schema.CallExecutionFailed + schema.FailCancelled, "tc_again": schema.CallSuccess,
	}
	if d := cmp.Diff(want, outcomes); d != "" {
		t.Errorf("call events (-want +got):\n%s", d)
	}
	// Decisions of the log and of the gateway are one layer.
	decisions := map[string]int{}
	var seq uint64
	layerLines(t, r, schema.PolicyPath, func(line []byte) {
		var e schema.PolicyEvent
		if err := json.Unmarshal(line, &e); err != nil || e.Seq != seq || e.TNS <= 0 {
			t.Errorf("line %d of the policy layer: %v, %s", seq, err, line)
		}
		seq++
		decisions[e.Source+" "+e.Decision+" "+e.ToolCallID]++
	})
	wantDecisions := map[string]int{
		"assay-run:mcp allow tc_read": 1, "assay-run:mcp allow tc_touch": 1, "assay-run:mcp deny tc_mcp_denies": 1,
		"assay-run:mcp allow tc_run_denies": 1, "assay-run:mcp allow tc_wait": 1, "assay-run:mcp allow tc_again": 1,
		"assay-run:gateway allow tc_read": 1, "assay-run:gateway allow tc_touch": 1,
		"assay-run:gateway deny tc_run_denies": 1, "assay-run:gateway allow tc_wait": 1,
		"assay-run:gateway allow tc_again": 1,
	}
	if d := cmp.Diff(wantDecisions, decisions); d != "" {
		t.Errorf("policy layer (-want +got):\n%s", d)
	}
	if !observes() {
		return
	}
	bound := map[string]string{}
	kernelEvents(t, r, func(e *schema.KernelEvent) {
		if name := filepath.Base(e.Value); e.Kind == schema.KindOpen && filepath.Dir(e.Value) == dir &&
			!strings.HasSuffix(name, ".ndjson") {
			bound[name] += strings.TrimSpace(e.ToolCallID+" "+e.BoundBy) + ";"
		}
	})
	wantBound := map[string]string{
		"mcp.yaml": ";", "in": "tc_read window;", "hidden": "tc_read window;", "by-touch": "tc_touch window;",
		"by-wait": "tc_wait window;", "beside": ";", "beside-child": ";", "by-again": "tc_again window;",
		"after-tc_read": ";", "after-tc_touch": ";", "after-tc_mcp_denies": ";", "after-tc_run_denies": ";",
		"after-tc_wait": ";", "after-tc_again": ";",
	}
	if d := cmp.Diff(wantBound, bound); d != "" {
		t.Errorf("files opened, and the calls they are bound to (-want +got):\n%s", d)
	}
	insp, err := self(t, dir, "inspect", "--all", "run.tar.gz").CombinedOutput()
	// The proxy's decisions are read from its log, the gateway's come by themselves.
	if want := `(?s)\ndenied \(\d+\)(\n  1× tool_call +deny +(delete_all +rule tools.deny|touch +rule of_the_run)){2}\n.*\nprograms \(`; !regexp.MustCompile(want).Match(insp) {
		t.Errorf("the denied calls are not the first denials:\n%s", insp)
	}
	if err != nil || !regexp.MustCompile(
		`(?s)tc_read read_file.*! its name says that it only reads, and it.*! wrote +\S*/hidden`).Match(insp) {
		t.Errorf("a hidden write does not stand out: %v\n%s", err, insp)
	}
}

// TestMCPDecidesAlone: in a run without a policy of its own each decision of the proxy
// is one line of the policy layer, whether the run reads the proxy's log or not.
func TestMCPDecidesAlone(t *testing.T) {
	for name, flags := range map[string][]string{"read log": {"--policy-decision-log", "decisions.ndjson"},
		"no log": nil} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(os.WriteFile(filepath.Join(dir, "mcp.yaml"), []byte("tools: {deny: [delete_all]}\n"),
				0o600),
				os.WriteFile(filepath.Join(dir, "in"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			cmd := self(t, dir, append(append([]string{"-q", "-o", "run.tar.gz"}, flags...), "--", "mcp-agent")...)
			cmd.Env = append(cmd.Env, "MCPGODEBUG=blockingcancelnotify=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			r, want, got := opened(t, dir), []string{}, []string{}
			for _, id := range []string{"tc_read", "tc_touch", "tc_mcp_denies", "tc_run_denies", "tc_wait",
				"tc_again"} {
				decision := "allow"
				if id == "tc_mcp_denies" {
					decision = "deny"
				}
				want = append(want, "assay-run:mcp "+decision+" "+id)
			}
			layerLines(t, r, schema.PolicyPath, func(line []byte) {
				var e schema.PolicyEvent
				if err := json.Unmarshal(line, &e); err != nil {
					t.Fatal(err)
				}
				got = append(got, e.Source+" "+e.Decision+" "+e.ToolCallID)
			})
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("policy layer (-want +got):\n%s", d)
			}
			if flags != nil {
				log, err := os.ReadFile(filepath.Join(dir, "decisions.ndjson"))
				if n := bytes.Count(log, []byte("\n")); err != nil || n != len(got) {
					t.Errorf("%v: the log has %d lines, the layer %d", err, n, len(got))
				}
			}
			docs, err := r.Documents(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]string{"allow:read_file", "allow:touch", "allow:wait", "deny:delete_all"},
				docs.Surface.PolicyDecisions); d != "" {
				t.Errorf("decisions of the surface (-want +got):\n%s", d)
			}
			for _, b := range docs.Correlation.Bindings {
				if b.PolicyDecision == "" {
					t.Errorf("call %s has no decision", b.ToolCallID)
				}
			}
			for _, a := range docs.Correlation.Ambiguities {
				if a != schema.AmbiguousPolicyWithoutKernel { // where nothing observes
					t.Errorf("ambiguity %s", a)
				}
			}
		})
	}
}

// TestMCPEndsItsServer: nothing that the server started outlives mcp, however mcp
// ends: not a wrapper's child, not one in a session of its own.
func TestMCPEndsItsServer(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("version: 1\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := self(t, dir, "mcp", "--policy", "policy.yaml", "--", "sh", "-c",
				"trap '' TERM; sleep 600 & a=$!; setsid sleep 600 & b=$!; sh -c 'sleep 600; true' & "+
					"echo $$ $a $b $! >pids.new; mv pids.new pids; wait")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var pids []string
			for deadline := time.Now().Add(5 * time.Minute); len(pids) == 0; time.Sleep(10 * time.Millisecond) {
				text, _ := os.ReadFile(filepath.Join(dir, "pids"))
				if pids = strings.Fields(string(text)); time.Now().After(deadline) {
					t.Fatal("the server did not start")
				}
			}
			if len(pids) < 4 {
				t.Fatalf("the server told of %q", pids)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			for _, pid := range pids {
				alive := func() bool {
					stat, err := os.ReadFile("/proc/" + pid + "/stat")
					_, after, _ := strings.Cut(string(stat), ") ")
					return err == nil && !strings.HasPrefix(after, "Z")
				}
				for deadline := time.Now().Add(5 * time.Minute); alive(); time.Sleep(10 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Errorf("process %s of the server is still there", pid)
						break
					}
				}
			}
		})
	}
}
