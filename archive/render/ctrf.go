package render

import (
	"io"
	"time"

	"github.com/go-json-experiment/json/v1"

	"github.com/assay-run/assay-run/schema"
)

// ctrfReport is a report of the Common Test Report Format (ctrf.io), specification 0.0.0.
type ctrfReport struct {
	ReportFormat string      `json:"reportFormat"`
	SpecVersion  string      `json:"specVersion"`
	Results      ctrfResults `json:"results"`
}

type ctrfResults struct {
	Tool    ctrfTool    `json:"tool"`
	Summary ctrfSummary `json:"summary"`
	Tests   []ctrfTest  `json:"tests"`
}

type ctrfTool struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

type ctrfSummary struct {
	Tests   int   `json:"tests"`
	Passed  int   `json:"passed"`
	Failed  int   `json:"failed"`
	Pending int   `json:"pending"`
	Skipped int   `json:"skipped"`
	Other   int   `json:"other"`
	Suites  int   `json:"suites"`
	Start   int64 `json:"start"` // milliseconds since 1970
	Stop    int64 `json:"stop"`
}

type ctrfTest struct {
	Name     string            `json:"name"`
	Status   string            `json:"status"`
	Duration int64             `json:"duration"` // milliseconds
	Suite    []string          `json:"suite,omitempty"`
	Message  string            `json:"message,omitempty"`
	Trace    string            `json:"trace,omitempty"`
	RawState string            `json:"rawStatus,omitempty"`
	Extra    map[string]string `json:"extra,omitempty"`
}

// WriteCTRF writes a CTRF document. An unknown case has the status "other".
func WriteCTRF(w io.Writer, version string, suites []Suite) error {
	r := ctrfResults{Tool: ctrfTool{"assay-run", version}, Tests: []ctrfTest{}}
	r.Summary = ctrfSummary{
		Passed: count(suites, Passed), Failed: count(suites, Failed), Skipped: count(suites, Skipped),
		Other: count(suites, Unknown), Suites: len(suites),
	}
	for _, s := range suites {
		if t, err := time.Parse(time.RFC3339Nano, s.Started); err == nil {
			start := t.UnixMilli()
			if r.Summary.Start == 0 || start < r.Summary.Start {
				r.Summary.Start = start
			}
			r.Summary.Stop = max(r.Summary.Stop, start+int64(s.Seconds*1000))
		}
		for _, c := range s.Cases {
			status := string(c.State)
			if c.State == Unknown {
				status = "other"
			}
			t := ctrfTest{
				Name: schema.Lines(c.Rule), Status: status, RawState: string(c.State), Duration: c.Milliseconds,
				Message: schema.Lines(c.Message), Trace: schema.Lines(c.details()),
				Extra: map[string]string{"run_id": schema.Lines(s.RunID), "identity": schema.Lines(s.Identity)},
			}
			if s.Name != "" {
				t.Suite = []string{schema.Lines(s.Name)}
			}
			r.Tests = append(r.Tests, t)
		}
	}
	r.Summary.Tests = len(r.Tests)
	return writeJSON(w, ctrfReport{"CTRF", "0.0.0", r})
}

// writeJSON writes v as indented JSON.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
