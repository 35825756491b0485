package schema

// CorrelationReport is correlation-report.json: which kernel events belong to
// which reported tool call, and what could not be told apart.
type CorrelationReport struct {
	Schema string `json:"schema"` // CorrelationReportV0
	RunID  string `json:"run_id"`
	// Status is clean, partial or failed.
	Status      string    `json:"status"`
	Bindings    []Binding `json:"bindings"`
	Ambiguities []string  `json:"ambiguities"`
}

// Binding is one tool call and what was observed of it.
type Binding struct {
	ToolCallID       string `json:"tool_call_id"`
	Tool             string `json:"tool,omitempty"`
	PolicyDecision   string `json:"policy_decision,omitempty"`
	CgroupID         uint64 `json:"cgroup_id,omitempty"`
	KernelEventCount uint64 `json:"kernel_event_count"`
	Window           Window `json:"window"`
	// Method is cgroup, env, lineage or window, strongest first.
	Method   string            `json:"method,omitempty"`
	TStartNS *int64            `json:"t_start_ns,omitempty"`
	TEndNS   *int64            `json:"t_end_ns,omitempty"`
	Kinds    map[string]uint64 `json:"kinds,omitempty"`
	Files    []string          `json:"files,omitempty"`
	Hosts    []string          `json:"hosts,omitempty"`
	Commands []string          `json:"commands,omitempty"`
}

// Window names the lifecycle points a binding lies between.
type Window struct {
	Start string `json:"start"`
	End   string `json:"end"`
}
