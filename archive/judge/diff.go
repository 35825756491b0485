package judge

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// runDiffV0 is the schema of a [Diff].
const runDiffV0 = "assay.runner.run_diff.v0"

// Answers of a diff, beside Unknown.
const (
	Equal     State = "equal"
	Different State = "different"
)

// Diff is what differs between two runs.
type Diff struct {
	Schema string `json:"schema"` // runDiffV0
	Base   Side   `json:"base"`
	Head   Side   `json:"head"`
	// Answer is different if something certainly differs, otherwise unknown if something could not be compared,
	// otherwise equal.
	Answer State `json:"answer"`
	// Verdict are the differences in how the runs ended.
	Verdict []Change `json:"verdict"`
	// Sections compare what the runs did.
	Sections []Section `json:"sections"`
	// Observed are the differences in what could be observed, not in what the runs did. The gaps of each Section say
	// what follows from them.
	Observed []Change `json:"observed"`
	// Capability is the same comparison in the older format.
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

// Change is a fact that differs. It is empty on a side that does not have it.
type Change struct {
	What string `json:"what"`
	Base string `json:"base"`
	Head string `json:"head"`
}

// Section compares the runs' actions of one kind.
type Section struct {
	Name string `json:"name"`
	// Compared is false if one side was not observed at all. Then Sets holds what is known of the other side.
	Compared bool `json:"compared"`
	Sets
	// BaseGaps and HeadGaps say why that side's set may be incomplete. With gaps in the base, an added item may be in
	// both runs. With gaps in the head, a removed one may be.
	BaseGaps []string `json:"base_gaps,omitempty"`
	HeadGaps []string `json:"head_gaps,omitempty"`
}

func (s *Section) answer() State {
	switch {
	case len(s.Added) > 0 && len(s.BaseGaps) == 0, len(s.Removed) > 0 && len(s.HeadGaps) == 0:
		return Different
	case len(s.BaseGaps) > 0 || len(s.HeadGaps) > 0:
		return Unknown
	}
	return Equal
}

// maxListed limits each set that is compared.
const maxListed = 50_000

// Compare compares two bundles. If the runs' working directories differ, paths below them are made relative. A run's
// id is replaced by RUN_ID.
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
		Schema: runDiffV0, Base: side(base), Head: side(head),
		Verdict:    changes(verdict(base.Docs), verdict(head.Docs)),
		Observed:   changes(observed(base.Docs), observed(head.Docs)),
		Capability: capabilityOf(base.Docs, head.Docs),
	}
	for _, s := range []struct {
		name  string
		about view.Subject
		get   func(*record) ([]string, bool)
	}{
		{"hosts", view.Hosts, (*record).hosts},
		{"programs", view.Programs, (*record).programs},
		{"files written", view.Files, (*record).writes},
		{"privileged", view.Privilege, (*record).privileged},
		{"denied", view.Files, (*record).denied},
		{"commands", view.Processes, (*record).commands},
		{"names asked for", view.Hosts, (*record).lookups},
		{"files touched", view.Files, (*record).files},
		{"tool calls", view.Calls, (*record).tools},
		{"policy outcomes", view.Calls, (*record).outcomes},
	} {
		inBase, allBase := s.get(b)
		inHead, allHead := s.get(h)
		sec := Section{Name: s.name, Sets: compare(inBase, inHead), BaseGaps: gaps(base.Docs, s.about, allBase),
			HeadGaps: gaps(head.Docs, s.about, allHead)}
		sec.Compared = s.about == view.Calls || !unobserved(base.Docs) && !unobserved(head.Docs)
		if s.about == view.Calls && view.NoReports(base.Docs) && view.NoReports(head.Docs) {
			sec.BaseGaps, sec.HeadGaps = nil, nil // neither run reports calls
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

// changes returns the facts that differ. Both lists have the same names, with values as Base.
func changes(base, head []Change) []Change {
	all := []Change{}
	for i := range base {
		if c := (Change{base[i].What, base[i].Base, head[i].Base}); c.Base != c.Head {
			all = append(all, c)
		}
	}
	return all
}

// verdict returns the facts about a run's end, as Base.
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
		{What: "sandbox", Base: d.Run.Applied.Sandbox()},
		{What: "limits", Base: d.Run.Applied.Limit(r.Limits.Unenforced)},
	}
}

// observed returns the facts about what could be observed, as Base.
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

// maxShown limits the values of a set that are shown.
const maxShown = 40

var answerWords = map[State]string{
	Equal:     "The runs are equal: nothing differs in what they did, as far as it can be observed.",
	Different: "The runs differ.",
	Unknown:   "Nothing is known to differ, but not everything could be compared.",
}

// WriteText writes the difference for a terminal. "+" marks what only the head has and "-" what only the base has. "?"
// is added if the other side may have it too, but unobserved.
func (d *Diff) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "base  %s  %s\nhead  %s  %s\n\n%s\n", schema.OneLine(d.Base.RunID), schema.OneLine(d.Base.Name),
		schema.OneLine(d.Head.RunID), schema.OneLine(d.Head.Name), answerWords[d.Answer])
	if news := d.news(); news != "" {
		fmt.Fprintf(&b, "New in head: %s.\n", news)
	}
	writeChanges(&b, "verdict", d.Verdict)
	for _, s := range d.Sections {
		if s.answer() == Equal {
			continue
		}
		fmt.Fprintf(&b, "\n%s\n", s.Name)
		if s.Compared {
			writeValues(&b, s.mark("-"), s.Removed)
			writeValues(&b, s.mark("+"), s.Added)
		} else {
			fmt.Fprintf(&b, "  not compared: base has %d, head has %d\n", len(s.Removed)+len(s.Unchanged),
				len(s.Added)+len(s.Unchanged))
		}
		writeGaps(&b, "base", s.BaseGaps)
		writeGaps(&b, "head", s.HeadGaps)
	}
	writeChanges(&b, "what could be observed", d.Observed)
	_, err := io.WriteString(w, b.String())
	return err
}

// news counts the hosts, programs and written files that only the head has.
func (d *Diff) news() string {
	var parts []string
	for _, s := range d.Sections {
		n := len(s.Added)
		switch {
		case n == 0 || !s.Compared:
		case s.Name == "hosts":
			parts = append(parts, schema.Count(n, "host", "hosts"))
		case s.Name == "programs":
			parts = append(parts, schema.Count(n, "program", "programs"))
		case s.Name == "files written":
			parts = append(parts, schema.Count(n, "file written", "files written"))
		}
	}
	return strings.Join(parts, ", ")
}

// mark returns the sign of a value that only one side has.
func (s *Section) mark(sign string) string {
	if sign == "+" && len(s.BaseGaps) > 0 || sign == "-" && len(s.HeadGaps) > 0 {
		return "?" + sign
	}
	return " " + sign
}

func writeChanges(b *strings.Builder, title string, changes []Change) {
	if len(changes) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, c := range changes {
		fmt.Fprintf(b, "  %s: %s -> %s\n", c.What, cmp.Or(schema.OneLine(c.Base), "none"),
			cmp.Or(schema.OneLine(c.Head), "none"))
	}
}

func writeValues(b *strings.Builder, mark string, values []string) {
	for i, v := range values {
		if i == maxShown {
			fmt.Fprintf(b, "  … and %d more; --format json has them all\n", len(values)-i)
			return
		}
		fmt.Fprintf(b, " %s %s\n", mark, view.Cut(schema.OneLine(v), 240))
	}
}

func writeGaps(b *strings.Builder, side string, gaps []string) {
	for _, g := range gaps {
		fmt.Fprintf(b, "    %s: %s\n", side, schema.OneLine(g))
	}
}

// WriteMarkdown writes the difference for a pull request's comment.
func (d *Diff) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## Runs: %s\n\n%s\n\n| | run | bundle |\n|---|---|---|\n", d.Answer, answerWords[d.Answer])
	for _, s := range []struct {
		name string
		Side
	}{{"base", d.Base}, {"head", d.Head}} {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", s.name, code(s.RunID), code(s.Name))
	}
	table := func(title string, changes []Change) {
		if len(changes) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n### %s\n\n| | base | head |\n|---|---|---|\n", title)
		for _, c := range changes {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", c.What, code(cmp.Or(c.Base, "none")), code(cmp.Or(c.Head, "none")))
		}
	}
	table("Verdict", d.Verdict)
	for _, s := range d.Sections {
		if s.answer() == Equal {
			continue
		}
		fmt.Fprintf(&b, "\n### %s%s\n\n", strings.ToUpper(s.Name[:1]), s.Name[1:])
		for _, list := range []struct {
			sign   string
			values []string
		}{{"-", s.Removed}, {"+", s.Added}} {
			word := map[string]string{" -": "only in base", " +": "only in head", "?-": "seen in base alone",
				"?+": "seen in head alone"}[s.mark(list.sign)]
			for i, v := range list.values {
				if !s.Compared {
					break
				}
				if i == maxShown {
					fmt.Fprintf(&b, "- … and %d more\n", len(list.values)-i)
					break
				}
				fmt.Fprintf(&b, "- %s: %s\n", word, code(view.Cut(v, 240)))
			}
		}
		for _, g := range s.BaseGaps {
			fmt.Fprintf(&b, "- base: %s\n", view.Markdown(g))
		}
		for _, g := range s.HeadGaps {
			fmt.Fprintf(&b, "- head: %s\n", view.Markdown(g))
		}
	}
	table("What could be observed", d.Observed)
	_, err := io.WriteString(w, b.String())
	return err
}

// code returns text from evidence as a Markdown code span that is also safe in a table's cell.
func code(s string) string {
	s = strings.ReplaceAll(schema.OneLine(s), "|", `\|`)
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 || s == "" {
		return fence + " " + s + " " + fence
	}
	return fence + s + fence
}
