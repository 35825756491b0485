package runner

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
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
	log      *evidence.Log
	profile  *sandbox.Profile // nil: nothing is denied
	onDenied func(target, remedy string)

	mu       sync.Mutex        // guards what follows
	told     map[string]uint64 // how often, by key
	refusals map[string]bool   // targets of connections that onDenied knows
	// of cgroup programs, by call and address; the kernel layer may have them too
	pending  map[string]schema.PolicyEvent
	untold   uint64 // denials of those programs that nobody read
	unread   uint64 // refusals by Landlock without a record from the host's audit
	unsure   bool   // the host's audit lost records, of which some may be such refusals
	repeated uint64
	dropped  uint64
	err      error
}

func newDenials(log *evidence.Log, onDenied func(target, remedy string)) *denials {
	if onDenied == nil {
		onDenied = func(string, string) {}
	}
	return &denials{log: log, onDenied: onDenied, told: map[string]uint64{}, refusals: map[string]bool{},
		pending: map[string]schema.PolicyEvent{}}
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

// convertible reports whether a kind of event says no more than the blocked ones do.
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

// decided records the proxy's decisions: all of them are lines, those that
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

// enforce has the events looked at that a profile denies.
func (d *denials) enforce(p *sandbox.Profile) { d.profile = p }

// blocked records denials by programs on the cgroup. The kernel layer, where
// there is one, sees the same calls and knows whose they are: then only what it
// missed is written, at the end.
func (d *denials) blocked(b sandbox.Blocked, observed bool) {
	at := netip.AddrPortFrom(b.Addr.Addr().Unmap(), b.Addr.Port()).String()
	e := schema.PolicyEvent{
		SourceEventType: schema.KindConnectBlocked.String(), Source: "sandbox", Decision: "deny",
		TNS: int64(b.Time) - int64(d.log.Start()), Rule: sandbox.RuleNetworkMode, Operation: b.Op, Target: at,
	}
	if !observed {
		d.tell(e)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch _, seen := d.pending[e.Operation+at]; {
	case seen:
	case len(d.pending) < maxDenials:
		d.pending[e.Operation+at] = e
	default:
		d.dropped++
	}
}

// refused adds at the end what Landlock refused, as the host's audit reports it. The
// kernel layer has already reported most of it.
func (d *denials) refused(list []sandbox.Refusal, lost uint64, unsure bool) {
	d.mu.Lock()
	d.unread, d.unsure = lost, unsure
	seen := map[string]bool{}
	for key := range d.told {
		target := strings.Split(key, keySeparator)[4]
		seen[target] = true
		seen[path.Dir(target)+"/"] = true
	}
	d.mu.Unlock()
	for _, r := range list {
		if seen[r.Target] {
			continue
		}
		rule, denied := d.profile.Denies(r.Attempt)
		if !denied {
			rule = sandbox.RuleMode
		}
		d.tell(schema.PolicyEvent{
			SourceEventType: blockedAs(r.Op), Source: "sandbox", Decision: "deny",
			TNS: int64(r.Time) - int64(d.log.Start()), Rule: rule, Operation: r.Op, Target: r.Target,
		})
	}
}

// blockedAs is the type of the event for a denied operation.
func blockedAs(op string) string {
	switch op {
	case sandbox.OpConnect, sandbox.OpBind:
		return schema.KindConnectBlocked.String()
	case sandbox.OpSignal, sandbox.OpPtrace:
		return "process_blocked"
	}
	return schema.KindFileBlocked.String()
}

// settle writes what cgroup programs denied and the kernel layer did not tell.
func (d *denials) settle(untold uint64) {
	d.mu.Lock()
	d.untold = untold
	for key := range d.told {
		f := strings.Split(key, keySeparator)
		delete(d.pending, f[2]+f[4])
	}
	rest := slices.SortedFunc(maps.Values(d.pending), func(a, b schema.PolicyEvent) int {
		return cmp.Compare(a.TNS, b.TNS)
	})
	d.mu.Unlock()
	for _, e := range rest {
		d.tell(e)
	}
}

// nameCache is how the name of the socket ends that the C library asks before it looks
// up any user or host: a denial hinders nobody.
const nameCache = "/nscd/socket"

// keySeparator is between the parts of a key of told: event type, decision,
// operation, rule, target and tool call.
const keySeparator = "\x00"

func (d *denials) tell(e schema.PolicyEvent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := strings.Join([]string{e.SourceEventType, e.Decision, e.Operation, e.Rule, e.Target, e.ToolCallID},
		keySeparator)
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
	if e.Decision == "deny" && e.Operation == sandbox.OpConnect && !d.refusals[e.Target] &&
		!strings.HasSuffix(e.Target, nameCache) {
		d.refusals[e.Target] = true
		d.onDenied(e.Target, d.profile.Allowing(e.Target, e.Rule))
	}
	e.Schema, e.RunID = schema.PolicyEventV0, d.log.RunID
	if err := d.log.Append(schema.PolicyPath, func(seq uint64) any {
		e.Seq = seq
		return &e
	}); err != nil && d.err == nil {
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
			Subject: "sandbox", Code: "denials_unobserved",
			Message: "without a kernel layer, the bundle records only the denials of the sandbox's proxy, those of " +
				"its layer cgroup_bpf, and Landlock's if the host's auditing is on",
			Remedy: "run assay-run doctor, and provide what it says is missing",
		})
	}
	if d.untold > 0 {
		list = append(list, schema.Reason{
			Subject: "sandbox", Code: "denials_counted",
			Message: fmt.Sprintf("%d denied connections, sends and binds came too fast to record; only this "+
				"number shows them", d.untold),
		})
	}
	if d.unread > 0 {
		list = append(list, schema.Reason{
			Subject: "sandbox", Code: "denials_unread",
			Message: fmt.Sprintf("Landlock refused %d accesses for which assay-run got no record from the host's "+
				"audit; only this number shows them", d.unread),
		})
	} else if d.unsure {
		list = append(list, schema.Reason{
			Subject: "sandbox", Code: "denials_unread",
			Message: "the host's audit lost records during the run; the bundle may lack accesses that Landlock refused",
			Remedy:  "raise the audit's limits with auditctl -b and auditctl -r",
		})
	}
	if d.dropped > 0 {
		list = append(list, schema.Reason{
			Subject: "sandbox", Code: "denials_dropped",
			Message: fmt.Sprintf("%d denials after the first %d are not in the policy layer; the kernel layer has them",
				d.dropped, maxDenials),
			Remedy: "read them with assay-run events --layer kernel",
		})
	}
	return list
}
