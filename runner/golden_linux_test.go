package runner

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	_ "github.com/assay-run/assay-run/cgroup/reexec"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// TestGoldenRun gives a run the input of the v0 contract's example, an agent of the OpenAI Agents SDK behind a
// policy, and gets the example's documents: all their keys and values, and more.
func TestGoldenRun(t *testing.T) {
	const id, work = "run_openai_agents_kernel_policy_determinism",
		"/tmp/assay-runner-openai-agents-kernel-policy/work/"
	dir := t.TempDir()
	spec := specfile.New("node", "agent.js")
	spec.RunID, spec.AgentShim = id, specfile.ShimOpenAIAgents
	spec.SDKEventLog, spec.PolicyDecisionLog = filepath.Join(dir, "sdk"), filepath.Join(dir, "policy")
	rec := newMemory()
	r := newRun(spec, Options{Recorder: rec, Freeing: new(sync.WaitGroup)})
	r.log.Event(r.started())
	if err := r.witness.agentSide.open(t.Context()); err != nil {
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
		say(spec.SDKEventLog,
			`{"schema":"assay.runner.sdk_event.v0","run_id":%q,"seq":%d,"event_type":%q,"source":"openai-agents","sdk_name":"@openai/agents","sdk_version":"0.0.0"%s}`, id, seq, event, rest)
	}
	observe := func(path string, class schema.Class) {
		e := schema.KernelEvent{RunID: id, Kind: schema.KindOpen, Value: path, HasResult: true, TNS: r.log.Now(),
			Class: class}
		r.witness.agentSide.calls.Bind(&kernel.Event{KernelEvent: schema.KernelEvent{Kind: schema.KindOpen}}, &e)
		if err := r.log.Surface.Add(&e, ""); err != nil {
			t.Fatal(err)
		}
		_ = rec.Append(schema.KernelPath, func(dst []byte, seq uint64) []byte {
			e.Seq = seq
			return schema.AppendJSON(dst, &e)
		})
	}
	const call = `,"tool_call_id":"tc_runner_policy_001","tool":"read_file"`
	observe("/lib/x86_64-linux-gnu/libc.so.6", schema.ClassLoader)
	observe("/usr/lib/locale/C.utf8", schema.ClassLocale)
	sdk(0, "tool_call_started", call)
	say(spec.PolicyDecisionLog,
		`{"specversion":"1.0","type":"assay.tool.decision","source":"assay://run","data":{"tool":"read_file","decision":"allow","tool_call_id":"tc_runner_policy_001"}}`)
	r.witness.agentSide.known(r.log.Now()) // as the first event of the tool would have made it
	observe(work+"openai-agents-input.txt", schema.ClassAgent)
	observe(work+"policy-input.txt", schema.ClassAgent)
	sdk(1, "tool_call_completed", call)
	sdk(2, "run_finished", "")

	r.witness.account = layer.Account{
		Report: &kernel.Report{SelfTestNS: 1, Delivered: 4,
			Hooks: []kernel.HookStatus{{Hook: kernel.HookConnect4, Name: "connect4", Required: true, Attached: true,
				SelfTested: true}}},
		Counts: schema.LayerCounts{Seen: 4, Written: 4}, Stats: layer.Stats{Received: 4, Written: 4},
	}
	if _, err := r.finish(nil); err != nil {
		t.Fatal(err)
	}
	for golden, path := range map[string]string{
		"capability-surface": schema.SurfacePath, "correlation-report": schema.CorrelationPath,
		"observation-health": schema.HealthPath,
	} {
		var want, got map[string]any
		data, err := os.ReadFile(filepath.Join("..", "schema", "testdata", "golden",
			golden+"-openai-agents-kernel-policy-v0.json"))
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

// within drops the keys that v has and like lacks.
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
