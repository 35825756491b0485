package judge

import (
	"context"
	"fmt"
	"strings"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// RunDiffV0 is the schema of a [Diff].
const RunDiffV0 = "assay.runner.run_diff.v0"

// Answers of a diff, beside Unknown.
const (
	Equal     State = "equal"
	Different State = "different"
)

// Diff is what differs between two runs.
type Diff struct {
	Schema string `json:"schema"` // RunDiffV0
	Base   Side   `json:"base"`
	Head   Side   `json:"head"`
	// Answer is different when something surely differs, unknown when nothing
	// does and something could not be compared, else equal.
	Answer State `json:"answer"`
	// Verdict has the facts about the runs' ends that differ.
	Verdict []Change `json:"verdict"`
	// Sections compare what the runs did.
	Sections []Section `json:"sections"`
	// Observed has the facts about what could be observed that differ. They are
	// no difference of what the runs did; see each Section's Gaps for what
	// follows from them.
	Observed []Change `json:"observed"`
	// Capability is the same in the parent format.
	Capability *Capability `json:"capability_diff"`
}

// Side is one of the two runs.
type Side struct {
	Name      string   `json:"name"`
	RunID     string   `json:"run_id"`
	Identity  string   `json:"identity"`
	Verified  bool     `json:"verified"`
	StartedAt string   `json:"started_at"`
	Command   []string `json:"command"`
}

// Change is a fact that differs. Empty is a fact that one side does not have.
type Change struct {
	What string `json:"what"`
	Base string `json:"base"`
	Head string `json:"head"`
}

// Section compares the runs' actions of one kind.
type Section struct {
	Name string `json:"name"`
	// Compared is false when one side was not observed at all; Sets then holds
	// what is known of the other.
	Compared bool `json:"compared"`
	Sets
	// BaseGaps and HeadGaps say why that side's set may not be whole. With gaps
	// in the base what is added may have been there before; with gaps in the
	// head what is removed may be there still.
	BaseGaps []string `json:"base_gaps,omitempty"`
	HeadGaps []string `json:"head_gaps,omitempty"`
}

// answer is the section's own answer.
func (s *Section) answer() State {
	switch {
	case len(s.Added) > 0 && len(s.BaseGaps) == 0, len(s.Removed) > 0 && len(s.HeadGaps) == 0:
		return Different
	case len(s.BaseGaps) > 0 || len(s.HeadGaps) > 0:
		return Unknown
	}
	return Equal
}

// maxListed bounds each set that is compared.
const maxListed = 50_000

// Compare compares two bundles. Paths below each run's working directory are
// compared relative to it when the two differ, and a run's own id stands as
// RUN_ID.
func Compare(ctx context.Context, base, head *view.Bundle) (*Diff, error) {
	b, err := gather(ctx, base)
	if err != nil {
		return nil, err
	}
	h, err := gather(ctx, head)
	if err != nil {
		return nil, err
	}
	b.relative, h.relative = b.workdir != h.workdir, b.workdir != h.workdir
	d := &Diff{
		Schema: RunDiffV0, Base: side(base), Head: side(head),
		Verdict:    changes(verdict(base.Docs), verdict(head.Docs)),
		Observed:   changes(observed(base.Docs), observed(head.Docs)),
		Capability: CapabilityOf(base.Docs, head.Docs),
	}
	for _, s := range []struct {
		name  string
		about view.Subject
		get   func(*facts) ([]string, bool)
	}{
		{"hosts", view.Hosts, (*facts).hosts},
		{"programs", view.Programs, (*facts).programs},
		{"files written", view.Files, (*facts).writes},
		{"privileged", view.Privilege, (*facts).privileged},
		{"denied", view.Files, (*facts).denied},
		{"commands", view.Programs, (*facts).commands},
		{"names asked for", view.Hosts, (*facts).lookups},
		{"files touched", view.Files, (*facts).files},
		{"tool calls", view.Calls, (*facts).tools},
		{"policy outcomes", view.Calls, (*facts).outcomes},
	} {
		inBase, allBase := s.get(b)
		inHead, allHead := s.get(h)
		sec := Section{Name: s.name, Sets: compare(inBase, inHead), BaseGaps: gaps(base.Docs, s.about, allBase),
			HeadGaps: gaps(head.Docs, s.about, allHead)}
		sec.Compared = s.about == view.Calls || !unobserved(base.Docs) && !unobserved(head.Docs)
		if s.about == view.Calls && view.Nobody(base.Docs) && view.Nobody(head.Docs) {
			sec.BaseGaps, sec.HeadGaps = nil, nil // neither run was one that reports calls
		}
		d.Sections = append(d.Sections, sec)
	}
	d.Answer = d.answer()
	return d, nil
}

func unobserved(d *archive.Documents) bool { return d.Health.KernelLayer == schema.Absent }

func (d *Diff) answer() State {
	answer := Equal
	if len(d.Verdict) > 0 {
		return Different
	}
	for i := range d.Sections {
		switch d.Sections[i].answer() {
		case Different:
			return Different
		case Unknown:
			answer = Unknown
		}
	}
	return answer
}

func gaps(d *archive.Documents, about view.Subject, all bool) []string {
	var g []string
	for _, gap := range view.Claim(d, about) {
		g = append(g, gap.String())
	}
	if !all {
		g = append(g, fmt.Sprintf("there were more than the %d that are compared", maxListed))
	}
	return g
}

func side(b *view.Bundle) Side {
	return Side{Name: b.Name, RunID: b.RunID(), Identity: b.Identity(), Verified: b.Verified(),
		StartedAt: b.Docs.Run.StartedAt, Command: b.Docs.Run.Command}
}

// changes pairs facts of the same name and keeps those that differ.
func changes(base, head []Change) []Change {
	all := []Change{}
	for i := range base {
		if c := (Change{base[i].What, base[i].Base, head[i].Base}); c.Base != c.Head {
			all = append(all, c)
		}
	}
	return all
}

// verdict are the facts about a run's end, as Base.
func verdict(d *archive.Documents) []Change {
	r := &d.Result
	exit, signal, contract := "", "", ""
	if r.ExitCode != nil {
		exit = fmt.Sprint(*r.ExitCode)
	}
	if r.Signal != nil {
		signal = *r.Signal
	}
	if r.Contract != nil {
		contract = *r.Contract
	}
	return []Change{
		{What: "outcome", Base: r.Outcome}, {What: "exit code", Base: exit}, {What: "signal", Base: signal},
		{What: "contract", Base: contract}, {What: "limits hit", Base: strings.Join(r.LimitsHit, ", ")},
	}
}

// observed are the facts about what could be observed, as Base.
func observed(d *archive.Documents) []Change {
	h := &d.Health
	return []Change{
		{What: "kernel layer", Base: schema.KernelState(h.KernelLayer)}, {What: "policy layer", Base: h.PolicyLayer},
		{What: "sdk layer", Base: h.SDKLayer},
		{What: "cgroup correlation", Base: h.CgroupCorrelation},
		{What: "network coverage", Base: h.NetworkProtocolCoverage},
		{What: "network endpoints", Base: h.NetworkEndpointClaimScope},
	}
}
