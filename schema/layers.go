package schema

// PolicyEvent is one line of layers/policy.ndjson.
type PolicyEvent struct {
	Schema          string `json:"schema"` // PolicyEventV0
	RunID           string `json:"run_id"`
	Seq             uint64 `json:"seq"`
	SourceEventType string `json:"source_event_type"`
	Source          string `json:"source"`
	ToolCallID      string `json:"tool_call_id"`
	Tool            string `json:"tool"`
	Decision        string `json:"decision"`
	// TNS is the arrival on the runner's clock, nanoseconds since run_started.
	TNS int64 `json:"t_ns,omitempty"`
	// Rule is the rule that decided, where one did.
	Rule string `json:"rule,omitempty"`
	// Operation and Target are what a sandbox decided about: read, write, exec,
	// connect, bind, signal or ptrace, and a path, an endpoint or a process.
	Operation string `json:"operation,omitempty"`
	Target    string `json:"target,omitempty"`
}

// Denies tells whether a decision, in the words that agents use, forbids a call.
func Denies(decision string) bool {
	switch decision {
	case "deny", "denied", "block", "blocked", "reject", "rejected":
		return true
	}
	return false
}

// SDKEvent is one line of layers/sdk.ndjson.
type SDKEvent struct {
	Schema     string `json:"schema"` // SDKEventV0
	RunID      string `json:"run_id"`
	Seq        uint64 `json:"seq"`
	EventType  string `json:"event_type"`
	Source     string `json:"source"`
	SDKName    string `json:"sdk_name"`
	SDKVersion string `json:"sdk_version"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	Tool       string `json:"tool,omitempty"`
	// TNS is the arrival on the runner's clock, nanoseconds since run_started.
	TNS int64 `json:"t_ns,omitempty"`
	// SpanID is the W3C span of the call, 16 hex digits, by which processes
	// that were executed with its TRACEPARENT belong to the call.
	SpanID string `json:"span_id,omitempty"`
	// Timestamp is what the SDK sent, kept as information and never joined on.
	Timestamp string `json:"timestamp,omitempty"`
}
