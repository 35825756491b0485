package runner

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/schema"
)

// agentSide is what the agent tells about itself: its logs, and its tool calls
// as far as they ask for cgroups.
type agentSide struct {
	run        *run
	correlator *binding.Correlator
	sdk        *agentlog.Follower // nil without a log
	policy     *agentlog.Follower
	calls      *callServer // nil where there are no cgroups for them

	// Of the followers' goroutines, until they are closed.
	due              uint64 // seq of the SDK's next line
	resync           bool   // lines were refused, so seq may jump
	sdkErr, policErr error  // the first failure to record a line

	mu               sync.Mutex // guards what follows
	tools, decisions map[string]bool
	crowded          bool // more of them than are kept

	closed  bool
	accused error // what is wrong with the logs
}

// maxNames bounds the tools, and the decisions, of the capability surface.
const maxNames = 10_000

// openAgent starts to follow the logs and to listen for tool calls.
func (r *run) openAgent() error {
	a := &agentSide{run: r, correlator: binding.New(binding.Options{}), tools: map[string]bool{}, decisions: map[string]bool{}}
	r.agentSide = a
	sdkPath, err := absLog(r.spec.SDKEventLog)
	if err != nil {
		return sandboxError("sdk_event_log_unusable", err)
	}
	policyPath, err := absLog(r.spec.PolicyDecisionLog)
	if err != nil {
		return sandboxError("policy_decision_log_unusable", err)
	}
	socket := callSocket()
	o := binding.Options{Own: slices.Concat([]string{"unix:" + socket}, realPath(sdkPath), realPath(policyPath))}
	if sdkPath != "" || policyPath != "" {
		o.Known = a.known
	}
	a.correlator = binding.New(o)
	if m := r.opt.Host.Mode(); m == cgroup.Unified || m == cgroup.Hybrid {
		if a.calls, err = newCallServer(socket, r.agent, a.correlator); err != nil {
			r.reasons = append(r.reasons, schema.Reason{
				Subject: "binding", Code: "no_call_cgroups", Message: err.Error(), Remedy: "tool calls are told by their environment instead",
			})
		}
	}
	if sdkPath != "" {
		if a.sdk, err = agentlog.Follow(agentlog.Options{Path: sdkPath, Now: r.now, Line: a.sdkLine, Restart: a.restart, Old: true, Precise: a.correlator.Open}); err != nil {
			return logError("sdk_event_log_unusable", err)
		}
	}
	if policyPath != "" {
		var precise func() bool
		if a.sdk == nil { // else decisions do not begin or end anything
			precise = a.correlator.Open
		}
		if a.policy, err = agentlog.Follow(agentlog.Options{Path: policyPath, Now: r.now, Line: a.decision, Restart: func() {}, Precise: precise}); err != nil {
			return logError("policy_decision_log_unusable", err)
		}
	}
	return nil
}

// realPath is a log's path as the kernel has it.
func realPath(path string) []string {
	if path == "" {
		return nil
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return []string{path}
}

func logError(code string, err error) *runError {
	return &runError{source: schema.SourceRunner, exit: ExitRunner, ResultError: schema.ResultError{
		Code: code, Message: "follow the log: " + err.Error(), Hint: "the log's directory must exist before the command starts",
	}}
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
		env = append(env, envPolicyLog+"="+path)
	}
	if a.calls != nil {
		env = append(env, EnvCallSocket+"="+a.calls.addr())
	}
	return env
}

// known reads the logs up to t.
func (a *agentSide) known(t int64) bool {
	sdk := a.sdk == nil || a.sdk.Known(t)
	policy := a.policy == nil || a.policy.Known(t)
	return sdk && policy
}

// restart is told that the SDK's log begins anew, as its numbers then may.
func (a *agentSide) restart() { a.due, a.resync = 0, true }

// sdkLine takes in a line of the SDK's log.
func (a *agentSide) sdkLine(line []byte, _ int, at agentlog.Arrival) error {
	var e schema.SDKEvent
	if err := agentlog.DecodeSDK(line, a.run.spec.RunID, &e); err != nil {
		a.resync = true
		return err
	}
	var gap error
	switch {
	case e.Seq < a.due:
		return fmt.Errorf("seq is %d, which was there before: %d is due", e.Seq, a.due)
	case e.Seq > a.due && !a.resync:
		gap = fmt.Errorf("seq is %d: %d is due, so lines are missing before this one, which was kept", e.Seq, a.due)
	}
	a.due, a.resync = e.Seq+1, false
	e.TNS = at.At
	if err := a.append(schema.SDKPath, func(seq uint64) any { e.Seq = seq; return &e }); err != nil && a.sdkErr == nil {
		a.sdkErr = err
	}
	a.correlator.SDK(&e, at)
	return gap
}

// decision takes in a line of the policy's log.
func (a *agentSide) decision(line []byte, _ int, at agentlog.Arrival) error {
	var e schema.PolicyEvent
	if err := agentlog.DecodeDecision(line, a.run.spec.RunID, &e); err != nil {
		return err
	}
	e.TNS = at.At
	if err := a.append(schema.PolicyPath, func(seq uint64) any { e.Seq = seq; return &e }); err != nil && a.policErr == nil {
		a.policErr = err
	}
	a.decided(&e, at)
	return nil
}

func (a *agentSide) decided(e *schema.PolicyEvent, at agentlog.Arrival) {
	a.name(a.tools, e.Tool)
	a.name(a.decisions, e.Decision+":"+e.Tool)
	a.correlator.Decision(e, at)
}

// CallDecided, CallStarted and CallEnded make it a [gateway.Observer].
func (a *agentSide) CallDecided(id, tool, decision string, at time.Duration) {
	a.decided(&schema.PolicyEvent{ToolCallID: id, Tool: tool, Decision: decision}, agentlog.Arrival{After: int64(at), At: int64(at)})
}

func (a *agentSide) CallStarted(id, tool string, at time.Duration) {
	a.correlator.Begin(id, tool, int64(at))
}

func (a *agentSide) CallEnded(id string, at time.Duration) { a.correlator.End(id, int64(at)) }

func (a *agentSide) name(set map[string]bool, s string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(set) < maxNames {
		set[s] = true
	} else if !set[s] {
		a.crowded = true
	}
}

func (a *agentSide) append(layer string, stamp func(seq uint64) any) error {
	return a.run.opt.Recorder.Append(layer, func(dst []byte, seq uint64) []byte {
		line, err := schema.Line(stamp(seq))
		if err != nil {
			panic("encode line: " + err.Error()) // plain data always encodes
		}
		return append(dst, line[:len(line)-1]...)
	})
}

// endAgent takes in the rest of the logs, once nothing of the run is left and
// the kernel layer has seen its last event.
func (r *run) endAgent() {
	a := r.agentSide
	if a == nil || a.closed {
		return
	}
	a.closed = true
	if a.calls != nil {
		a.calls.close()
	}
	a.endLog(a.sdk, "sdk", "sdk event log", a.sdkErr)
	a.endLog(a.policy, "policy", "policy decision log", a.policErr)
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

// endLog closes a log and tells what is wrong with it. unwritten is why lines
// of it could not be recorded.
func (a *agentSide) endLog(f *agentlog.Follower, subject, name string, unwritten error) {
	if f == nil {
		return
	}
	account := f.Close()
	for _, p := range account.Problems {
		a.run.reasons = append(a.run.reasons, schema.Reason{
			Subject: subject, Code: subject + "_log_" + p.Code, Message: p.Error(), Remedy: remedies[p.Code],
		})
	}
	if account.More > 0 {
		a.run.reasons = append(a.run.reasons, schema.Reason{
			Subject: subject, Code: subject + "_log_more", Message: fmt.Sprintf("and %d more problems; %d of %d lines had one", account.More, account.Bad, account.Lines),
		})
	}
	if account.Wrong() {
		first, others := account.Problems[0], len(account.Problems)-1+int(account.More)
		for _, p := range account.Problems {
			if p.Code == agentlog.CodeLine {
				first = p
				break
			}
		}
		err := fmt.Errorf("%s: %w", name, first)
		if others > 0 {
			err = fmt.Errorf("%w (and %d more)", err, others)
		}
		a.accused = errors.Join(a.accused, err)
	}
	if unwritten != nil {
		a.accused = errors.Join(a.accused, fmt.Errorf("record the %s: %w", name, unwritten))
	}
}

var remedies = map[string]string{
	agentlog.CodeMissing:   "let the command write it: its path is in the command's environment",
	agentlog.CodeStale:     "remove it before the run",
	agentlog.CodeNotFile:   "name a path where the command makes a regular file",
	agentlog.CodeTruncated: "let the command only append to it",
	agentlog.CodeReplaced:  "let the command only append to it",
}

// unheard is what is wrong with the logs: evidence that was to be kept and is
// not.
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

// agentHealth says what is there of the layers that the agent writes.
func (r *run) agentHealth(h *schema.ObservationHealth) {
	if n := h.Layers[schema.LayerName(schema.PolicyPath)].Written; n > 0 {
		h.PolicyLayer = schema.Present
		h.Notes = append(h.Notes, fmt.Sprintf("s4_policy_capture: policy_events=%d", n))
	}
	if n := h.Layers[schema.LayerName(schema.SDKPath)].Written; n > 0 {
		h.SDKLayer = schema.SelfReported
		h.Notes = append(h.Notes, fmt.Sprintf("s5_sdk_capture: sdk_events=%d sdk_tool_calls=%d", n, r.agentSide.correlator.SDKCalls()))
	}
}
