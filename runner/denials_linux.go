package runner

import (
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// maxDenials bounds the lines of the policy layer that tell of denials: repeats
// of one are counted, not written, and so are those beyond.
const maxDenials = 10_000

// denials writes down what the sandbox denied. It is safe for concurrent use:
// kernel events and the proxy's decisions come from goroutines of their own.
type denials struct {
	log     *evidence.Log
	profile *sandbox.Profile // nil: nothing is denied

	mu       sync.Mutex // guards what follows
	told     map[string]uint64
	repeated uint64
	dropped  uint64
	err      error
}

func newDenials(log *evidence.Log) *denials {
	return &denials{log: log, told: map[string]uint64{}}
}

// event makes a file_blocked or connect_blocked of a kernel event that failed
// where the policy says that it must.
func (d *denials) event(e *schema.KernelEvent) {
	if d.profile == nil || !e.HasResult || e.Result >= 0 || e.Class == schema.ClassRunner {
		return
	}
	for _, a := range attempts(e) {
		rule, denied := d.profile.Denies(a)
		if !denied {
			continue
		}
		source := schema.KindFileBlocked
		if a.Op == sandbox.OpConnect || a.Op == sandbox.OpBind {
			source = schema.KindConnectBlocked
		}
		e.RuleID = d.profile.RuleID(rule)
		if convertible(e.Kind) {
			e.Kind = source
		}
		d.tell(schema.PolicyEvent{
			SourceEventType: source.String(), Source: "sandbox", ToolCallID: e.ToolCallID, Decision: "deny",
			TNS: e.TNS, Rule: rule, Operation: a.Op, Target: a.Target,
		})
		return
	}
}

// convertible are kinds of events that say no more than the blocked ones do.
func convertible(k schema.KernelKind) bool {
	switch k {
	case schema.KindOpen, schema.KindConnect, schema.KindExecFailed:
		return true
	}
	return false
}

// attempts are what a failed call was about.
func attempts(e *schema.KernelEvent) []sandbox.Attempt {
	errno := int(-e.Result)
	var list []sandbox.Attempt
	add := func(op, target string) {
		if target != "" {
			list = append(list, sandbox.Attempt{Op: op, Target: target, Errno: errno})
		}
	}
	switch e.Kind {
	case schema.KindExecFailed:
		add(sandbox.OpExec, e.Value)
		return list
	case schema.KindBind:
		add(sandbox.OpBind, e.Value)
		return list
	}
	for name, access := range e.Touches() {
		if access&schema.AccessModify != 0 {
			add(sandbox.OpWrite, name)
		}
		if access&schema.AccessRead != 0 {
			add(sandbox.OpRead, name)
		}
		if access&schema.AccessConnect != 0 {
			add(sandbox.OpConnect, name)
		}
	}
	return list
}

// decided is told of the proxy's decisions: all of them are lines, those that
// allow too.
func (d *denials) decided(p sandbox.Decision) {
	decision := "allow"
	if !p.Allowed {
		decision = "deny"
	}
	d.tell(schema.PolicyEvent{
		SourceEventType: "proxy_decision", Source: "sandbox", Decision: decision, TNS: d.log.Now(), Rule: p.Rule,
		Operation: sandbox.OpConnect, Target: net.JoinHostPort(p.Host, strconv.Itoa(p.Port)),
	})
}

func (d *denials) tell(e schema.PolicyEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := e.SourceEventType + "\x00" + e.Decision + "\x00" + e.Operation + "\x00" + e.Rule + "\x00" + e.Target + "\x00" + e.ToolCallID
	if n, seen := d.told[key]; seen {
		d.told[key] = n + 1
		d.repeated++
		return
	}
	if len(d.told) >= maxDenials {
		d.dropped++
		return
	}
	d.told[key] = 1
	e.Schema, e.RunID = schema.PolicyEventV0, d.log.RunID
	if err := d.log.Append(schema.PolicyPath, func(seq uint64) any { e.Seq = seq; return &e }); err != nil && d.err == nil {
		d.err = fmt.Errorf("record a denial: %w", err)
	}
}

func (d *denials) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// reasons say what of the denials nobody could see, or is not written out.
func (d *denials) reasons(observed bool) []schema.Reason {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []schema.Reason
	if d.profile == nil {
		return nil
	}
	if !observed {
		list = append(list, schema.Reason{
			Subject: "sandbox", Code: "denials_unobserved", Message: "without a kernel layer, the bundle records only the denials of the sandbox's proxy",
			Remedy: "give the host what assay-run doctor says it lacks",
		})
	}
	if d.dropped > 0 {
		list = append(list, schema.Reason{
			Subject: "sandbox", Code: "denials_dropped", Message: fmt.Sprintf("%d denials after the first %d are not in the policy layer; the kernel layer has them", d.dropped, maxDenials),
			Remedy: "read them with assay-run events --layer kernel",
		})
	}
	return list
}
