package schema

// How a kernel event is known to belong to a tool call, strongest first.
const (
	BoundByCgroup  = "cgroup"  // its process is in the call's own cgroup
	BoundByEnv     = "env"     // its process was executed with the call's id or span
	BoundByLineage = "lineage" // its process descends from one that was
	BoundByWindow  = "window"  // the call was the only one open
)

// Known codes of ambiguities. Those that end in a colon are followed by a tool
// call id.
const (
	AmbiguousPolicyWithoutKernel = "policy_events_without_kernel_events"
	AmbiguousSDKWithoutPolicy    = "sdk_tool_call_without_policy_binding:"
	AmbiguousSessionCgroup       = "session_cgroup_ambiguous_for_multiple_policy_events"
	AmbiguousOverlap             = "kernel_events_in_overlapping_tool_calls"
	AmbiguousNeverEnded          = "sdk_tool_call_never_completed:"
	AmbiguousNeverStarted        = "sdk_tool_call_completed_without_start:"
	AmbiguousTwice               = "sdk_tool_call_started_twice:"
	AmbiguousConflict            = "tool_call_ids_conflict:"
	AmbiguousTooManyCalls        = "tool_calls_beyond_bound"
)

// CorrelationReport is correlation-report.json: which kernel events belong to which reported tool call, and which
// events could belong to several. It may know more than the lines of the kernel layer: their tool_call_id is what was
// known when each line was written.
type CorrelationReport struct {
	Schema string `json:"schema"` // CorrelationReportV0
	RunID  string `json:"run_id"`
	// Status is clean, partial or failed.
	Status      string    `json:"status"`
	Bindings    []Binding `json:"bindings"`
	Ambiguities []string  `json:"ambiguities"`

	// ReportedNotObserved lists the calls that were reported to have run and have no kernel event.
	ReportedNotObserved []Unobserved `json:"reported_not_observed,omitempty"`
	// ObservedNotReported lists what was observed and belongs to no report.
	ObservedNotReported []Unreported `json:"observed_not_reported,omitempty"`
	// ProposedNotCalled lists the tool calls that a model proposed and nobody reported; it is empty if nobody reports
	// calls. CalledNotProposed lists those that were reported and that no model proposed. ArgumentsDiffer lists the
	// calls whose arguments differ from the proposed ones. All three need a model gateway.
	ProposedNotCalled []Proposal `json:"proposed_not_called,omitempty"`
	CalledNotProposed []Proposal `json:"called_not_proposed,omitempty"`
	ArgumentsDiffer   []Proposal `json:"arguments_differ,omitempty"`
	// Events counts the kernel events of the run by how they were bound: a
	// method, or edge, overlap or none. Absent when nothing was reported.
	Events map[string]uint64 `json:"events,omitempty"`
}

// Binding is one tool call and what was observed of it.
type Binding struct {
	ToolCallID string `json:"tool_call_id"`
	// Tool is the name in the SDK's or the policy's report; empty when neither
	// names the call.
	Tool           string `json:"tool,omitempty"`
	PolicyDecision string `json:"policy_decision,omitempty"`
	// Failed means that the agent's own report calls the call failed.
	Failed bool `json:"failed,omitempty"`
	// CgroupID is the call's own cgroup2 directory, where it has one.
	CgroupID uint64 `json:"cgroup_id,omitempty"`
	// KernelEventCount is how many kernel events are bound to the call, repeats
	// that were coalesced into one line included. Kinds counts them by kind.
	KernelEventCount uint64 `json:"kernel_event_count"`
	Window           Window `json:"window"`
	// Method is the strongest of cgroup, env, lineage and window by which any
	// event was bound. Methods counts the events by each.
	Method  string            `json:"method,omitempty"`
	Methods map[string]uint64 `json:"methods,omitempty"`
	// TStartNS and TEndNS are when the runner learned that the call started and
	// ended, nanoseconds since run_started; absent when it never did.
	TStartNS *int64            `json:"t_start_ns,omitempty"`
	TEndNS   *int64            `json:"t_end_ns,omitempty"`
	Kinds    map[string]uint64 `json:"kinds,omitempty"`
	// ModelSeq is the line of the model layer whose answer proposed the call, and MatchedBy how that is known: id
	// or arguments. Absent where that is not known.
	ModelSeq  *uint64 `json:"model_seq,omitempty"`
	MatchedBy string  `json:"matched_by,omitempty"`
	Effects
}

// How a call is known to be what a model proposed.
const (
	MatchedByID        = "id"
	MatchedByArguments = "arguments" // the tool's name and the arguments, or the shell command, in order
)

// Proposal is a tool call that a model proposed, or one that was made.
type Proposal struct {
	ToolCallID string  `json:"tool_call_id,omitempty"` // empty where the provider gives none
	Tool       string  `json:"tool,omitempty"`
	ModelSeq   *uint64 `json:"model_seq,omitempty"` // of the line with the proposal
}

// Effects lists what events of class agent touched. The lists are sorted, without repeats, and bounded.
type Effects struct {
	// Files are those opened for reading and those in Written, which were
	// created, written to, changed, renamed or deleted.
	Files   []string `json:"files,omitempty"`
	Written []string `json:"written,omitempty"`
	Hosts   []string `json:"hosts,omitempty"`
	// Commands are argument vectors joined with spaces, cut at 256 bytes.
	Commands []string `json:"commands,omitempty"`
	// Beyond counts occurrences that the full lists leave out.
	Beyond uint64 `json:"beyond,omitempty"`
}

// Window names the lifecycle points a binding lies between.
type Window struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

// Unobserved is a call that was reported and not observed.
type Unobserved struct {
	ToolCallID string `json:"tool_call_id"`
	Tool       string `json:"tool,omitempty"`
	// Code is no_kernel_layer, overlap (others were open all the time), edge
	// (it was too short to tell) or no_events.
	Code string `json:"code"`
}

// Unreported is something that was observed and not reported.
type Unreported struct {
	// Code is
	//   beyond_claim  a tool whose name says that it only reads wrote or connected;
	//   unknown_call  processes named a call that no report names;
	//   denied_call   a call that policy denied did something;
	//   edge          so close to the start or end of the only open call that the
	//                 recorder may not have known of it yet;
	//   overlap       while several calls were open;
	//   outside       while no call was open: by the agent itself.
	Code string `json:"code"`
	// ToolCallIDs are the calls it may belong to, at most 16.
	ToolCallIDs []string `json:"tool_call_ids,omitempty"`
	Tool        string   `json:"tool,omitempty"`
	// KernelEventCount is the number of events, including those without an effect to list.
	KernelEventCount uint64 `json:"kernel_event_count"`
	// Effects leaves out files that were only read.
	Effects
}
