package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// Subject is what a conclusion is about.
type Subject string

// Subjects.
const (
	Programs  Subject = "programs"  // what was executed
	Files     Subject = "files"     // what was opened, written, changed, removed
	Hosts     Subject = "hosts"     // whom the run talked to
	Privilege Subject = "privilege" // system calls that need privilege
	Calls     Subject = "calls"     // tool calls and what belongs to them
	Verdict   Subject = "verdict"   // how the run ended
)

// dimensions are the entries of the health's coverage that concern a subject.
var dimensions = map[Subject][]string{
	Programs: {"process"}, Files: {"filesystem"}, Hosts: {"network"}, Privilege: {"privilege"},
}

// amountsOnly are the beginnings of the names of blind spots that hide how much,
// or which number, and never whether something happened.
var amountsOnly = []string{"bytes are counted", "bytes written through", "pids are those", "traffic with more than", "which times"}

// Gaps says why the bundle does not tell everything about the subject, one
// sentence each. None means that what the bundle does not show did not happen,
// as far as the recorder's methods reach.
func Gaps(d *archive.Documents, about Subject) []string {
	var gaps []string
	add := func(format string, args ...any) { gaps = append(gaps, fmt.Sprintf(format, args...)) }
	h := &d.Health
	if d.Result.Outcome == schema.OutcomeIncomplete {
		add("the run was interrupted: its end was not recorded")
	}
	if about == Verdict {
		return gaps
	}
	if about == Calls {
		return append(gaps, callGaps(d)...)
	}
	switch h.KernelLayer {
	case schema.Complete:
	case schema.Absent:
		add("there is no kernel layer: what processes did was not observed%s", because(h, "kernel"))
	default:
		add("the kernel layer is not complete%s", because(h, "kernel"))
	}
	if h.KernelLayer != schema.Absent && h.CgroupCorrelation != schema.Clean {
		add("what belongs to the run is not certain: some of its processes were not kept in its cgroup%s", because(h, "cgroup"))
	}
	for _, r := range h.Reasons {
		if r.Subject == "surface" {
			add("%s", r.Message)
		}
	}
	if h.KernelLayer == schema.Absent {
		return gaps
	}
	if about == Hosts && h.NetworkEndpointClaimScope != schema.PeerSet {
		add("the list of hosts may not be whole: network coverage is %s, and endpoints are %s", words(h.NetworkProtocolCoverage), words(h.NetworkEndpointClaimScope))
	}
	for _, spot := range Exercised(d, about) {
		add("the run used what the recorder cannot see: %s", spot)
	}
	return gaps
}

// Exercised are the blind spots of the subject that the run used and that can
// hide something.
func Exercised(d *archive.Documents, about Subject) []string {
	var spots []string
	for _, c := range d.Health.Coverage {
		if !slices.Contains(dimensions[about], c.Dimension) {
			continue
		}
		for _, spot := range c.KnownBlindSpots {
			if spot.Exercised != nil && *spot.Exercised && !amount(spot.Name) {
				spots = append(spots, spot.Name)
			}
		}
	}
	return spots
}

func amount(name string) bool {
	for _, prefix := range amountsOnly {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func callGaps(d *archive.Documents) []string {
	var gaps []string
	h, c := &d.Health, &d.Correlation
	if Nobody(d) {
		return append(gaps, "nobody reported tool calls: what belongs to a call cannot be told")
	}
	if c.Status != schema.Clean {
		gaps = append(gaps, "calls and what was observed could not all be matched: correlation is "+c.Status)
	}
	for _, name := range []string{"sdk", "policy", "turns", "audit"} {
		if n := h.Layers[name].Dropped; n > 0 {
			gaps = append(gaps, fmt.Sprintf("%d lines of the %s layer were lost", n, name))
		}
	}
	return gaps
}

// because gives the first reason that the health has for a subject.
func because(h *schema.ObservationHealth, subject string) string {
	for _, r := range h.Reasons {
		if r.Subject == subject {
			return " (" + r.Message + ")"
		}
	}
	if subject == "kernel" && h.RingbufDrops > 0 {
		return fmt.Sprintf(" (%d events were lost)", h.RingbufDrops)
	}
	return ""
}

func words(s string) string { return strings.ReplaceAll(s, "_", " ") }

// Nobody says that there was no report of tool calls at all.
func Nobody(d *archive.Documents) bool {
	h := &d.Health
	return h.SDKLayer == schema.Absent && h.PolicyLayer == schema.Absent && h.Layers["turns"].Written == 0
}
