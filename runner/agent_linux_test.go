package runner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/schema"
)

// memory is a Recorder that keeps everything.
type memory struct {
	mu    sync.Mutex
	files map[string][]byte
	lines map[string]uint64
}

func (m *memory) Append(layer string, encode func(dst []byte, seq uint64) []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[layer] = append(encode(m.files[layer], m.lines[layer]), '\n')
	m.lines[layer]++
	return nil
}

func (m *memory) Create(string) (io.WriteCloser, error) { return nil, os.ErrInvalid }
func (m *memory) Sync() error                           { return nil }

func (m *memory) Put(path string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[path] = bytes.Clone(data)
	return nil
}

func (m *memory) Counts(layer string) schema.LayerCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return schema.LayerCounts{Seen: m.lines[layer], Written: m.lines[layer]}
}

// TestGoldenRun feeds a run what the v0 contract's example was made from, an
// agent of the OpenAI Agents SDK behind a policy, and gets the example's
// documents: all its keys and values, with others beside them.
func TestGoldenRun(t *testing.T) {
	const id, work = "run_openai_agents_kernel_policy_determinism", "/tmp/assay-runner-openai-agents-kernel-policy/work/"
	dir := t.TempDir()
	spec := New("node", "agent.js")
	spec.RunID, spec.AgentShim = id, ShimOpenAIAgents
	spec.SDKEventLog, spec.PolicyDecisionLog = filepath.Join(dir, "sdk"), filepath.Join(dir, "policy")
	rec := &memory{files: map[string][]byte{}, lines: map[string]uint64{}}
	r := newRun(spec, Options{Host: cgroup.Probe(), Recorder: rec})
	r.recordStart()
	if err := r.openAgent(); err != nil {
		t.Fatal(err)
	}
	say := func(path, format string, args ...any) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, err = fmt.Fprintf(f, format+"\n", args...)
			f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sdk := func(seq int, event, rest string) {
		say(spec.SDKEventLog, `{"schema":"assay.runner.sdk_event.v0","run_id":%q,"seq":%d,"event_type":%q,"source":"openai-agents","sdk_name":"@openai/agents","sdk_version":"0.0.0"%s}`, id, seq, event, rest)
	}
	observe := func(path string, class schema.Class) {
		e := schema.KernelEvent{RunID: id, Kind: schema.KindOpen, Value: path, HasResult: true, TNS: r.now(), Class: class}
		r.agentSide.correlator.Bind(&kernel.Event{Kind: kernel.KindOpen}, &e)
		if err := r.surface.Add(&e); err != nil {
			t.Fatal(err)
		}
		_ = rec.Append(schema.KernelPath, func(dst []byte, seq uint64) []byte { e.Seq = seq; return schema.AppendJSON(dst, &e) })
	}
	const call = `,"tool_call_id":"tc_runner_policy_001","tool":"read_file"`
	observe("/lib/x86_64-linux-gnu/libc.so.6", schema.ClassLoader)
	observe("/usr/lib/locale/C.utf8", schema.ClassLocale)
	sdk(0, "tool_call_started", call)
	say(spec.PolicyDecisionLog, `{"specversion":"1.0","type":"assay.tool.decision","source":"assay://run","data":{"tool":"read_file","decision":"allow","tool_call_id":"tc_runner_policy_001"}}`)
	r.agentSide.known(r.now()) // as the first event of the tool would have made it
	observe(work+"openai-agents-input.txt", schema.ClassAgent)
	observe(work+"policy-input.txt", schema.ClassAgent)
	sdk(1, "tool_call_completed", call)
	sdk(2, "run_finished", "")

	r.kernelAccount = layer.Account{
		Report: &kernel.Report{SelfTestNS: 1, Delivered: 4, Hooks: []kernel.HookStatus{{Hook: kernel.HookConnect4, Name: "connect4", Required: true, Attached: true, SelfTested: true}}},
		Counts: schema.LayerCounts{Seen: 4, Written: 4}, Stats: layer.Stats{Received: 4, Written: 4},
	}
	if _, err := r.finish(nil); err != nil {
		t.Fatal(err)
	}
	for golden, path := range map[string]string{
		"capability-surface": schema.SurfacePath, "correlation-report": schema.CorrelationPath, "observation-health": schema.HealthPath,
	} {
		var want, got map[string]any
		data, err := os.ReadFile(filepath.Join("..", "schema", "testdata", "golden", golden+"-openai-agents-kernel-policy-v0.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(rec.files[path], &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, within(got, want)); diff != "" {
			t.Errorf("%s (-golden +ours):\n%s", path, diff)
		}
	}
}

// within drops the keys that v has and like has not.
func within(v, like any) any {
	switch like := like.(type) {
	case map[string]any:
		m, _ := v.(map[string]any)
		out := map[string]any{}
		for k, l := range like {
			out[k] = within(m[k], l)
		}
		return out
	case []any:
		list, _ := v.([]any)
		out := []any{}
		for i, x := range list {
			if i < len(like) {
				x = within(x, like[i])
			}
			out = append(out, x)
		}
		return out
	}
	return v
}

// TestSequenceOfAnSDKLog: which numbers are accepted, and which lines are kept.
func TestSequenceOfAnSDKLog(t *testing.T) {
	spec := New("x")
	rec := &memory{files: map[string][]byte{}, lines: map[string]uint64{}}
	r := newRun(spec, Options{Host: cgroup.Probe(), Recorder: rec})
	defer r.release()
	r.recordStart()
	if err := r.openAgent(); err != nil {
		t.Fatal(err)
	}
	a := r.agentSide
	for _, c := range []struct {
		seq     int // -1: a line that is not JSON; -2: the log begins anew
		problem bool
		kept    bool
	}{
		{0, false, true}, {1, false, true},
		{1, true, false},  // again
		{-1, true, false}, // counts as any number
		{3, false, true}, {4, false, true},
		{7, true, true}, // lines are missing, this one is not
		{8, false, true},
		{-2, false, false},
		{0, false, true}, {1, false, true},
		{0, true, false},
	} {
		before := rec.Counts(schema.SDKPath).Written
		var err error
		switch c.seq {
		case -2:
			a.restart()
			continue
		case -1:
			err = a.sdkLine([]byte("{"), 1, agentlog.Arrival{})
		default:
			err = a.sdkLine(fmt.Appendf(nil, `{"schema":"assay.runner.sdk_event.v0","run_id":%q,"seq":%d,"event_type":"run_finished","source":"s"}`, spec.RunID, c.seq), 1, agentlog.Arrival{})
		}
		if kept := rec.Counts(schema.SDKPath).Written > before; (err != nil) != c.problem || kept != c.kept {
			t.Errorf("seq %d: kept %v, %v; want kept %v, a problem: %v", c.seq, kept, err, c.kept, c.problem)
		}
	}
	var last schema.SDKEvent
	lines := bytes.Split(bytes.TrimSpace(rec.files[schema.SDKPath]), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil || last.Seq != uint64(len(lines)-1) {
		t.Errorf("the last of %d lines has seq %d, %v: the recorder numbers them", len(lines), last.Seq, err)
	}
}

// TestOnlyTheRunsProcessesGetCgroups: whoever else connects, and whatever is
// sent, moves nobody.
func TestOnlyTheRunsProcessesGetCgroups(t *testing.T) {
	host := cgroup.Probe()
	if m := host.Mode(); m != cgroup.Unified && m != cgroup.Hybrid {
		t.Skipf("no writable cgroup2: the host's mode is %s", m)
	}
	session, err := host.NewSession("call_test", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Remove()
	g, err := gateway.New(gateway.Config{
		Run:  &gateway.Recording{RunID: "call_test", Recorder: &memory{files: map[string][]byte{}, lines: map[string]uint64{}}},
		Now:  func() time.Duration { return 0 },
		Join: newCallGroups(session.Agent(), binding.New(binding.Options{})).join,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(t.Context())
	socket, err := g.Listen("unix", "")
	if err != nil {
		t.Fatal(err)
	}
	before := cgroup2(t)
	if err := JoinCall(socket, "x"); err == nil || !strings.Contains(err.Error(), "not a process of this run") {
		t.Errorf("joined from outside: %v", err)
	}
	for _, params := range []string{`{}`, `[]`, `{"tool_call_id":7}`, `{"tool_call_id":"a","pid":1}`, `{"tool_call_id":"` + strings.Repeat("x", 200) + `"}`, `{"tool_call_id":"a\nb"}`} {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":1,"method":"calls.join","params":%s}`+"\n", params)
		reply, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.Contains(reply, `"error"`) {
			t.Errorf("%.40q was answered with %s, %v", params, reply, err)
		}
		conn.Close()
	}
	if after := cgroup2(t); before != after {
		t.Errorf("our cgroup was %s and is %s", before, after)
	}
	if left, err := filepath.Glob(session.Agent().Path() + "/tool-*"); err != nil || len(left) > 0 {
		t.Errorf("cgroups %v are left of refused calls", left)
	}
}

// cgroup2 is our own; that of v1 hierarchies changes while a launcher is at work.
func cgroup2(t *testing.T) string {
	t.Helper()
	all, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, own, _ := strings.Cut("\n"+string(all), "\n0::")
	return own
}

// TestJoinCallWaitsForAPlace: that all places are taken for a moment does not
// leave a call to its environment.
func TestJoinCallWaitsForAPlace(t *testing.T) {
	g, err := gateway.New(gateway.Config{
		Run:    &gateway.Recording{RunID: "call_test", Recorder: &memory{files: map[string][]byte{}, lines: map[string]uint64{}}},
		Now:    func() time.Duration { return 0 },
		Limits: gateway.Limits{Connections: 1},
		Join:   func(_ *net.UnixConn, id string) error { return fmt.Errorf("got %s", id) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(t.Context())
	socket, err := g.Listen("unix", "")
	if err != nil {
		t.Fatal(err)
	}
	other, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(other, `{"jsonrpc":"2.0","id":1,"method":"runs.list"}`)
	if _, err := bufio.NewReader(other).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(5*joinAgain, func() { other.Close() })
	if err := JoinCall(socket, "x"); err == nil || err.Error() != "got x" {
		t.Errorf("joined with %v", err)
	}
}

// TestPolicyOfASpec: a library's user need not load the policy, and a bad one
// keeps the command from running.
func TestPolicyOfASpec(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	for text, want := range map[string]string{"tools: {deny: [x]}": "", "toolz: {}": "policy_unusable"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		spec := New("x")
		spec.Policy = file
		rec := &memory{files: map[string][]byte{}, lines: map[string]uint64{}}
		r := newRun(spec, Options{Host: cgroup.Probe(), Recorder: rec})
		r.recordStart()
		err := r.openAgent()
		var failure *runError
		if errors.As(err, &failure) != (want != "") || failure != nil && (failure.Code != want || failure.exit != ExitRunner) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
		r.release()
		if _, there := rec.files[schema.PolicyFilePath]; there != (want == "") {
			t.Errorf("%s: policy.json is there: %v", text, there)
		}
	}
}
