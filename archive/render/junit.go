package render

import (
	"encoding/xml"
	"fmt"
	"io"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// junitSuites is the root of JUnit's XML as Jenkins, GitLab and GitHub read it
// (schema: junit-10.xsd of Jenkins' xunit plugin).
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Timestamp  string          `xml:"timestamp,attr,omitempty"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Name      string       `xml:"name,attr"`
	Classname string       `xml:"classname,attr"`
	Time      string       `xml:"time,attr"`
	Skipped   *junitReason `xml:"skipped"`
	Error     *junitReason `xml:"error"`
	Failure   *junitReason `xml:"failure"`
}

type junitReason struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes JUnit XML. An unknown case is an error, not a failure. A skipped case is skipped.
func WriteJUnit(w io.Writer, suites []Suite) error {
	doc := junitSuites{Name: "assay-run", Failures: count(suites, Failed), Errors: count(suites, Unknown)}
	for _, s := range suites {
		one := []Suite{s}
		js := junitSuite{
			Name: schema.Lines(s.Name), Tests: len(s.Cases), Failures: count(one, Failed), Errors: count(one, Unknown),
			Skipped:    count(one, Skipped),
			Time:       fmt.Sprintf("%.3f", s.Seconds),
			Properties: []junitProperty{{"run_id", schema.Lines(s.RunID)}, {"identity", schema.Lines(s.Identity)}},
		}
		if t, err := time.Parse(time.RFC3339Nano, s.Started); err == nil {
			js.Timestamp = t.UTC().Format("2006-01-02T15:04:05") // the schema's type has no zone
		}
		for _, c := range s.Cases {
			jc := junitCase{Name: schema.Lines(c.Rule), Classname: schema.Lines(s.RunID),
				Time: fmt.Sprintf("%.3f", float64(c.Milliseconds)/1000)}
			why := &junitReason{Message: schema.Lines(c.Message), Type: string(c.State),
				Text: schema.Lines(c.details())}
			switch c.State {
			case Failed:
				jc.Failure = why
			case Unknown:
				jc.Error = why
			case Skipped:
				jc.Skipped = &junitReason{Message: schema.Lines(c.Message)}
			}
			js.Cases = append(js.Cases, jc)
		}
		doc.Tests += len(s.Cases)
		doc.Suites = append(doc.Suites, js)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(doc); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
