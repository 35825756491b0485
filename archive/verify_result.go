package archive

import (
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// lifecycle checks how events.ndjson ends, and that it and result.json tell
// the same end.
func (v *verifier) lifecycle(f facts) {
	if f.result == nil || slices.Contains(v.report.Unfinished, schema.EventsPath) {
		return
	}
	bad := func(code Code, member, format string, args ...any) {
		v.report.add(problem(code, member, format, args...))
	}
	last, ended, err := v.lines.end()
	if err != nil {
		return // reported with its line
	}
	if !ended {
		if f.result.Outcome != schema.OutcomeIncomplete {
			p := problem(CodeLifecycle, schema.EventsPath, "the last line is not %s, and the outcome is %s", schema.RunFinished, f.result.Outcome)
			p.Line = v.count(schema.EventsPath)
			v.report.add(p)
		}
		return
	}
	if !sameJSON(last.ExitCode, f.result.ExitCode) {
		bad(CodeResult, schema.ResultPath, "exit_code is not the %s of %s", last.ExitCode, schema.RunFinished)
	}
	// The name stands beside the number; older builds wrote it in the number's
	// place, or not at all.
	name := last.Signal
	if name.Kind() == '0' && f.result.Signal != nil {
		name = last.SignalName
	}
	if name != nil && !sameJSON(name, f.result.Signal) {
		bad(CodeResult, schema.ResultPath, "signal is not the %s of %s", last.Signal, schema.RunFinished)
	}
}

// runEnd is what run_finished tells.
type runEnd struct {
	Type       string         `json:"type"`
	ExitCode   jsontext.Value `json:"exit_code"`
	Signal     jsontext.Value `json:"signal"`
	SignalName jsontext.Value `json:"signal_name"`
}

// end is the lifecycle's last line, and whether that is run_finished; the error
// is the line's.
func (v *lineVerifier) end() (last runEnd, ended bool, err error) {
	if len(v.lastEvent) == 0 {
		return last, false, nil
	}
	if err := schema.Validate(schema.EventV0, v.lastEvent); err != nil {
		return last, false, err
	}
	err = json.Unmarshal(v.lastEvent, &last)
	return last, last.Type == schema.RunFinished, err
}

// sameJSON compares a value of a lifecycle line with one of a document.
func sameJSON[T comparable](raw jsontext.Value, p *T) bool {
	var q *T
	if err := json.Unmarshal(raw, &q); err != nil {
		return false // another kind of value
	}
	return p == nil && q == nil || p != nil && q != nil && *p == *q
}

// badStream tells whether a stream's numbers contradict each other. The
// subtraction is of sizes that the manifest's own bounds.
func badStream(s *schema.Stream) bool {
	kept := s.Captured - s.RedactedBytes
	return kept < 0 || kept > s.Bytes || s.Truncated != (kept < s.Bytes)
}

// result checks result.json by itself and against the captured streams.
func (v *verifier) result(r *schema.Result) {
	bad := func(format string, args ...any) {
		v.report.add(problem(CodeResult, schema.ResultPath, format, args...))
	}
	switch {
	case r.ExitCode != nil && r.Signal != nil:
		bad("there is both an exit_code and a signal")
	case r.Outcome == schema.OutcomeExited && r.ExitCode == nil:
		bad("outcome is exited, and exit_code is null")
	case r.Outcome == schema.OutcomeSignaled && r.Signal == nil:
		bad("outcome is signaled, and signal is null")
	}
	if (r.Outcome == schema.OutcomeIncomplete || r.Outcome == schema.OutcomeInfraError) && r.ErrorSource == nil {
		bad("outcome is %s, and error_source is null", r.Outcome)
	}
	for _, s := range []struct {
		path   string
		stream *schema.Stream
	}{{schema.StdoutPath, r.Stdio.Stdout}, {schema.StderrPath, r.Stdio.Stderr}} {
		size, kept := v.sizes[s.path]
		if _, listed := v.manifest.Files[s.path]; listed && !kept {
			continue // missing, as was reported
		}
		switch {
		case s.stream == nil && kept && size > 0:
			bad("%s is in the bundle, and the stream is null", s.path)
		case s.stream != nil && size != s.stream.Captured:
			bad("%d bytes of %s were captured, the bundle has %d", s.stream.Captured, s.path, size)
		case s.stream != nil && badStream(s.stream):
			bad("%s: captured %d of %d bytes, %d more by redaction, truncated %t", s.path, s.stream.Captured, s.stream.Bytes, s.stream.RedactedBytes, s.stream.Truncated)
		}
	}
}
