package judge

import (
	"maps"
	"slices"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// capabilityDiffV0 is the schema of a [Capability].
const capabilityDiffV0 = "assay.runner.capability_diff.v0"

// Capability is a capability_diff.v0: the values of the capability surface that only one of two runs has. It compares
// the documents of the two bundles and judges nothing.
type Capability struct {
	Schema        string         `json:"schema"`
	BaseRunID     string         `json:"base_run_id"`
	HeadRunID     string         `json:"head_run_id"`
	Status        string         `json:"status"` // clean, partial:health, partial:correlation
	Preconditions preconditions  `json:"preconditions"`
	Scope         scope          `json:"scope"`
	Surface       surfaceSets    `json:"surface"`
	BindingIDs    Sets           `json:"binding_ids"`
	Policy        policyOutcomes `json:"policy_outcomes"`
	// Unbound is empty in v0, since a surface belongs to the whole run.
	Unbound     unbound  `json:"unbound"`
	Ambiguities []string `json:"ambiguities"`
	Notes       []string `json:"notes"`
}

// preconditions say why a diff is clean or not.
type preconditions struct {
	BaseHealthClean      bool `json:"base_health_clean"`
	HeadHealthClean      bool `json:"head_health_clean"`
	BaseCorrelationClean bool `json:"base_correlation_clean"`
	HeadCorrelationClean bool `json:"head_correlation_clean"`
	StableIDsRequired    bool `json:"stable_tool_call_ids_required"`
	StableIDsPresent     bool `json:"stable_tool_call_ids_present"`
}

// scope says which evidence was used. It is always the same in v0.
type scope struct {
	Projection       string `json:"projection"`
	UsesRawTelemetry bool   `json:"uses_raw_telemetry"`
	UsesProofPack    bool   `json:"uses_proof_pack"`
	PerBinding       bool   `json:"per_binding_capability_values"`
}

// surfaceSets compares the lists of two capability surfaces.
type surfaceSets struct {
	FilesystemPaths  Sets `json:"filesystem_paths"`
	NetworkEndpoints Sets `json:"network_endpoints"`
	ProcessExecs     Sets `json:"process_execs"`
	MCPTools         Sets `json:"mcp_tools"`
	PolicyDecisions  Sets `json:"policy_decisions"`
}

// unbound would list values that belong to no binding.
type unbound struct {
	FilesystemPaths  []string `json:"filesystem_paths"`
	NetworkEndpoints []string `json:"network_endpoints"`
	ProcessExecs     []string `json:"process_execs"`
	MCPTools         []string `json:"mcp_tools"`
	PolicyDecisions  []string `json:"policy_decisions"`
}

// Sets are the values that only the head has, that only the base has, and that
// both have: sorted, never nil.
type Sets struct {
	Added     []string `json:"added"`
	Removed   []string `json:"removed"`
	Unchanged []string `json:"unchanged"`
}

// policyOutcomes are the calls of both runs on which policy decided differently, sorted by id.
type policyOutcomes struct {
	Changed []policyChange `json:"changed"`
}

// policyChange is one such call. Nil means no decision.
type policyChange struct {
	ToolCallID string  `json:"tool_call_id"`
	Base       *string `json:"base"`
	Head       *string `json:"head"`
}

// idempotent is the note of a diff without differences.
const idempotent = "capability_diff_idempotent: base and head evidence sets are identical"

// capabilityOf compares two runs.
func capabilityOf(base, head *archive.Documents) *Capability {
	none := []string{}
	baseIDs, headIDs := bindings(base), bindings(head)
	c := &Capability{
		Schema: capabilityDiffV0, BaseRunID: base.Health.RunID, HeadRunID: head.Health.RunID,
		Preconditions: preconditions{
			BaseHealthClean: healthClean(&base.Health), HeadHealthClean: healthClean(&head.Health),
			BaseCorrelationClean: correlationClean(&base.Correlation),
			HeadCorrelationClean: correlationClean(&head.Correlation),
			StableIDsRequired:    true, StableIDsPresent: len(baseIDs) > 0 && len(headIDs) > 0,
		},
		Scope: scope{Projection: "surface_set"},
		Surface: surfaceSets{
			FilesystemPaths:  compare(base.Surface.FilesystemPaths, head.Surface.FilesystemPaths),
			NetworkEndpoints: compare(base.Surface.NetworkEndpoints, head.Surface.NetworkEndpoints),
			ProcessExecs:     compare(base.Surface.ProcessExecs, head.Surface.ProcessExecs),
			MCPTools:         compare(base.Surface.MCPTools, head.Surface.MCPTools),
			PolicyDecisions:  compare(base.Surface.PolicyDecisions, head.Surface.PolicyDecisions),
		},
		BindingIDs: compare(slices.Collect(maps.Keys(baseIDs)), slices.Collect(maps.Keys(headIDs))),
		Policy:     policyOutcomes{Changed: []policyChange{}},
		Unbound:    unbound{none, none, none, none, none}, Ambiguities: none, Notes: none,
	}
	for _, id := range c.BindingIDs.Unchanged {
		if b, h := baseIDs[id], headIDs[id]; b != h {
			c.Policy.Changed = append(c.Policy.Changed, policyChange{id, orNull(b), orNull(h)})
		}
	}
	p := &c.Preconditions
	switch {
	case !p.BaseHealthClean || !p.HeadHealthClean:
		c.Status = "partial:health"
	case !p.BaseCorrelationClean || !p.HeadCorrelationClean || !p.StableIDsPresent:
		c.Status = "partial:correlation"
	default:
		c.Status = "clean"
	}
	s := &c.Surface
	same := len(c.Policy.Changed) == 0
	for _, sets := range []*Sets{&s.FilesystemPaths, &s.NetworkEndpoints, &s.ProcessExecs, &s.MCPTools,
		&s.PolicyDecisions, &c.BindingIDs} {
		same = same && len(sets.Added) == 0 && len(sets.Removed) == 0
	}
	if same && c.Status == "clean" {
		c.Notes = []string{idempotent}
	}
	return c
}

func healthClean(h *schema.ObservationHealth) bool {
	return h.KernelLayer == schema.Complete && h.RingbufDrops == 0 && h.PolicyLayer == schema.Present &&
		h.SDKLayer == schema.SelfReported && h.CgroupCorrelation == schema.Clean
}

func correlationClean(c *schema.CorrelationReport) bool {
	return c.Status == schema.Clean && len(c.Ambiguities) == 0
}

// bindings returns the policy decisions of calls, by call id.
func bindings(d *archive.Documents) map[string]string {
	m := make(map[string]string, len(d.Correlation.Bindings))
	for _, b := range d.Correlation.Bindings {
		m[b.ToolCallID] = b.PolicyDecision
	}
	return m
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func compare(base, head []string) Sets {
	s := Sets{Added: []string{}, Removed: []string{}, Unchanged: []string{}}
	in, out := setOf(base), setOf(head)
	for v := range out {
		if in[v] {
			s.Unchanged = append(s.Unchanged, v)
		} else {
			s.Added = append(s.Added, v)
		}
	}
	for v := range in {
		if !out[v] {
			s.Removed = append(s.Removed, v)
		}
	}
	for _, list := range [][]string{s.Added, s.Removed, s.Unchanged} {
		slices.Sort(list)
	}
	return s
}

func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, v := range list {
		set[v] = true
	}
	return set
}
