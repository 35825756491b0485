package binding

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// Facts are what the report needs to know of the run.
type Facts struct {
	RunID string
	// Correlation is observation-health.json's cgroup_correlation: the report
	// claims no more.
	Correlation string
	// KernelLines and PolicyLines are how many lines the layers have.
	KernelLines, PolicyLines uint64
	// Observed tells that there is a kernel layer.
	Observed bool
}

// SDKCalls is how many calls the SDK's log named.
func (c *Correlator) SDKCalls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sdkCalls
}

// Report makes correlation-report.json, once everything has been handed in.
func (c *Correlator) Report(f Facts) *schema.CorrelationReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.judgeDeferred()
	r := &schema.CorrelationReport{
		Schema: schema.CorrelationReportV0, RunID: f.RunID, Status: cmp.Or(f.Correlation, schema.Partial),
		Bindings: []schema.Binding{}, Ambiguities: []string{},
	}
	if len(c.order) == 0 && c.lost == 0 {
		return r // nothing was reported, so nothing can differ from it
	}
	r.Events = make(map[string]uint64)
	for i, n := range c.counts {
		if n > 0 {
			r.Events[countNames[i]] = n
		}
	}
	for _, k := range c.order {
		r.Bindings = append(r.Bindings, k.binding())
		c.compare(k, f, r)
	}
	if c.overlap.effects.some() || c.overlap.events > 0 && c.unresolved() {
		r.ObservedNotReported = append(r.ObservedNotReported, c.overlap.list("overlap"))
	}
	if c.between.effects.some() {
		r.ObservedNotReported = append(r.ObservedNotReported, c.between.list("edge"))
	}
	if c.outsideEffects.some() {
		r.ObservedNotReported = append(r.ObservedNotReported, schema.Unreported{
			Code: "outside", KernelEventCount: c.counts[notAny], Effects: c.outsideEffects.list(),
		})
	}
	r.Ambiguities = append(r.Ambiguities, c.ambiguities(f)...)
	if len(r.Ambiguities) > 0 && r.Status == schema.Clean {
		r.Status = schema.Partial
	}
	return r
}

func (g *group) list(code string) schema.Unreported {
	return schema.Unreported{Code: code, ToolCallIDs: g.calls, KernelEventCount: g.events, Effects: g.effects.list()}
}

// compare lists where the reports about a call and its events disagree.
func (c *Correlator) compare(k *call, f Facts, r *schema.CorrelationReport) {
	unreported := func(code string, n uint64, e schema.Effects) {
		r.ObservedNotReported = append(r.ObservedNotReported, schema.Unreported{
			Code: code, ToolCallIDs: []string{k.id}, Tool: k.tool, KernelEventCount: n, Effects: e,
		})
	}
	if k.reported() && k.ran() && k.events() == 0 {
		code := "no_events"
		switch {
		case !f.Observed:
			code = "no_kernel_layer"
		case k.overlap > 0:
			code = "overlap"
		case k.edge > 0:
			code = "edge"
		}
		r.ReportedNotObserved = append(r.ReportedNotObserved,
			schema.Unobserved{ToolCallID: k.id, Tool: k.tool, Code: code})
	}
	if e, yes := k.beyondClaim(); yes {
		unreported("beyond_claim", k.events(), e)
	}
	if n := k.stronger(); n > 0 && (k.denied || !k.reported() && c.heard) {
		code := "unknown_call"
		if k.denied {
			code = "denied_call"
		}
		all := k.effects.list()
		all.Files = nil
		unreported(code, n, all)
	}
	if k.edgeEffects.some() {
		unreported("edge", k.edge, k.edgeEffects.list())
	}
}

// unresolved tells whether a call has nothing but overlaps.
func (c *Correlator) unresolved() bool {
	return slices.ContainsFunc(c.order, func(k *call) bool { return k.overlap > 0 && k.events() == 0 && !k.denied })
}

// maxPerCode bounds how many calls are named with the same code.
const maxPerCode = 100

func (c *Correlator) ambiguities(f Facts) []string {
	var out []string
	if f.PolicyLines > 0 && f.KernelLines == 0 {
		out = append(out, schema.AmbiguousPolicyWithoutKernel)
	}
	policy, left := 0, false
	for _, k := range c.order {
		if k.policy {
			policy++
			left = left || k.overlap > 0 && k.events() == 0 && !k.denied
		}
	}
	if policy > 1 && left {
		out = append(out, schema.AmbiguousSessionCgroup)
	}
	if c.unresolved() {
		out = append(out, schema.AmbiguousOverlap)
	}
	for _, a := range []struct {
		code string
		is   func(*call) bool
	}{
		{schema.AmbiguousSDKWithoutPolicy, func(k *call) bool { return k.sdk && !k.policy && f.PolicyLines > 0 }},
		{schema.AmbiguousNeverEnded, func(k *call) bool { return k.begun != 0 && !k.ended && !k.denied }},
		{schema.AmbiguousNeverStarted, func(k *call) bool { return k.orph }},
		{schema.AmbiguousTwice, func(k *call) bool { return k.twice }},
		{schema.AmbiguousConflict, func(k *call) bool { return k.conflict }},
	} {
		n := 0
		for _, k := range c.order {
			if !a.is(k) {
				continue
			}
			if n++; n <= maxPerCode {
				out = append(out, a.code+k.id)
			}
		}
		if n > maxPerCode {
			out = append(out, fmt.Sprintf("%s… and %d more", a.code, n-maxPerCode))
		}
	}
	if c.lost > 0 {
		out = append(out, schema.AmbiguousTooManyCalls)
	}
	return out
}
