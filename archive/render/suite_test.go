package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// hostile is text that a bundle may hold and a format must not take for its own.
const hostile = "x ]]> <script>alert(1)</script> \x1b[31m \x00 \xff \u202e | `code` ::error::y\n::error::z"

func sample() []Suite {
	return []Suite{
		{Name: "a b.tar.gz", RunID: "run_1", Identity: "sha256:00", Started: "2026-01-02T03:04:05.6Z", Seconds: 1.5,
			Cases: []Case{
				{Rule: "good", State: Passed, Message: "nothing breaks the rule"},
				{Rule: "bad", State: Failed, Message: "1 event breaks the rule",
					Details: []Detail{{Text: hostile, Layer: "layers/kernel.ndjson", Line: 7}}},
				{Rule: hostile, State: Unknown, Message: hostile, Details: []Detail{{Text: "because"}}},
				{Rule: "let go", State: Skipped, Message: "not known"},
			}},
		{Name: "-", RunID: "run_2", Cases: []Case{{Rule: "good", State: Passed, Message: "fine"}}},
	}
}

func written(t *testing.T, write func(io.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"\x1b", "\x00", "\u202e"} {
		if bytes.Contains(b.Bytes(), []byte(bad)) {
			t.Errorf("%q is written raw", bad)
		}
	}
	if !utf8.Valid(b.Bytes()) {
		t.Error("not UTF-8")
	}
	return b.Bytes()
}

func TestSARIFIsOfItsSchema(t *testing.T) {
	doc := written(t, func(w io.Writer) error { return WriteSARIF(w, "1.0", sample()) })
	validate(t, "testdata/sarif-2.1.0-rtm.5.json", doc)
	var log sarifLog
	if err := json.Unmarshal(doc, &log); err != nil {
		t.Fatal(err)
	}
	if n := len(log.Runs); n != 2 {
		t.Fatalf("%d runs", n)
	}
	kinds := []string{}
	for _, r := range log.Runs[0].Results {
		kinds = append(kinds, r.Kind)
	}
	if got := strings.Join(kinds, " "); got != "pass fail open notApplicable" {
		t.Errorf("kinds are %s", got)
	}
}

// validate checks a document against a JSON Schema that others publish.
func validate(t *testing.T, file string, doc []byte) {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err == nil {
		err = schema.Validate(v)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestCTRFIsOfItsSchema(t *testing.T) {
	doc := written(t, func(w io.Writer) error { return WriteCTRF(w, "1.0", sample()) })
	validate(t, "testdata/ctrf-schema-0.0.json", doc)
	var r ctrfReport
	if err := json.Unmarshal(doc, &r); err != nil {
		t.Fatal(err)
	}
	if s := r.Results.Summary; s.Tests != 5 || s.Passed != 2 || s.Failed != 1 || s.Other != 1 || s.Skipped != 1 {
		t.Errorf("summary is %+v", s)
	}
}

// TestJUnitIsReadByAnotherProgram uses Debian's python3-junitparser.
func TestJUnitIsReadByAnotherProgram(t *testing.T) {
	const script = `
import sys, junitparser
for suite in junitparser.JUnitXml.fromfile(sys.argv[1]):
    print(suite.name, suite.tests, suite.failures, suite.errors, suite.skipped)
    for case in suite:
        print(" ", [type(r).__name__ for r in case.result])
`
	file := t.TempDir() + "/x.xml"
	doc := written(t, func(w io.Writer) error { return WriteJUnit(w, sample()) })
	if err := os.WriteFile(file, doc, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/usr/bin/python3", "-c", script, file).CombinedOutput()
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("python3 is not installed")
	}
	if err != nil && strings.Contains(string(out), "No module named") {
		t.Skipf("needs Debian's python3-junitparser: %s", out)
	}
	const want = "a b.tar.gz 4 1 1 1\n  []\n  ['Failure']\n  ['Error']\n  ['Skipped']\n- 1 0 0 0\n  []\n"
	if err != nil || string(out) != want {
		t.Errorf("%v, read:\n%s\nwant:\n%s", err, out, want)
	}
}

func TestAnnotationsCannotBeForgedAndAreCapped(t *testing.T) {
	var many []Case
	for i := range 30 {
		many = append(many, Case{Rule: fmt.Sprint("rule", i), State: Failed, Message: strings.Repeat("x", 9000)})
	}
	doc := string(written(t, func(w io.Writer) error {
		return WriteAnnotations(w, append(sample(), Suite{Name: "many", Cases: many}))
	}))
	lines := strings.Split(strings.TrimSuffix(doc, "\n"), "\n")
	if len(lines) != 11 { // 10 errors and 1 warning
		t.Errorf("%d annotations", len(lines))
	}
	for _, l := range lines {
		if !strings.HasPrefix(l, "::error title=") && !strings.HasPrefix(l, "::warning title=") || len(l) > 5000 {
			t.Errorf("annotation %.100q of %d bytes", l, len(l))
		}
	}
	if last := lines[9]; !strings.Contains(last, "22 more rules") {
		t.Errorf("the last error is %q", last)
	}
}

func TestSummaryFits(t *testing.T) {
	var suites []Suite
	for i := range 500 {
		s := sample()[0]
		s.Name = fmt.Sprint("bundle", i)
		s.Cases[0].Details = []Detail{{Text: strings.Repeat(hostile, 100)}}
		suites = append(suites, s)
	}
	doc := written(t, func(w io.Writer) error { return WriteSummary(w, suites, 50_000) })
	if len(doc) > 50_000 || !bytes.Contains(doc, []byte("more bundles, for which there was no room")) {
		t.Errorf("%d bytes", len(doc))
	}
	if bytes.Contains(doc, []byte("<script")) && !bytes.Contains(doc, []byte(`\<script`)) {
		t.Error("a tag is written raw")
	}
}
