package binding

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// Facts are what the report needs to know about the run.
type Facts struct {
	RunID string
	// Correlation is cgroup_correlation from observation-health.json. The report claims no more than that.
	Correlation string
	// KernelLines counts the lines of the kernel layer.
	KernelLines uint64
	// Observed means that there is a kernel layer.
	Observed bool
}

// report makes correlation-report.json of what is known when the run is over.
type report struct {
	facts Facts
	calls *calls
	tally *tally
	// heard: calls are reported in this run. decisions: decisions are made about them.
	heard, decisions bool
	out              *schema.CorrelationReport
}

func newReport(f Facts, calls *calls, tally *tally, heard, decisions bool) *report {
	return &report{facts: f, calls: calls, tally: tally, heard: heard, decisions: decisions,
		out: &schema.CorrelationReport{
			Schema: schema.CorrelationReportV0, RunID: f.RunID, Status: cmp.Or(f.Correlation, schema.Partial),
			Bindings: []schema.Binding{}, Ambiguities: []string{},
		}}
}

// fill adds what was bound, where reports and events differ, and what is ambiguous.
func (r *report) fill() {
	if len(r.calls.order) == 0 && r.calls.lost == 0 {
		return // nothing was reported, so nothing can differ
	}
	r.out.Events = r.tally.byName()
	for _, k := range r.calls.order {
		if k.moved && k.events() == 0 {
			continue
		}
		k.failed = k.failed || k.proposal != nil && k.proposal.failed
		r.out.Bindings = append(r.out.Bindings, k.binding())
		r.compare(k)
	}
	t := r.tally
	if t.overlap.effects.some() || t.overlap.events > 0 && r.unresolved() {
		r.out.ObservedNotReported = append(r.out.ObservedNotReported, t.overlap.list("overlap"))
	}
	if t.between.effects.some() {
		r.out.ObservedNotReported = append(r.out.ObservedNotReported, t.between.list("edge"))
	}
	if t.outside.some() {
		r.out.ObservedNotReported = append(r.out.ObservedNotReported, schema.Unreported{
			Code: "outside", KernelEventCount: t.counts[notAny], Effects: t.outside.list(),
		})
	}
	r.out.Ambiguities = append(r.out.Ambiguities, r.ambiguities()...)
	if len(r.out.Ambiguities) > 0 && r.out.Status == schema.Clean {
		r.out.Status = schema.Partial
	}
}

// compare lists where a call's reports and its events disagree.
func (r *report) compare(k *call) {
	unreported := func(code string, n uint64, e schema.Effects) {
		r.out.ObservedNotReported = append(r.out.ObservedNotReported, schema.Unreported{
			Code: code, ToolCallIDs: []string{k.id}, Tool: k.tool, KernelEventCount: n, Effects: e,
		})
	}
	if k.reported() && k.ran() && k.events() == 0 {
		code := "no_events"
		switch {
		case !r.facts.Observed:
			code = "no_kernel_layer"
		case k.overlap > 0:
			code = "overlap"
		case k.edge > 0:
			code = "edge"
		}
		r.out.ReportedNotObserved = append(r.out.ReportedNotObserved,
			schema.Unobserved{ToolCallID: k.id, Tool: k.tool, Code: code})
	}
	if e, yes := k.beyondClaim(); yes {
		unreported("beyond_claim", k.events(), e)
	}
	if n := k.stronger(); n > 0 && (k.denied || !k.reported() && !k.proposed && r.heard) {
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

// unresolved reports whether all events of a call overlap with others.
func (r *report) unresolved() bool {
	return slices.ContainsFunc(r.calls.order, func(k *call) bool {
		return k.overlap > 0 && k.events() == 0 && !k.denied
	})
}

// maxPerCode limits how many calls are named with the same code.
const maxPerCode = 100

func (r *report) ambiguities() []string {
	var out []string
	policy, left := 0, false
	for _, k := range r.calls.order {
		if k.policy {
			policy++
			left = left || k.overlap > 0 && k.events() == 0 && !k.denied
		}
	}
	if r.decisions && r.facts.KernelLines == 0 {
		out = append(out, schema.AmbiguousPolicyWithoutKernel)
	}
	if policy > 1 && left {
		out = append(out, schema.AmbiguousSessionCgroup)
	}
	if r.unresolved() {
		out = append(out, schema.AmbiguousOverlap)
	}
	for _, a := range []struct {
		code string
		is   func(*call) bool
	}{
		{schema.AmbiguousSDKWithoutPolicy, func(k *call) bool { return k.sdk && !k.policy && r.decisions }},
		{schema.AmbiguousNeverEnded, func(k *call) bool { return k.begun&^byModel != 0 && !k.ended && !k.denied }},
		{schema.AmbiguousNeverStarted, func(k *call) bool { return k.orph }},
		{schema.AmbiguousTwice, func(k *call) bool { return k.twice }},
		{schema.AmbiguousConflict, func(k *call) bool { return k.conflict }},
	} {
		n := 0
		for _, k := range r.calls.order {
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
	if r.calls.lost > 0 {
		out = append(out, schema.AmbiguousTooManyCalls)
	}
	return out
}
