package schema

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/v1"

	jsonv2 "github.com/go-json-experiment/json"
)

// Kinds of a call's outcome.
const (
	CallSuccess          = "success"
	CallExecutionFailed  = "execution_failed"
	CallInvalidArgs      = "invalid_args"
	CallCapabilityDenied = "capability_denied"
	CallRateLimited      = "rate_limited"
	CallToolNotFound     = "tool_not_found"
	CallPolicyDenied     = "policy_denied"
)

// Codes of execution_failed.
const (
	FailToolError    = "tool_error"    // the client answered with an error
	FailCallbackLost = "callback_lost" // the connection ended before the answer
	FailDeadline     = "deadline"      // no answer in time
	FailCancelled    = "cancelled"     // the client or the end of the run took it back
)

// DefaultTier is the tier of a tool that names none.
const DefaultTier = "standard"

// CallEvent is one line of layers/audit.ndjson: how one call ended. There is
// exactly one for every call.
type CallEvent struct {
	Schema string `json:"schema"` // CallEventV2
	RunID  string `json:"run_id"`
	Seq    uint64 `json:"seq"`
	CallEventBody
}

// CallEventBody is a [CallEvent] without what the recorder stamps.
type CallEventBody struct {
	// TS is the wall clock when the call ended, RFC 3339 in UTC.
	TS string `json:"ts"`
	// CallID is a ULID, made by the gateway.
	CallID     string `json:"call_id"`
	ToolID     string `json:"tool_id"`
	ToolCallID string `json:"tool_call_id,omitempty"`
	// CallerID is the proposal's source.
	CallerID            string   `json:"caller_id,omitempty"`
	GrantedCapabilities []string `json:"granted_capabilities"`
	// DurationMS is in whole milliseconds, DurationUS in microseconds.
	DurationMS    int64       `json:"duration_ms"`
	DurationUS    int64       `json:"duration_us,omitempty"`
	Outcome       CallOutcome `json:"outcome"`
	Tier          string      `json:"tier"`
	DryRun        bool        `json:"dry_run"`
	SchemaVersion int         `json:"schema_version"` // 2
	// SecretsResolved is true if the call was given a secret. The gateway gives none, so it writes false. Names and
	// values of secrets are never recorded.
	SecretsResolved bool `json:"secrets_resolved"`
	// CursorPage is the number of the page that the call got: 1 if its result has a nextCursor, more if its parameter
	// cursor came from an earlier result of the same tool. Nil if there are no pages, or the number is not known.
	CursorPage *int `json:"cursor_page,omitempty"`
}

// CallOutcome is how a call ended. Kind decides which other fields are written, even if they are empty.
type CallOutcome struct {
	Kind string `json:"kind"`
	// Code and Retryable are execution_failed's: the tool's own where it named
	// them. Nil is written as false.
	Code      string `json:"code"`
	Retryable *bool  `json:"retryable"`
	// Message is invalid_args's.
	Message string `json:"message"`
	// Missing, sorted, is capability_denied's.
	Missing []string `json:"missing"`
	// RetryAfterMS is rate_limited's, null where it cannot be told.
	RetryAfterMS *Nullable[int64] `json:"retry_after_ms"`
	// Rule is policy_denied's, and that of an execution_failed by policy.
	Rule string `json:"rule"`
}

// MarshalJSON writes the fields of the kind.
func (o CallOutcome) MarshalJSON() ([]byte, error) {
	w := struct {
		Kind         string           `json:"kind"`
		Code         *string          `json:"code,omitzero"`
		Retryable    *bool            `json:"retryable,omitzero"`
		Message      *string          `json:"message,omitzero"`
		Missing      *[]string        `json:"missing,omitzero"`
		RetryAfterMS *Nullable[int64] `json:"retry_after_ms,omitzero"`
		Rule         string           `json:"rule,omitzero"`
	}{Kind: o.Kind, Rule: o.Rule}
	switch o.Kind {
	case CallExecutionFailed:
		if w.Code, w.Retryable = &o.Code, o.Retryable; w.Retryable == nil {
			w.Retryable = new(bool)
		}
	case CallInvalidArgs:
		w.Message = &o.Message
	case CallCapabilityDenied:
		missing := append([]string{}, o.Missing...)
		w.Missing = &missing
	case CallRateLimited:
		if w.RetryAfterMS = o.RetryAfterMS; w.RetryAfterMS == nil {
			w.RetryAfterMS = None[int64]()
		}
	}
	return jsonv2.Marshal(w)
}

// Wire returns the outcome as it is written in audit lines, with only the kinds that every reader of version 2 knows: a
// denial by policy becomes an execution_failed with the code policy_denied and its rule. [ParseCallEvent] reverses
// that.
func (o CallOutcome) Wire() CallOutcome {
	if o.Kind == CallPolicyDenied {
		never := false
		return CallOutcome{Kind: CallExecutionFailed, Code: CallPolicyDenied, Retryable: &never, Rule: o.Rule}
	}
	return o
}

// ErrCallEvent is wrapped by every error of [ParseCallEvent].
var ErrCallEvent = errors.New("not a call event")

// ParseCallEvent reads a call_event line of version 2, or of version 1, whose
// missing fields get their defaults: tier "standard", no dry run, no secrets.
// SchemaVersion stays what the line said, 1 when it said nothing.
func ParseCallEvent(line []byte) (CallEvent, error) {
	var e CallEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return CallEvent{}, fmt.Errorf("%w: %w", ErrCallEvent, err)
	}
	if e.SchemaVersion == 0 {
		e.SchemaVersion = 1
	}
	switch {
	case e.SchemaVersion > 2 || e.SchemaVersion < 0:
		return CallEvent{}, fmt.Errorf("%w: schema_version %d, known are 1 and 2", ErrCallEvent, e.SchemaVersion)
	case e.CallID == "" || e.ToolID == "":
		return CallEvent{}, fmt.Errorf("%w: call_id and tool_id must be there", ErrCallEvent)
	case !knownOutcome(e.Outcome.Kind):
		return CallEvent{}, fmt.Errorf("%w: outcome kind %.100q", ErrCallEvent, e.Outcome.Kind)
	}
	if o := &e.Outcome; o.Kind == CallExecutionFailed && o.Code == CallPolicyDenied && o.Rule != "" {
		*o = CallOutcome{Kind: CallPolicyDenied, Rule: o.Rule}
	}
	if e.Outcome.Kind == CallRateLimited && e.Outcome.RetryAfterMS == nil {
		e.Outcome.RetryAfterMS = None[int64]()
	}
	if e.Tier == "" {
		e.Tier = DefaultTier
	}
	if e.GrantedCapabilities == nil {
		e.GrantedCapabilities = []string{}
	}
	return e, nil
}

func knownOutcome(kind string) bool {
	switch kind {
	case CallSuccess, CallExecutionFailed, CallInvalidArgs, CallCapabilityDenied,
		CallRateLimited, CallToolNotFound:
		return true
	}
	return false
}

var (
	timePattern   = matcher(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z$`)
	callIDPattern = matcher(`^[0-7][0-9A-HJKMNP-TV-Z]{25}$`)
)

func (e *CallEvent) read(d lineReader) error {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "schema":
			e.Schema, err = d.oneOf(CallEventV2)
		case "run_id":
			e.RunID, err = d.runID()
		case "seq":
			e.Seq, err = d.count()
		case "ts":
			e.TS, err = d.matching(timePattern)
		case "call_id":
			e.CallID, err = d.matching(callIDPattern)
		case "tool_id":
			e.ToolID, err = d.text()
		case "tool_call_id":
			e.ToolCallID, err = d.text()
		case "caller_id":
			e.CallerID, err = d.text()
		case "granted_capabilities":
			e.GrantedCapabilities, err = d.texts()
		case "duration_ms":
			e.DurationMS, err = d.natural()
		case "duration_us":
			e.DurationUS, err = d.natural()
		case "outcome":
			e.Outcome, err = d.callOutcome()
		case "tier":
			e.Tier, err = d.text()
		case "dry_run":
			e.DryRun, err = d.boolean()
		case "schema_version":
			if e.SchemaVersion, err = d.int(); err == nil && e.SchemaVersion != 2 {
				err = errors.New("is not 2")
			}
		case "secrets_resolved":
			e.SecretsResolved, err = d.boolean()
		case "cursor_page":
			e.CursorPage, err = pointer(d.int())
		default:
			err = d.skip()
		}
		return err
	})
	return cmp.Or(err, have.need("schema", "run_id", "seq", "ts", "call_id", "tool_id", "granted_capabilities",
		"duration_ms",
		"outcome", "tier", "dry_run", "schema_version", "secrets_resolved"))
}

func (d lineReader) callOutcome() (o CallOutcome, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "kind":
			if o.Kind, err = d.text(); err == nil && !knownOutcome(o.Kind) {
				err = fmt.Errorf("is %.100q, which is not a kind of outcome", o.Kind)
			}
		case "code":
			o.Code, err = d.text()
		case "retryable":
			o.Retryable, err = pointer(d.boolean())
		case "message":
			o.Message, err = d.text()
		case "missing":
			o.Missing, err = d.texts()
		case "retry_after_ms":
			o.RetryAfterMS, err = nullable(d, d.natural)
		case "rule":
			o.Rule, err = d.text()
		default:
			err = d.skip()
		}
		return err
	})
	return o, cmp.Or(err, have.need("kind"))
}
