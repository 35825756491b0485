package gateway

import (
	stdjson "encoding/json"
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

func rawValue(v jsontext.Value) stdjson.RawMessage { return stdjson.RawMessage(v) }

// textMember is a member of an object that is a string, else nil.
func textMember(object jsontext.Value, name string) *string {
	var m map[string]jsontext.Value
	if object.Kind() != '{' || json.Unmarshal(object, &m) != nil || m[name].Kind() != '"' {
		return nil
	}
	var s string
	if json.Unmarshal(m[name], &s) != nil {
		return nil
	}
	return &s
}

// cliOutcome classifies the output of the command-line tool: timed_out, else
// the exit code. Nil when it says neither.
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
		code = int64(f) // 3.0, where a language knows no integers
	}
	return &schema.CLIOutcome{Kind: "exited", Code: &code}
}

// checkVerdict is pass or fail by the output's passed, which must be there.
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
