package schema

import "cmp"

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
	// connect, bind, signal, ptrace or call, and a path, an endpoint, a process or
	// a system call.
	Operation string `json:"operation,omitempty"`
	Target    string `json:"target,omitempty"`
	// Repeats is how often a denied call was repeated after its first line; 0 on
	// all other lines.
	Repeats uint64 `json:"repeats,omitempty"`
}

func (e *PolicyEvent) read(d lineReader) error {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "schema":
			e.Schema, err = d.oneOf(PolicyEventV0)
		case "run_id":
			e.RunID, err = d.runID()
		case "seq":
			e.Seq, err = d.count()
		case "source_event_type":
			e.SourceEventType, err = d.text()
		case "source":
			e.Source, err = d.text()
		case "tool_call_id":
			e.ToolCallID, err = d.textOrNull()
		case "tool":
			e.Tool, err = d.textOrNull()
		case "decision":
			e.Decision, err = d.notEmpty()
		case "t_ns":
			e.TNS, err = d.integer()
		case "rule":
			e.Rule, err = d.textOrNull()
		case "operation":
			e.Operation, err = d.oneOf("read", "write", "exec", "connect", "bind", "signal", "ptrace", "call")
		case "target":
			e.Target, err = d.text()
		case "repeats":
			e.Repeats, err = d.count()
		default:
			err = d.skip()
		}
		return err
	})
	return cmp.Or(err, have.need("schema", "run_id", "seq", "source_event_type", "source", "tool_call_id", "tool",
		"decision"))
}

// Denies reports whether a decision, in the words that agents use, forbids a call.
func Denies(decision string) bool {
	switch decision {
	case "deny", "denied", "block", "blocked", "reject", "rejected":
		return true
	}
	return false
}
