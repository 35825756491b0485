package archive

import (
	"math/big"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// health checks the rules of observation health.
func (v *verifier) health(f facts) {
	h := f.health
	rule := func(broken bool, format string, args ...any) {
		if broken {
			v.report.add(problem(CodeHealth, schema.HealthPath, format, args...))
		}
	}
	absent := h.KernelLayer == schema.Absent
	complete := h.KernelLayer == schema.Complete
	rule(h.RingbufDrops > 0 && h.KernelLayer != schema.PartialRingbufDrops, "%d ringbuf drops, and kernel_layer is %s", h.RingbufDrops, h.KernelLayer)
	rule(h.KernelState != "" && h.KernelState != schema.KernelState(h.KernelLayer), "kernel_state is %s, and kernel_layer is %s", h.KernelState, h.KernelLayer)
	rule(h.Platform != "linux" && !absent, "kernel_layer is %s on %s", h.KernelLayer, h.Platform)
	rule(absent && h.NetworkProtocolCoverage != schema.Absent, "kernel_layer is absent, and network_protocol_coverage is %s", h.NetworkProtocolCoverage)
	rule(absent && h.NetworkEndpointClaimScope != schema.NotApplicable, "kernel_layer is absent, and network_endpoint_claim_scope is %s", h.NetworkEndpointClaimScope)
	rule(absent && v.count(schema.KernelPath) > 0, "kernel_layer is absent, and the layer has %d lines", v.count(schema.KernelPath))
	rule(h.PolicyLayer == schema.Absent && v.count(schema.PolicyPath) > 0, "policy_layer is absent, and the layer has %d lines", v.count(schema.PolicyPath))
	rule(h.SDKLayer == schema.Absent && v.count(schema.SDKPath) > 0, "sdk_layer is absent, and the layer has %d lines", v.count(schema.SDKPath))
	if f.run != nil {
		rule(f.run.Platform != h.Platform, "platform is %s, %s says %s", h.Platform, schema.RunPath, f.run.Platform)
		rule(f.run.AgentShim == "none" && h.SDKLayer != schema.Absent, "the agent shim is none, and sdk_layer is %s", h.SDKLayer)
	}
	if f.result != nil {
		rule(f.result.Outcome == schema.OutcomeIncomplete && complete, "the run is incomplete, and kernel_layer is complete")
	}
	if c := f.correlation; c != nil {
		rule(h.CgroupCorrelation != schema.Clean && c.Status == schema.Clean, "cgroup_correlation is %s, and %s says clean", h.CgroupCorrelation, schema.CorrelationPath)
		rule(len(c.Ambiguities) > 0 && c.Status == schema.Clean, "%s is clean, and has %d ambiguities", schema.CorrelationPath, len(c.Ambiguities))
	}
	if !complete {
		return
	}
	for _, k := range h.Hooks {
		rule(k.Required && !(k.Attached && k.SelfTested), "kernel_layer is complete, and the required hook %.100q was not attached and self-tested", k.Name)
		rule(max(k.Dropped, k.FailedReads, k.RecursionMisses) > 0, "kernel_layer is complete, and the hook %.100q lost something", k.Name)
	}
	if c, ok := h.Layers[schema.LayerName(schema.KernelPath)]; ok {
		rule(c.Dropped > 0, "kernel_layer is complete, and %d of its events were dropped", c.Dropped)
	}
	if k := h.Kernel; k != nil {
		rule(max(k.Dropped, k.Malformed) > 0, "kernel_layer is complete, and %d of its events were dropped, %d malformed", k.Dropped, k.Malformed)
		rule(k.Forks != k.Exits, "kernel_layer is complete, and %d forks are not matched by %d exits", k.Forks, k.Exits)
		rule(k.LeftCgroup > 0, "kernel_layer is complete, and %d processes left the cgroup", k.LeftCgroup)
	}
}

// counts checks that nothing is lost without being counted.
func (v *verifier) counts(h *schema.ObservationHealth) {
	equal := func(what string, a *big.Int, is string, b *big.Int) {
		if a.Cmp(b) != 0 {
			v.report.add(problem(CodeCounts, schema.HealthPath, "%s is %d, %s is %d", what, a, is, b))
		}
	}
	if h.Layers != nil {
		for _, path := range schema.Layers {
			name := schema.LayerName(path)
			c, ok := h.Layers[name]
			if !ok {
				v.report.add(problem(CodeCounts, schema.HealthPath, "layers has no account of %s", name))
				continue
			}
			equal(name+".seen", sum(c.Seen), "written + coalesced + filtered + dropped", sum(c.Written, c.Coalesced, c.Filtered, c.Dropped))
			equal(name+".written", sum(c.Written), "the number of its lines", sum(v.count(path)))
		}
		for name := range h.Layers {
			if !slices.ContainsFunc(schema.Layers, func(p string) bool { return schema.LayerName(p) == name }) {
				v.report.add(problem(CodeCounts, schema.HealthPath, "layers accounts for %.100q, which is not a layer", name))
			}
		}
	}
	var emitted []uint64
	for _, hook := range h.Hooks {
		equal("seen of hook "+hook.Name, sum(hook.Seen), "filtered + coalesced + emitted + dropped", sum(hook.Filtered, hook.Coalesced, hook.Emitted, hook.Dropped))
		emitted = append(emitted, hook.Emitted)
	}
	k := h.Kernel
	if k == nil {
		return
	}
	equal("kernel.emitted", sum(k.Emitted), "the sum over the hooks", sum(emitted...))
	equal("kernel.received", sum(k.Received), "kernel.emitted", sum(k.Emitted))
	equal("kernel.received", sum(k.Received), "decoded + malformed", sum(k.Decoded, k.Malformed))
	equal("kernel.decoded + drained + added", sum(k.Decoded, k.Drained, k.Added), "written + filtered + coalesced + dropped + parts + self_test",
		sum(k.Written, k.Filtered, k.Coalesced, k.Dropped, k.Parts, k.SelfTest))
	equal("kernel.written", sum(k.Written), "the number of the layer's lines", sum(v.count(schema.KernelPath)))
}

// sum does not wrap around: counts that are nearly 2^64 would hide each other.
func sum(counts ...uint64) *big.Int {
	total := new(big.Int)
	for _, n := range counts {
		total.Add(total, new(big.Int).SetUint64(n))
	}
	return total
}
