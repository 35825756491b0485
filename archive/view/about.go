package view

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// about takes over what the documents say of the run as a whole.
func (s *Summary) about(docs *archive.Documents) {
	run, res, h := docs.Run, docs.Result, docs.Health
	s.RunID, s.Command, s.Workdir, s.StartedAt, s.Limits = run.RunID, run.Command, run.Workdir, run.StartedAt,
		res.Limits
	s.Outcome, s.ExitCode, s.Signal, s.ChildNS, s.Error = res.Outcome, res.ExitCode, res.Signal, res.Timings.ChildNS,
		res.Error
	s.Usage, s.Stdio, s.LimitsHit, s.Leftovers, s.Contract = res.Usage, res.Stdio, res.LimitsHit, res.Leftovers,
		res.Contract
	s.Ending, s.Checks, s.Labels, s.Recorder = res.Ending(&run), res.Checks, run.Labels, run.Recorder
	if c := docs.Contract; c != nil {
		s.Checks, s.Protected, s.StrictChecks = c.Summaries(), c.ProtectedChanges, c.StrictChecks
	}
	s.Claims, s.Policy = Sentences(docs), run.Policy
	var spec struct {
		Mode string `json:"mode"`
		User string `json:"user"`
	}
	if json.Unmarshal(run.Spec, &spec) == nil {
		s.Mode, s.User = spec.Mode, spec.User
	}
	s.KernelLayer, s.PolicyLayer, s.SDKLayer = h.KernelLayer, h.PolicyLayer, h.SDKLayer
	s.KernelState = schema.KernelState(h.KernelLayer)
	s.Redaction = h.Redaction
	s.Containment, s.Resistance = h.Containment, h.TamperResistance
	s.Correlation, s.Layers, s.RingbufDrops = h.CgroupCorrelation, h.Layers, h.RingbufDrops
	s.Network, s.EndpointScope, s.Reasons = h.NetworkProtocolCoverage, h.NetworkEndpointClaimScope, h.Reasons
}

// writeAbout writes what the page begins with: a row for each fact, and none
// for what is not known. What matters comes first, since the short page may cut the rest.
func (s *Summary) writeAbout(w io.Writer) {
	row := rows(w)
	row("run", "%s", Clean(s.RunID))
	if len(s.Labels) > 0 {
		var labels []string
		for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
			labels = append(labels, Clean(k)+"="+Clean(s.Labels[k]))
		}
		row("labels", "%s", strings.Join(labels, ", "))
	}
	row("started", "%s in %s", Clean(s.StartedAt), Clean(s.Workdir))
	row("command", "%s", Cut(QuoteArgs(s.Command), 200))
	row("outcome", "%s", Clean(s.Ending))
	if s.Error != nil {
		row("", "%s (%s)", Clean(s.Error.Message), Clean(s.Error.Code))
	}
	if s.Contract != nil {
		row("contract", "%s%s", Clean(*s.Contract), only(s.StrictChecks, " (strict checks)"))
	}
	row("sandbox", "%s", s.sandbox())
	if s.Resistance != "" {
		reached := ""
		for _, r := range s.Reasons {
			if r.Code == reachable {
				reached = "; " + Clean(r.Code) + ": " + Clean(r.Message)
			}
		}
		row("tamper", "resistance %s; processes held together by %s%s", Clean(s.Resistance),
			Clean(cmp.Or(s.Containment, "nothing")), reached)
	}
	row("kernel", "%s; network %s, endpoints %s", s.kernel(), Clean(s.Network), Clean(s.EndpointScope))
	first := slices.Clone(s.Checks)
	passed := func(c schema.CheckSummary) string { return only(c.Result == schema.CheckPassed, "passed") }
	slices.SortStableFunc(first, func(a, b schema.CheckSummary) int { return cmp.Compare(passed(a), passed(b)) })
	for i, c := range first {
		row(only(i == 0, "checks"), "%-7s %s%s", checkWord(c), Clean(c.Name), checkDetail(c))
	}
	for i, p := range s.Protected {
		if i == DefaultLimit {
			row("", "… and %d more", len(s.Protected)-i)
			break
		}
		state := "restored before checking"
		if !p.Restored {
			state = "NOT restored: " + Clean(p.Error)
		}
		row(only(i == 0, "protected"), "%s %s, %s", Clean(p.Path), Clean(p.Change), state)
	}
	row("policy", "%s", s.layer(s.PolicyLayer, "policy"))
	row("sdk", "%s", s.layer(s.SDKLayer, "sdk"))
	row("cgroup", "%s", Clean(s.Correlation))
	s.writeSecrets(w)
	for _, r := range s.Reasons {
		if r.Code != reachable || s.Resistance == "" {
			row("", "%s: %s", Clean(r.Code), Clean(r.Message))
		}
	}
}

// reachable is the code of the reason that stands on the row about tampering.
const reachable = "evidence_reachable"

// sandbox is what held the command, as the run was asked for it.
func (s *Summary) sandbox() string {
	mode := "none"
	if s.Mode != "" {
		mode = "mode " + Clean(s.Mode)
	}
	return mode + only(s.Policy != "", ", policy "+Clean(s.Policy)) + only(s.User != "", ", user "+Clean(s.User))
}

// writeCost writes what the page ends with: what the run used and put out.
func (s *Summary) writeCost(w io.Writer) {
	row := rows(w)
	if used := s.used(); used != "" {
		row("used", "%s", used)
	}
	if len(s.LimitsHit) > 0 {
		row("limits", "%s hit", Clean(strings.Join(s.LimitsHit, ", ")))
	}
	if len(s.Limits.Unenforced) > 0 {
		row("limits", "%s not enforced", Clean(strings.Join(s.Limits.Unenforced, ", ")))
	}
	if s.Leftovers != nil && *s.Leftovers > 0 {
		row("leftovers", "%s", schema.Count(*s.Leftovers, "process outlived the command and was ended",
			"processes outlived the command and were ended"))
	}
	row("output", "%s", s.output())
	row("events", "%d%s", s.Events, counts(s.ByClass))
}

// rows writes rows of a key and a text.
func rows(w io.Writer) func(key, format string, args ...any) {
	return func(key, format string, args ...any) { fmt.Fprintf(w, "%-10s %s\n", key, fmt.Sprintf(format, args...)) }
}

func only(yes bool, s string) string {
	if yes {
		return s
	}
	return ""
}

func checkWord(c schema.CheckSummary) string {
	if c.Result == schema.CheckNotRun {
		return "not run"
	}
	return Clean(c.Result)
}

func checkDetail(c schema.CheckSummary) string {
	detail := ""
	switch {
	case c.TimedOut:
		detail = " (timed out)"
	case c.Result == schema.CheckFailed && c.ExitCode != nil:
		detail = fmt.Sprintf(" (exit %d)", *c.ExitCode)
	}
	// sources are what a check is for
	if n := len(c.Influences); n > 1 || n == 1 && c.Influences[schema.InfluenceSource] == 0 {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(c.Influences)) {
			kinds = append(kinds, fmt.Sprintf("%d %s", c.Influences[kind], Clean(kind)))
		}
		detail += " (read files that the command wrote: " + strings.Join(kinds, ", ") + ")"
	}
	if c.GatesNothing {
		detail += " (proves nothing: it passed before the agent started)"
	}
	return detail
}

// kernel is the state of the kernel layer, and the first reason for it.
func (s *Summary) kernel() string {
	for _, r := range s.Reasons {
		if r.Subject == "kernel" && s.KernelState != schema.Complete {
			return Clean(s.KernelState) + ": " + Clean(r.Message)
		}
	}
	return Clean(s.KernelState)
}

// used tells what the host could tell of the run's resource use.
func (s *Summary) used() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	u := s.Usage
	if u.CPUUserNS != nil && u.CPUSystemNS != nil {
		add("cpu %v user %v system", time.Duration(*u.CPUUserNS).Round(time.Millisecond),
			time.Duration(*u.CPUSystemNS).Round(time.Millisecond))
	}
	if u.MemoryPeakBytes != nil {
		add("memory %s", Size(uint64(*u.MemoryPeakBytes)))
	}
	if u.Processes != nil {
		add("%s", schema.Count(*u.Processes, "process", "processes"))
	}
	if u.IOReadBytes != nil && u.IOWriteBytes != nil {
		add("disk %s read %s written", Size(uint64(*u.IOReadBytes)), Size(uint64(*u.IOWriteBytes)))
	}
	if u.OOMKills != nil && *u.OOMKills > 0 {
		add("%s", schema.Count(*u.OOMKills, "OOM kill", "OOM kills"))
	}
	return strings.Join(parts, ", ")
}

// output tells what went through the standard streams.
func (s *Summary) output() string {
	var parts []string
	for _, st := range []struct {
		name string
		*schema.Stream
	}{{"stdout", s.Stdio.Stdout}, {"stderr", s.Stdio.Stderr}, {"terminal", s.Stdio.Terminal}} {
		if st.Stream == nil {
			continue
		}
		text := st.name + " " + Size(uint64(st.Bytes))
		if st.Truncated {
			text += fmt.Sprintf(" (%s kept)", Size(uint64(st.Captured)))
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "not captured (" + Clean(s.Stdio.Mode) + ")"
	}
	return strings.Join(parts, ", ")
}

func (s *Summary) layer(state, name string) string {
	text, c := Clean(state), s.Layers[name]
	if c.Written > 0 {
		text += fmt.Sprintf(", %d events", c.Written)
	}
	if c.Dropped > 0 {
		text += fmt.Sprintf(", %d lost", c.Dropped)
	}
	return text
}
