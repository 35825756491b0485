package render

import (
	"io"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// sarifLog is the root of SARIF 2.1.0 (OASIS), as far as it is used.
type sarifLog struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool       sarifTool         `json:"tool"`
	Automation *sarifAutomation  `json:"automationDetails,omitempty"`
	Artifacts  []sarifArtifact   `json:"artifacts,omitempty"`
	Results    []sarifResult     `json:"results"`
	Properties map[string]string `json:"properties,omitempty"`
}

type sarifAutomation struct {
	ID string `json:"id"`
}

type sarifTool struct {
	Driver sarifDriver `json:"driver"`
}

type sarifDriver struct {
	Name    string      `json:"name"`
	Version string      `json:"version,omitempty"`
	Rules   []sarifRule `json:"rules"`
}

type sarifRule struct {
	ID string `json:"id"`
}

type sarifArtifact struct {
	Location sarifURI          `json:"location"`
	Hashes   map[string]string `json:"hashes,omitempty"`
}

type sarifURI struct {
	URI string `json:"uri"`
}

type sarifText struct {
	Text string `json:"text"`
}

type sarifResult struct {
	RuleID       string            `json:"ruleId"`
	RuleIndex    int               `json:"ruleIndex"`
	Kind         string            `json:"kind"`
	Level        string            `json:"level"`
	Message      sarifText         `json:"message"`
	Locations    []sarifLocation   `json:"locations,omitempty"`
	Fingerprints map[string]string `json:"partialFingerprints,omitempty"`
}

type sarifLocation struct {
	Physical sarifPhysical  `json:"physicalLocation"`
	Logical  []sarifLogical `json:"logicalLocations,omitempty"`
}

type sarifPhysical struct {
	Artifact sarifURI    `json:"artifactLocation"`
	Region   sarifRegion `json:"region"`
}

type sarifRegion struct {
	StartLine uint64 `json:"startLine"`
}

type sarifLogical struct {
	Name string `json:"fullyQualifiedName"`
}

// sarifKinds are the kind and level of each state. "open" is SARIF's word for undecided.
var sarifKinds = map[State][2]string{
	Passed: {"pass", "none"}, Failed: {"fail", "error"}, Unknown: {"open", "none"}, Skipped: {"notApplicable", "none"},
}

// WriteSARIF writes a SARIF log with a SARIF run for each bundle. A result's physical location is the bundle, with the
// line in the member that the logical location names.
func WriteSARIF(w io.Writer, version string, suites []Suite) error {
	log := sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{}}
	for _, s := range suites {
		run := sarifRun{
			Tool:       sarifTool{sarifDriver{Name: "assay-run", Version: version, Rules: []sarifRule{}}},
			Automation: &sarifAutomation{schema.Lines(s.RunID)}, Results: []sarifResult{},
			Artifacts:  []sarifArtifact{{sarifURI{uri(s.Name)}, nil}},
			Properties: map[string]string{"run_id": schema.Lines(s.RunID), "identity": schema.Lines(s.Identity)},
		}
		for _, c := range s.Cases {
			run.add(s, &c)
		}
		log.Runs = append(log.Runs, run)
	}
	return writeJSON(w, log)
}

func (r *sarifRun) add(s Suite, c *Case) {
	rules := &r.Tool.Driver.Rules
	at := slices.IndexFunc(*rules, func(x sarifRule) bool { return x.ID == schema.Lines(c.Rule) })
	if at < 0 {
		at = len(*rules)
		*rules = append(*rules, sarifRule{schema.Lines(c.Rule)})
	}
	kind := sarifKinds[c.State]
	base := sarifResult{RuleID: schema.Lines(c.Rule), RuleIndex: at, Kind: kind[0], Level: kind[1]}
	if c.State != Failed || len(c.Details) == 0 {
		base.Message.Text = schema.Lines(c.Message)
		if d := c.details(); d != "" {
			base.Message.Text += "\n" + schema.Lines(d)
		}
		base.Locations = []sarifLocation{{sarifPhysical{sarifURI{uri(s.Name)}, sarifRegion{1}}, nil}}
		r.Results = append(r.Results, base)
		return
	}
	for _, d := range c.Details {
		one := base
		one.Message.Text = schema.Lines(c.Message + ": " + d.Text)
		loc := sarifLocation{Physical: sarifPhysical{sarifURI{uri(s.Name)}, sarifRegion{max(d.Line, 1)}}}
		if d.Layer != "" {
			loc.Logical = []sarifLogical{{d.Layer}}
		}
		one.Locations = []sarifLocation{loc}
		one.Fingerprints = map[string]string{"assayRun/v1": schema.Lines(c.Rule + "\x00" + d.Text)}
		r.Results = append(r.Results, one)
	}
}

// uri returns a file's name as a relative reference of RFC 3986.
func uri(name string) string {
	if name == "-" {
		name = "stdin"
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~/", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}
