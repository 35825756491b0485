package runner

import (
	"context"
	"os/exec"
	"sync"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/runner/binding"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/rundir"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
)

// agentSide is what the agent tells about itself, in its logs and through the
// gateway.
type agentSide struct {
	log     *evidence.Log
	calls   *evidence.Calls
	session *containment
	inside  *confinement
	access  access
	sdkLog  string // as the spec has it; empty for none
	polLog  string
	shim    string // which the spec says writes sdkLog

	sdk     *agentlog.Follower // nil without a log
	policy  *agentlog.Follower
	gateway *gateway.Gateway // nil where it cannot listen
	socket  string           // where it listens

	socketDir *rundir.Dir // of the socket, where it is for another user

	// Of the followers' goroutines, until they are closed.
	due              uint64   // seq of the SDK's next line
	resync           bool     // lines were refused, so seq may jump
	sdkErr, policErr error    // the first failure to record a line
	kept             uint64   // lines of the SDK that have something wrong
	strangers        []string // sdk_names of its lines that are not the shim's, the first ones

	mu       sync.Mutex // guards warnings, which the gateway's goroutines add
	warnings []string

	refused map[string]uint64 // lines that were not taken in, by layer
	reasons []schema.Reason
	missing error // what is wrong with what it told, or could not be kept of it
}

// access says how the agent may use the gateway.
type access struct {
	policyFile string       // to read the rules from, when they are nil
	rules      *policy.File // nil without a policy
	websocket  bool
	turns      gateway.Turns
	turnsFile  string
	audit      []AuditSink
	mode       cgroup.Mode
}

func newAgentSide(log *evidence.Log, opt Options, spec *Spec, session *containment, inside *confinement) *agentSide {
	a := &agentSide{
		log: log, session: session, inside: inside, sdkLog: spec.SDKEventLog, polLog: spec.PolicyDecisionLog, shim: spec.AgentShim,
		access: access{
			policyFile: spec.Policy, rules: opt.Policy, websocket: spec.Gateway == GatewayWS,
			turns: spec.Turns.Gateway(), turnsFile: opt.TurnsFile, audit: opt.Audit, mode: opt.Contained.host().Mode(),
		},
	}
	known := binding.Options{}
	if a.sdkLog != "" || a.polLog != "" {
		known = binding.Options{Known: a.known, SDK: a.sdkLog != ""}
	}
	a.calls = evidence.NewCalls(log, known)
	return a
}

// open lets the agent tell about itself.
func (a *agentSide) open(context.Context) error {
	if err := a.openGateway(); err != nil {
		return err
	}
	return a.followLogs()
}

// shape tells the agent where to report.
func (a *agentSide) shape(cmd *exec.Cmd) error {
	if a.sdk != nil {
		path, _ := absLog(a.sdkLog) // it worked before
		cmd.Env = append(cmd.Env, envSDKLog+"="+path, envSDKSchema+"="+schema.SDKEventV0)
	}
	if a.policy != nil {
		path, _ := absLog(a.polLog)
		cmd.Env = append(cmd.Env, EnvDecisionLog+"="+path)
	}
	if a.gateway != nil {
		cmd.Env = append(cmd.Env, a.gateway.Env()...)
	}
	return nil
}

// reach are the files that the agent reports to.
func (a *agentSide) reach() []string {
	var paths []string
	for _, log := range []struct {
		follower *agentlog.Follower
		path     string
	}{{a.sdk, a.sdkLog}, {a.policy, a.polLog}} {
		if log.follower != nil {
			path, _ := absLog(log.path)
			paths = append(paths, path)
		}
	}
	if a.socket != "" {
		paths = append(paths, a.socket)
	}
	return paths
}

// rules are those in force, with what clients added.
func (a *agentSide) rules() (schema.Policy, bool) {
	if a.gateway == nil {
		return schema.Policy{}, false
	}
	return a.gateway.Policy()
}

// close reads the rest of what the agent reported, once nothing of the run is
// left and the kernel layer has seen its last event.
func (a *agentSide) close(*schema.Result) error {
	a.closeGateway()
	a.refused = map[string]uint64{
		"sdk":    a.endLog(a.sdk, "sdk", "sdk event log", a.sdkErr),
		"policy": a.endLog(a.policy, "policy", "policy decision log", a.policErr),
	}
	a.borrowed()
	if a.gateway != nil && a.gateway.Cut() > 0 {
		a.reasons = append(a.reasons, schema.CutReason(a.gateway.Cut()))
	}
	a.refused["sdk"] -= min(a.kept, a.refused["sdk"])
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.warnings {
		reason := schema.Reason{Subject: "gateway", Code: "gateway_warning", Message: w}
		a.reasons = append(a.reasons, reason)
		a.log.Lose(reason)
	}
	return a.missing
}

// health counts what was in the agent's logs and not taken in as dropped.
func (a *agentSide) health(h *schema.ObservationHealth) {
	h.Reasons = append(h.Reasons, a.reasons...)
	for name, n := range a.refused {
		c := h.Layers[name]
		c.Seen, c.Dropped = c.Seen+n, c.Dropped+n
		h.Layers[name] = c
	}
}
