package gateway

import (
	"bytes"
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// mayHave reports whether value may be an object with a member of the name. It only searches the bytes, so that most
// values need not be decoded.
func mayHave(value jsontext.Value, name string) bool {
	return value.Kind() == '{' && (bytes.Contains(value, []byte(name)) || bytes.IndexByte(value, '\\') >= 0)
}

// textMember returns a string member of an object; nil if there is none.
func textMember(object jsontext.Value, name string) *string {
	if !mayHave(object, name) {
		return nil
	}
	var m map[string]jsontext.Value
	if json.Unmarshal(object, &m) != nil || m[name].Kind() != '"' {
		return nil
	}
	var s string
	if json.Unmarshal(m[name], &s) != nil {
		return nil
	}
	return &s
}

// cliOutcome classifies the output of the command-line tool: timed_out, else the exit code. It returns nil if the
// output has neither.
func cliOutcome(output jsontext.Value) *schema.CLIOutcome {
	var o struct {
		TimedOut jsontext.Value `json:"timed_out"`
		ExitCode jsontext.Value `json:"exit_code"`
	}
	if output.Kind() != '{' || json.Unmarshal(output, &o) != nil {
		return nil
	}
	if o.TimedOut.Kind() == 't' {
		return &schema.CLIOutcome{Kind: "timeout"}
	}
	if o.ExitCode.Kind() != '0' {
		return nil
	}
	code, err := strconv.ParseInt(string(o.ExitCode), 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(string(o.ExitCode), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
			return nil
		}
		code = int64(f) // such as 3.0, from a language without integers
	}
	return &schema.CLIOutcome{Kind: "exited", Code: &code}
}

// checkVerdict returns pass or fail, from the required member passed of the output.
func checkVerdict(output jsontext.Value) string {
	var o struct {
		Passed jsontext.Value `json:"passed"`
	}
	if output.Kind() == '{' && json.Unmarshal(output, &o) == nil {
		switch o.Passed.Kind() {
		case 't':
			return schema.VerdictPass
		case 'f':
			return schema.VerdictFail
		}
	}
	return schema.VerdictNotRun
}

// saysFailed reports whether a result says that its tool failed, as an MCP result does with isError.
func saysFailed(output jsontext.Value) bool {
	if !mayHave(output, "isError") {
		return false
	}
	var o struct {
		IsError jsontext.Value `json:"isError"`
	}
	return json.Unmarshal(output, &o) == nil && o.IsError.Kind() == 't'
}

// maxCode limits a tool's own error code, in bytes.
const maxCode = 128

// toolFailure returns the outcome of a call whose tool failed. The tool's error code and whether a retry may help
// come from the failure itself, its data, or its structured content. A number is JSON-RPC's code, not the tool's.
func toolFailure(failure jsontext.Value) schema.CallOutcome {
	type own struct {
		Code      jsontext.Value `json:"code"`
		Retryable jsontext.Value `json:"retryable"`
	}
	var f struct {
		own
		Data       jsontext.Value `json:"data"`
		Structured jsontext.Value `json:"structuredContent"`
	}
	o := failedWith(schema.FailToolError, false)
	if failure.Kind() != '{' || json.Unmarshal(failure, &f) != nil {
		return o
	}
	said := []own{f.own, {}, {}}
	for i, v := range []jsontext.Value{f.Data, f.Structured} {
		if v.Kind() == '{' && json.Unmarshal(v, &said[i+1]) != nil {
			said[i+1] = own{}
		}
	}
	for _, s := range said {
		var code string
		if s.Code.Kind() == '"' && json.Unmarshal(s.Code, &code) == nil && code != "" && len(code) <= maxCode &&
			o.Code == schema.FailToolError {
			o.Code = code
		}
		if k := s.Retryable.Kind(); k == 't' || k == 'f' {
			may := k == 't'
			o.Retryable = &may
		}
	}
	switch o.Code {
	case schema.CallPolicyDenied, schema.FailDeadline, schema.FailCancelled, schema.FailCallbackLost:
		o.Code = schema.FailToolError // the gateway's own value
	}
	return o
}
