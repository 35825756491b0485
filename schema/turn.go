package schema

import (
	"cmp"
	"errors"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// Verifier verdicts of a turn.
const (
	VerdictPass   = "pass"
	VerdictFail   = "fail"
	VerdictNotRun = "not_run"
)

// Turn is one line of layers/turns.ndjson: one action of the agent and what
// came of it. The recorder alone stamps seq and index; they are equal.
type Turn struct {
	Schema string `json:"schema"` // TurnV0
	RunID  string `json:"run_id"`
	Seq    uint64 `json:"seq"`
	Index  uint64 `json:"index"`
	TurnBody
}

// TurnBody is a [Turn] without what the recorder stamps.
type TurnBody struct {
	// Record is "turn".
	Record string `json:"record,omitempty"`
	// Prompt is what a turn of the command-line tool was asked.
	Prompt *string `json:"prompt,omitempty"`
	// Tool is empty where a client reported a turn that called none.
	Tool string `json:"tool"`
	// Parameters are the call's parameters as they were sent, up to the caps.
	Parameters jsontext.Value `json:"parameters,omitzero"`
	// Output is the tool's result as it was sent, up to the caps. A rejected
	// action has none, and one whose tool failed has one only if the tool said
	// in its result that it failed.
	Output     jsontext.Value `json:"output,omitzero"`
	CLIOutcome *CLIOutcome    `json:"cli_outcome,omitempty"`
	// VerifierVerdict is pass, fail or not_run.
	VerifierVerdict string `json:"verifier_verdict"`
	// PolicyRejected is set when the action was rejected: its tool never ran.
	PolicyRejected *PolicyRejected `json:"policy_rejected,omitempty"`
	// RejectedBy is the step that rejected: tool, schema, capability, policy
	// or rate_limit.
	RejectedBy string `json:"rejected_by,omitempty"`
	// Error is the code of a call that was dispatched and failed.
	Error string `json:"error,omitempty"`
	// DryRun says that the action was checked and not dispatched.
	DryRun bool `json:"dry_run,omitzero"`
	// Source is "gateway" for an action that the gateway itself dispatched or
	// rejected, "reported" for one that a client only reported.
	Source string `json:"source"`
	// ClientID is the source that the proposal named, ProposalID its id.
	ClientID   string `json:"client_id,omitempty"`
	ProposalID string `json:"proposal_id,omitempty"`
	ActionID   string `json:"action_id,omitempty"`
	ToolCallID string `json:"tool_call_id"`
	// TStartNS and TEndNS are nanoseconds since run_started on the runner's
	// clock. Both are the arrival for a reported turn.
	TStartNS int64 `json:"t_start_ns"`
	TEndNS   int64 `json:"t_end_ns"`
	// Reported are the times that the client sent, kept as information.
	Reported *ReportedTimes `json:"reported,omitempty"`
	// Cut lists the values that were cut, Blobs those stored elsewhere.
	Cut   []Cut     `json:"cut,omitempty"`
	Blobs []BlobRef `json:"blobs,omitempty"`
}

// CLIOutcome is how a command line ended: kind "exited" with a code, or
// "timeout" without.
type CLIOutcome struct {
	Kind string `json:"kind"`
	Code *int64 `json:"code,omitempty"`
}

// PolicyRejected names the rule that rejected an action, and the parameter it
// looked at. The rules gateway.tool, gateway.schema, gateway.capability and
// gateway.rate_limit are the gateway's own steps.
type PolicyRejected struct {
	Rule  string `json:"rule"`
	Param string `json:"param,omitempty"`
}

// ReportedTimes are a client's own times, on a clock that is not the runner's.
type ReportedTimes struct {
	TStartNS *int64 `json:"t_start_ns,omitempty"`
	TEndNS   *int64 `json:"t_end_ns,omitempty"`
}

// Cut describes a value that was cut. Path is a JSON pointer into the turn. A text keeps its first Kept bytes and its
// last Tail bytes. Any other value is null, and Kept and Tail are 0.
type Cut struct {
	Path   string `json:"path"`
	Bytes  int    `json:"bytes"`
	Kept   int    `json:"kept"`
	Tail   int    `json:"tail,omitzero"`
	SHA256 string `json:"sha256"`
}

// ResultLeftOut is the beginning of the result that "assay-run mcp" reports instead of one that is too large for a
// message.
const ResultLeftOut = `{"assay_result_left_out":true,`

// BlobRef describes a value that is in another member of the bundle, because it is too large for a turn or several
// turns have it. The value at Path is the name of that member. JSON is true if the member holds a JSON value and not
// a text.
type BlobRef struct {
	Path   string `json:"path"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
	JSON   bool   `json:"json,omitzero"`
}

func (t *Turn) read(d lineReader) error {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "schema":
			t.Schema, err = d.oneOf(TurnV0)
		case "run_id":
			t.RunID, err = d.runID()
		case "seq":
			t.Seq, err = d.count()
		case "index":
			t.Index, err = d.count()
		case "record":
			t.Record, err = d.oneOf("turn")
		case "prompt":
			t.Prompt, err = pointer(d.text())
		case "tool":
			t.Tool, err = d.text()
		case "parameters":
			t.Parameters, err = d.rawMessage()
		case "output":
			t.Output, err = d.rawMessage()
		case "cli_outcome":
			t.CLIOutcome, err = pointer(d.cliOutcome())
		case "verifier_verdict":
			t.VerifierVerdict, err = d.oneOf(VerdictPass, VerdictFail, VerdictNotRun)
		case "policy_rejected":
			t.PolicyRejected, err = pointer(d.policyRejected())
		case "rejected_by":
			t.RejectedBy, err = d.oneOf("tool", "schema", "capability", "policy", "rate_limit")
		case "error":
			t.Error, err = d.text()
		case "dry_run":
			t.DryRun, err = d.boolean()
		case "source":
			t.Source, err = d.oneOf("gateway", "reported")
		case "client_id":
			t.ClientID, err = d.text()
		case "proposal_id":
			t.ProposalID, err = d.text()
		case "action_id":
			t.ActionID, err = d.text()
		case "tool_call_id":
			t.ToolCallID, err = d.text()
		case "t_start_ns":
			t.TStartNS, err = d.integer()
		case "t_end_ns":
			t.TEndNS, err = d.integer()
		case "reported":
			t.Reported, err = pointer(d.reportedTimes())
		case "cut":
			t.Cut, err = list(d, unbounded, d.cut)
		case "blobs":
			t.Blobs, err = list(d, unbounded, d.blobRef)
		default:
			err = d.skip()
		}
		return err
	})
	if err == nil {
		err = have.need("schema", "run_id", "seq", "index", "tool", "verifier_verdict", "source", "tool_call_id",
			"t_start_ns", "t_end_ns")
	}
	switch {
	case err != nil:
		return err
	case t.PolicyRejected == nil && t.RejectedBy != "":
		return errors.New("has rejected_by without policy_rejected")
	case t.PolicyRejected == nil:
		return nil
	case t.RejectedBy == "":
		return errors.New("has policy_rejected without rejected_by")
	case t.VerifierVerdict != VerdictNotRun:
		return errors.New("was rejected, and has a verdict")
	case slices.Contains(have, "output") || t.CLIOutcome != nil:
		return errors.New("was rejected, and has an outcome")
	}
	return nil
}

func (d lineReader) rawMessage() (jsontext.Value, error) {
	v, err := d.raw()
	return jsontext.Value(v.Clone()), err
}

func (d lineReader) cliOutcome() (o CLIOutcome, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "kind":
			o.Kind, err = d.oneOf("exited", "timeout")
		case "code":
			o.Code, err = pointer(d.integer())
		default:
			err = d.skip()
		}
		return err
	})
	return o, cmp.Or(err, have.need("kind"))
}

func (d lineReader) policyRejected() (p PolicyRejected, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "rule":
			p.Rule, err = d.notEmpty()
		case "param":
			p.Param, err = d.text()
		default:
			err = d.skip()
		}
		return err
	})
	return p, cmp.Or(err, have.need("rule"))
}

func (d lineReader) reportedTimes() (t ReportedTimes, err error) {
	_, err = d.object(func(key string) (err error) {
		switch key {
		case "t_start_ns":
			t.TStartNS, err = pointer(d.integer())
		case "t_end_ns":
			t.TEndNS, err = pointer(d.integer())
		default:
			err = d.skip()
		}
		return err
	})
	return t, err
}

func (d lineReader) cut() (c Cut, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "path":
			c.Path, err = d.text()
		case "bytes":
			c.Bytes, err = d.size()
		case "kept":
			c.Kept, err = d.size()
		case "tail":
			c.Tail, err = d.size()
		case "sha256":
			c.SHA256, err = d.digest()
		default:
			err = d.skip()
		}
		return err
	})
	return c, cmp.Or(err, have.need("path", "bytes", "kept", "sha256"))
}

func (d lineReader) blobRef() (b BlobRef, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "path":
			b.Path, err = d.text()
		case "bytes":
			b.Bytes, err = d.size()
		case "sha256":
			b.SHA256, err = d.digest()
		case "json":
			if b.JSON, err = d.boolean(); err == nil && !b.JSON {
				err = errors.New("is not true")
			}
		default:
			err = d.skip()
		}
		return err
	})
	return b, cmp.Or(err, have.need("path", "bytes", "sha256"))
}
