package runner

import (
	"fmt"
	"sync"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/schema"
)

// agentSide is what the agent tells about itself, in its logs and through the
// gateway.
type agentSide struct {
	run        *run
	correlator *binding.Correlator
	sdk        *agentlog.Follower // nil without a log
	policy     *agentlog.Follower
	gateway    *gateway.Gateway // nil where it cannot listen

	// Of the followers' goroutines, until they are closed.
	due              uint64 // seq of the SDK's next line
	resync           bool   // lines were refused, so seq may jump
	sdkErr, policErr error  // the first failure to record a line
	kept             uint64 // lines of the SDK that have something wrong

	mu               sync.Mutex // guards what follows
	tools, decisions map[string]bool
	crowded          bool // more of them than are kept
	warnings         []string

	closed  bool
	refused map[string]uint64 // lines that were not taken in, by layer
	accused error             // what is wrong with what it told, or could not be kept of it
}

// maxNames bounds the tools, and the decisions, of the capability surface.
const maxNames = 10_000

// openAgent lets the agent tell about itself.
func (r *run) openAgent() error {
	a := &agentSide{run: r, correlator: binding.New(binding.Options{}), tools: map[string]bool{}, decisions: map[string]bool{}}
	r.agentSide = a
	if r.spec.SDKEventLog != "" || r.spec.PolicyDecisionLog != "" {
		a.correlator = binding.New(binding.Options{Known: a.known, SDK: r.spec.SDKEventLog != ""})
	}
	if err := a.openGateway(); err != nil {
		return err
	}
	return a.followLogs()
}

// now is nanoseconds since run_started.
func (r *run) now() int64 { return int64(r.rec.elapsed()) }

// env tells the agent where to report.
func (a *agentSide) env() []string {
	var env []string
	if a.sdk != nil {
		path, _ := absLog(a.run.spec.SDKEventLog) // it worked before
		env = append(env, envSDKLog+"="+path, envSDKSchema+"="+schema.SDKEventV0)
	}
	if a.policy != nil {
		path, _ := absLog(a.run.spec.PolicyDecisionLog)
		env = append(env, EnvDecisionLog+"="+path)
	}
	if a.gateway != nil {
		env = append(env, a.gateway.Env()...)
	}
	return env
}

// decidedOn is told of every decision about a tool.
func (a *agentSide) decidedOn(tool, decision string) {
	a.name(a.tools, tool)
	a.name(a.decisions, decision+":"+tool)
}

func (a *agentSide) name(set map[string]bool, s string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(set) < maxNames {
		set[s] = true
	} else if !set[s] {
		a.crowded = true
	}
}

// endAgent takes in the rest of what the agent told, once nothing of the run is
// left and the kernel layer has seen its last event.
func (r *run) endAgent() {
	a := r.agentSide
	if a == nil || a.closed {
		return
	}
	a.closed = true
	a.closeGateway()
	a.refused = map[string]uint64{
		"sdk":    a.endLog(a.sdk, "sdk", "sdk event log", a.sdkErr),
		"policy": a.endLog(a.policy, "policy", "policy decision log", a.policErr),
	}
	a.refused["sdk"] -= min(a.kept, a.refused["sdk"])
	a.mu.Lock()
	warnings := a.warnings
	a.mu.Unlock()
	for _, w := range warnings {
		reason := schema.Reason{Subject: "gateway", Code: "gateway_warning", Message: w}
		r.reasons = append(r.reasons, reason)
		r.lose(reason)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := range a.tools {
		r.surface.AddTool(t)
	}
	for d := range a.decisions {
		r.surface.AddDecision(d)
	}
	if a.crowded {
		r.reasons = append(r.reasons, schema.Reason{
			Subject: "surface", Code: "too_many_names", Message: fmt.Sprintf("only the first %d tools and decisions are in the capability surface", maxNames),
		})
	}
}

// unheard is what is wrong with what the agent told: evidence that was to be
// kept and is not.
func (r *run) unheard() error {
	if r.agentSide == nil {
		return nil
	}
	return r.agentSide.accused
}

// correlation says which kernel events belong to which tool call.
func (r *run) correlation() *schema.CorrelationReport {
	f := binding.Facts{
		RunID: r.spec.RunID, Correlation: r.cgroupCorrelation(), Observed: r.kernelAccount.Report != nil,
		KernelLines: r.opt.Recorder.Counts(schema.KernelPath).Written, PolicyLines: r.opt.Recorder.Counts(schema.PolicyPath).Written,
	}
	if r.agentSide == nil {
		return binding.New(binding.Options{}).Report(f)
	}
	return r.agentSide.correlator.Report(f)
}

// agentHealth says what is there of the layers that the agent writes. What was
// in its logs and not taken in is dropped.
func (r *run) agentHealth(h *schema.ObservationHealth) {
	if r.agentSide != nil {
		for name, n := range r.agentSide.refused {
			c := h.Layers[name]
			c.Seen, c.Dropped = c.Seen+n, c.Dropped+n
			h.Layers[name] = c
		}
	}
	if n := h.Layers[schema.LayerName(schema.PolicyPath)].Written; n > 0 {
		h.PolicyLayer = schema.Present
		h.Notes = append(h.Notes, fmt.Sprintf("s4_policy_capture: policy_events=%d", n))
	}
	if n := h.Layers[schema.LayerName(schema.SDKPath)].Written; n > 0 {
		h.SDKLayer = schema.SelfReported
		h.Notes = append(h.Notes, fmt.Sprintf("s5_sdk_capture: sdk_events=%d sdk_tool_calls=%d", n, r.agentSide.correlator.SDKCalls()))
	}
}
