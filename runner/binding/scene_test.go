package binding_test

import (
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/schema"
)

// scene is a correlator whose logs have been read up to any time.
type scene struct{ *binding.Correlator }

func newScene() scene {
	c := binding.New(binding.Options{Known: func(int64) bool { return true }})
	c.Own("/w/sdk.ndjson")
	return scene{c}
}

func (s scene) sdk(kind, id, tool string, after, at int64) {
	s.SDK(&schema.SDKEvent{EventType: kind, ToolCallID: id, Tool: tool, TNS: at},
		agentlog.Arrival{After: after, At: at})
}

func (s scene) start(id, tool string, after, at int64) {
	s.sdk(agentlog.ToolCallStarted, id, tool, after, at)
}

func (s scene) end(id, tool string, after, at int64) {
	s.sdk(agentlog.ToolCallCompleted, id, tool, after, at)
}

func (s scene) decide(id, tool, decision string, at int64) {
	s.Decision(&schema.PolicyEvent{ToolCallID: id, Tool: tool, Decision: decision},
		agentlog.Arrival{After: at - 1, At: at})
}

// open makes the agent open a file; flags 1 is for writing.
func (s scene) open(path string, flags uint64, t int64) *schema.KernelEvent {
	e := &schema.KernelEvent{Kind: schema.KindOpen, Value: path, Flags: flags, HasResult: true, TNS: t}
	s.Bind(&kernel.Event{KernelEvent: schema.KernelEvent{Kind: schema.KindOpen}}, e)
	return e
}

func (s scene) report(f binding.Facts) *schema.CorrelationReport {
	if f.Correlation == "" {
		f.Correlation, f.Observed, f.KernelLines = schema.Clean, true, 1
	}
	f.RunID = "run_1"
	return s.Report(f)
}
