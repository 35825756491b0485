package agentlog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// Event types of an SDK event log.
const (
	ToolCallStarted   = "tool_call_started"
	ToolCallCompleted = "tool_call_completed"
	RunFinished       = "run_finished"
	RunFailed         = "run_failed"
)

// DecisionType is the type of every line of a policy decision log.
const DecisionType = "assay.tool.decision"

var eventTypes = []string{ToolCallStarted, ToolCallCompleted, RunFinished, RunFailed}

// MaxID limits a tool call id, in bytes. No more is read of an id from a process's environment.
const MaxID = 128

// GatewaySource is the source of decisions by the run's own gateway. Nobody else may use it.
const GatewaySource = "assay-run:gateway"

// MaxArgv limits the arguments of a command, in bytes.
const MaxArgv = 16 << 10

// maxText limits the other strings that are kept of a line, in bytes.
const maxText = 1024

// DecodeSDK decodes one line of an SDK event log into e, whose Seq is the line's own. It ignores unknown keys; a
// duplicate key is an error.
func DecodeSDK(line []byte, runID string, e *schema.SDKEvent) error {
	var l struct {
		Schema      *string        `json:"schema"`
		RunID       *string        `json:"run_id"`
		Seq         *uint64        `json:"seq"`
		EventType   *string        `json:"event_type"`
		Source      *string        `json:"source"`
		SDKName     *string        `json:"sdk_name"`
		SDKVersion  *string        `json:"sdk_version"`
		ToolCallID  *string        `json:"tool_call_id"`
		Tool        *string        `json:"tool"`
		Failed      bool           `json:"failed"`
		Argv        []string       `json:"argv"`
		Timestamp   jsontext.Value `json:"timestamp"`
		SpanID      *string        `json:"span_id"`
		Traceparent *string        `json:"traceparent"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return notJSON(err)
	}
	if err := must("schema", l.Schema, schema.SDKEventV0); err != nil {
		return err
	}
	if err := must("run_id", l.RunID, runID); err != nil {
		return err
	}
	if l.Seq == nil {
		return errors.New("seq is missing: want a number")
	}
	*e = schema.SDKEvent{Schema: schema.SDKEventV0, RunID: runID, Seq: *l.Seq}
	call := l.EventType != nil && (*l.EventType == ToolCallStarted || *l.EventType == ToolCallCompleted)
	for _, f := range []struct {
		name   string
		from   *string
		to     *string
		needed bool
		max    int
	}{
		{"event_type", l.EventType, &e.EventType, true, maxText},
		{"source", l.Source, &e.Source, true, maxText},
		{"sdk_name", l.SDKName, &e.SDKName, false, maxText},
		{"sdk_version", l.SDKVersion, &e.SDKVersion, false, maxText},
		{"tool_call_id", l.ToolCallID, &e.ToolCallID, call, MaxID},
		{"tool", l.Tool, &e.Tool, call, maxText},
	} {
		if err := text(f.name, f.from, f.to, f.needed, f.max); err != nil {
			return err
		}
	}
	if !slices.Contains(eventTypes, e.EventType) {
		return fmt.Errorf("event_type is %.64q: want one of %s", e.EventType, strings.Join(eventTypes, ", "))
	}
	switch e.EventType {
	case ToolCallStarted:
		e.Argv = l.Argv
	case ToolCallCompleted:
		e.Failed = l.Failed
	}
	switch argv := strings.Join(e.Argv, " "); {
	case len(argv) > MaxArgv:
		return fmt.Errorf("argv has %d bytes: at most %d are allowed", len(argv), MaxArgv)
	case strings.ContainsRune(argv, 0):
		return errors.New("argv contains a NUL byte")
	}
	e.Timestamp = timestamp(l.Timestamp)
	switch {
	case l.SpanID != nil:
		if e.SpanID = strings.ToLower(*l.SpanID); !isSpan(e.SpanID) {
			return errors.New("span_id is not a W3C parent id: 16 hex digits, not all 0")
		}
	case l.Traceparent != nil:
		if e.SpanID = Span(*l.Traceparent); e.SpanID == "" {
			return errors.New("traceparent is not in the form of W3C Trace Context: 00-<32 hex digits>-<16 hex " +
				"digits>-<2 hex digits>")
		}
	}
	return nil
}

// DecodeDecision decodes one line of a policy decision log into e: a CloudEvent, or only its type, source and data.
func DecodeDecision(line []byte, runID string, e *schema.PolicyEvent) error {
	var l struct {
		Type   *string `json:"type"`
		Source *string `json:"source"`
		Data   *struct {
			Tool       *string `json:"tool"`
			ToolCallID *string `json:"tool_call_id"`
			Decision   *string `json:"decision"`
			Rule       *string `json:"rule"`
		} `json:"data"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return notJSON(err)
	}
	if err := must("type", l.Type, DecisionType); err != nil {
		return err
	}
	if l.Data == nil {
		return errors.New("data is missing: want an object")
	}
	if l.Source != nil && *l.Source == GatewaySource {
		return fmt.Errorf("source is %q, which only the run's own gateway may use", GatewaySource)
	}
	*e = schema.PolicyEvent{Schema: schema.PolicyEventV0, RunID: runID, SourceEventType: DecisionType}
	return cmp.Or(
		text("source", l.Source, &e.Source, true, maxText),
		text("data.tool", l.Data.Tool, &e.Tool, true, maxText),
		text("data.tool_call_id", l.Data.ToolCallID, &e.ToolCallID, true, MaxID),
		text("data.decision", l.Data.Decision, &e.Decision, true, 64),
		text("data.rule", l.Data.Rule, &e.Rule, false, maxText),
	)
}

// must checks a string that has only one allowed value.
func must(name string, got *string, want string) error {
	switch {
	case got == nil:
		return fmt.Errorf("%s is missing: want %q", name, want)
	case *got != want:
		return fmt.Errorf("%s is %.64q: want %q", name, *got, want)
	}
	return nil
}

// text copies a string. A blank string counts as missing.
func text(name string, from, to *string, needed bool, limit int) error {
	switch {
	case from == nil || strings.TrimSpace(*from) == "":
		if needed {
			return fmt.Errorf("%s is missing: want a string", name)
		}
		return nil
	case len(*from) > limit:
		return fmt.Errorf("%s has %d bytes: at most %d are allowed", name, len(*from), limit)
	case strings.ContainsRune(*from, 0):
		return fmt.Errorf("%s contains a NUL byte", name)
	}
	*to = *from
	return nil
}

// timestamp returns the SDK's timestamp: the content of a string, or a number as written; anything else is dropped.
func timestamp(v jsontext.Value) string {
	var s string
	switch v.Kind() {
	case '"':
		if json.Unmarshal(v, &s) != nil {
			return ""
		}
	case '0':
		s = string(v)
	}
	if len(s) > 64 {
		return ""
	}
	return s
}

// Span returns the parent id of a W3C traceparent, in lower case; empty if it is not valid.
func Span(traceparent string) string {
	p := strings.Split(strings.ToLower(strings.TrimSpace(traceparent)), "-")
	if len(p) < 4 || len(p[0]) != 2 || !isHex(p[0]) || p[0] == "ff" || len(p[1]) != 32 || !isHex(p[1]) ||
		!isSpan(p[2]) {
		return ""
	}
	return p[2]
}

func isSpan(s string) bool { return len(s) == 16 && isHex(s) && strings.Trim(s, "0") != "" }

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// notJSON says why a line cannot be decoded, in a form that is safe for a terminal.
func notJSON(err error) error {
	msg := schema.OneLine(err.Error())
	if len(msg) > 240 {
		msg = strings.ToValidUTF8(msg[:240], "") + "…"
	}
	return fmt.Errorf("not a JSON object of the expected form: %s", msg)
}
