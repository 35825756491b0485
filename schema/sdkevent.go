package schema

import "cmp"

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
	// Failed means that the agent calls the call failed, where it ends: an error of the tool, or an exit code.
	Failed bool `json:"failed,omitempty"`
	// Argv is, where a call starts, the shell command that the agent runs for it: the arguments
	// of its exec, by which the process is found. Nil: not said.
	Argv []string `json:"argv,omitempty"`
	// TNS is the arrival on the runner's clock, nanoseconds since run_started.
	TNS int64 `json:"t_ns,omitempty"`
	// SpanID is the W3C span of the call, 16 hex digits, by which processes
	// that were executed with its TRACEPARENT belong to the call.
	SpanID string `json:"span_id,omitempty"`
	// Timestamp is what the SDK sent, kept as information and never joined on.
	Timestamp string `json:"timestamp,omitempty"`
}

func (e *SDKEvent) read(d lineReader) error {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "schema":
			e.Schema, err = d.oneOf(SDKEventV0)
		case "run_id":
			e.RunID, err = d.runID()
		case "seq":
			e.Seq, err = d.count()
		case "event_type":
			e.EventType, err = d.notEmpty()
		case "source":
			e.Source, err = d.text()
		case "sdk_name":
			e.SDKName, err = d.text()
		case "sdk_version":
			e.SDKVersion, err = d.textOrNull()
		case "tool_call_id":
			e.ToolCallID, err = d.textOrNull()
		case "tool":
			e.Tool, err = d.textOrNull()
		case "failed":
			e.Failed, err = d.boolean()
		case "argv":
			e.Argv, err = d.texts()
		case "t_ns":
			e.TNS, err = d.integer()
		case "span_id":
			e.SpanID, err = d.text()
		case "timestamp":
			e.Timestamp, err = d.textOrNull()
		default:
			err = d.skip()
		}
		return err
	})
	return cmp.Or(err, have.need("schema", "run_id", "seq", "event_type", "source", "sdk_name", "sdk_version"))
}
