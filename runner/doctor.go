package runner

import "github.com/assay-run/assay-run/schema"

// Diagnosis is what this host offers to runs, and what would fix the rest.
type Diagnosis struct {
	// Works tells whether a run would work at all, in however degraded a form.
	Works    bool      `json:"works"`
	Platform string    `json:"platform"`
	Findings []Finding `json:"findings"`
}

// Finding is one thing that a run can make use of.
type Finding struct {
	// Subject groups findings: run, cgroup, limits, terminal, kernel.
	Subject string `json:"subject"`
	Name    string `json:"name"`
	// State is ok, degraded or missing.
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"`
	// Reasons say why it is not ok, and what would fix that.
	Reasons []schema.Reason `json:"reasons,omitempty"`
}

// States of a Finding.
const (
	StateOK       = "ok"
	StateDegraded = "degraded"
	StateMissing  = "missing"
)
