package view

import (
	"cmp"
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
	Processes Subject = "processes" // who executed it, with which arguments, and how it ended
	Files     Subject = "files"     // what was opened, written, changed, removed
	Hosts     Subject = "hosts"     // hosts that the run contacted
	Privilege Subject = "privilege" // system calls that need privilege
	Calls     Subject = "calls"     // tool calls and what belongs to them
	Verdict   Subject = "verdict"   // how the run ended
	Models    Subject = "models"    // requests to models
	Tokens    Subject = "tokens"    // what they used
	Cost      Subject = "cost"      // what they cost
	ModelPath Subject = "path"      // how models could be reached
)

// dimensions maps a coverage dimension to the subject that its blind spots can hide if they have no known id.
var dimensions = map[string]Subject{"process": Programs, "filesystem": Files, "network": Hosts, "privilege": Privilege}

// hides reports whether a blind spot of a dimension can hide something about the subject. decided is false if the
// blind spot's id is unknown, so that the answer is only an assumption.
func hides(s schema.BlindSpot, dimension string, about Subject) (hides, decided bool) {
	if about == Processes {
		about = Programs
	}
	if hides, known := s.CanHide(); known {
		return slices.Contains(hides, string(about)), true
	}
	return dimensions[dimension] == about, false
}

// Gap is one reason why a bundle does not tell everything about a subject.
type Gap struct {
	Text   string
	Remedy string // what would close the gap; empty if unknown
	Spot   string // the id of the blind spot that is the reason; empty for another reason
	Call   string // the call that is the reason, with its operation; empty for another reason
}

// String returns the gap and its remedy in one line.
func (g Gap) String() string {
	if g.Remedy == "" {
		return g.Text
	}
	return g.Text + "; " + g.Remedy
}

// Claim returns the reasons why the bundle may not show everything about a subject, the most serious first. Without
// gaps, what the bundle does not show did not happen. All readers draw their conclusions with this function.
func Claim(d *archive.Documents, about Subject) []Gap {
	var gaps []Gap
	add := func(remedy, format string, args ...any) {
		gaps = append(gaps, Gap{Text: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	h := &d.Health
	if d.Result.Outcome == schema.OutcomeIncomplete {
		add("run it again to its end", "the run was interrupted: its end was not recorded")
	}
	if about == Verdict {
		return gaps
	}
	switch about {
	case Models, Tokens, Cost, ModelPath:
		return append(gaps, modelGaps(d, about)...)
	}
	if about == Calls {
		return append(gaps, callGaps(d)...)
	}
	switch h.KernelLayer {
	case schema.Complete:
	case schema.Absent:
		add(remedy(h, "kernel"), "there is no kernel layer: what processes did was not observed%s",
			because(h, "kernel"))
		return gaps
	default:
		if !onlyBlindSpots(h) { // blind spots follow below, for the subjects that they can hide
			add(remedy(h, "kernel"), "the kernel layer is not complete%s", because(h, "kernel"))
		}
	}
	if h.CgroupCorrelation != schema.Clean {
		add(remedy(h, "cgroup"),
			"what belongs to the run is not certain: some of its processes were not kept in its cgroup%s",
			because(h, "cgroup"))
	}
	if formV0(h) && (about == Files || about == Privilege || about == Processes) {
		add("record it without --compat v0",
			"the bundle has the form of v0, which holds executions, opens and connections alone")
	}
	for _, r := range h.Reasons {
		if r.Subject == "surface" {
			add(r.Remedy, "%s", r.Message)
		}
	}
	for _, r := range h.Reasons { // after those about the surface, which are more serious
		if r.Code == "engine_asked" {
			add(r.Remedy, "%s", r.Message)
		}
	}
	for _, spot := range blindSpots(d, about) {
		what := "the run used what the recorder cannot see"
		if spot.Exercised == nil {
			what = "it is not known whether the run used what the recorder cannot see"
		}
		add(cmp.Or(spot.Remedy(), "look at what it did with assay-run show"), "%s: %s", what, spot.Name)
		gaps[len(gaps)-1].Spot = spot.ID
	}
	calls := openCalls(h, about)
	// A call that opens hosts also takes peer_set away. Each other reason for that shows in the gaps before this one,
	// in the coverage, or in scopeLimits.
	callsAlone := len(calls) > 0 && len(gaps) == 0 && h.NetworkProtocolCoverage == schema.ConnectAndDatagram &&
		scopeLimits(h) == ""
	gaps = append(gaps, calls...)
	if about == Hosts && h.NetworkEndpointClaimScope != schema.PeerSet && !callsAlone {
		add(remedy(h, "network"), "the list of hosts may not be whole: network coverage is %s, and endpoints are %s%s",
			spaced(h.NetworkProtocolCoverage), spaced(h.NetworkEndpointClaimScope), scopeLimits(h))
	}
	if m := d.Result.Model; about == Hosts && m != nil && m.ProviderFetches > 0 {
		from := ""
		if len(m.FetchedHosts) > 0 {
			from = ", from " + strings.Join(m.FetchedHosts, ", ")
		}
		add("set model.provider_tools: deny in the policy", "%s let the provider of the model load, read or run "+
			"something for the agent%s: the hosts that it contacted are not listed",
			schema.Count(m.ProviderFetches, "request", "requests"), from)
	}
	return gaps
}

// Gaps returns the gaps of several subjects, each once. Nothing can be concluded from a bundle that does not verify:
// that is then the first gap.
func Gaps(verified bool, d *archive.Documents, about ...Subject) []Gap {
	var all []Gap
	if !verified {
		all = append(all, Gap{Text: "the bundle does not verify", Remedy: "judge the bundle that was sealed"})
	}
	for _, a := range about {
		for _, g := range Claim(d, a) {
			if !slices.Contains(all, g) {
				all = append(all, g)
			}
		}
	}
	return all
}

// onlyBlindSpots reports whether the only reason why the kernel layer is not complete is that the run used a blind
// spot, which the coverage names.
func onlyBlindSpots(h *schema.ObservationHealth) bool {
	for _, r := range h.Reasons {
		if r.Subject == "kernel" && r.Code != schema.CodeBlindSpot {
			return false
		}
	}
	return h.RingbufDrops == 0 && slices.ContainsFunc(h.Coverage, func(c schema.Coverage) bool {
		return slices.ContainsFunc(c.KnownBlindSpots, schema.BlindSpot.Used)
	})
}

// formV0 reports whether the health has the v0 format, which has neither kernel_state nor coverage.
func formV0(h *schema.ObservationHealth) bool { return h.KernelState == "" && len(h.Coverage) == 0 }

// blindSpots returns the blind spots that can hide something about the subject and that the run used, or may have
// used. Those that it certainly used come first.
func blindSpots(d *archive.Documents, about Subject) []schema.BlindSpot {
	var all []schema.BlindSpot
	for _, c := range d.Health.Coverage {
		for _, s := range c.KnownBlindSpots {
			if s.Exercised != nil && !*s.Exercised {
				continue
			}
			if can, _ := hides(s, c.Dimension, about); can {
				all = append(all, s)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b schema.BlindSpot) int {
		if (a.Exercised == nil) == (b.Exercised == nil) {
			return 0
		} else if a.Exercised == nil {
			return 1
		}
		return -1
	})
	return all
}

// scopeLimits names what the scope of the endpoints is less for than all peers, in brackets, if nothing else says so.
func scopeLimits(h *schema.ObservationHealth) string {
	for _, c := range h.Coverage {
		for _, s := range c.KnownBlindSpots {
			if (s.ID == "unix_datagrams" || s.ID == "passed_descriptors") && (s.Exercised == nil || *s.Exercised) {
				return " (it is not known: " + s.Name + ")"
			}
		}
	}
	return ""
}

// openCalls returns a gap for each call after which the claim is open. Without a model, no call is known to be none.
func openCalls(h *schema.ObservationHealth, about Subject) (gaps []Gap) {
	switch about {
	case Programs, Files, Hosts, Privilege:
	case Processes:
		about = Programs
	default:
		return nil
	}
	if h.Model == "" {
		return []Gap{{Text: "the recorder did not watch every system call",
			Remedy: "record it as root with this version of assay-run"}}
	}
	for _, o := range h.Open {
		if o.Opens(string(about)) {
			text := fmt.Sprintf("%s: %s", &o, o.Why)
			if o.Unusual {
				text += ", and no honest program is known to do so"
			}
			gaps = append(gaps, Gap{Text: text, Remedy: "run it without that call", Call: o.Name()})
		}
	}
	return gaps
}

// modelGaps returns the gaps of subjects about models.
func modelGaps(d *archive.Documents, about Subject) []Gap {
	h, total := &d.Health, d.Result.Model
	// why returns the first reason in the health with one of the codes.
	why := func(codes ...string) (message, help string) {
		for _, r := range h.Reasons {
			if r.Subject == "model" && slices.Contains(codes, r.Code) {
				return " (" + r.Message + ")", r.Remedy
			}
		}
		return because(h, "kernel"), remedy(h, "kernel")
	}
	switch {
	case total == nil && d.Run.Model != nil:
		return []Gap{{Text: "nobody summed up the requests to models", Remedy: "run it again to its end"}}
	case total == nil:
		return []Gap{{Text: "the run had no model gateway: its requests to models were not recorded",
			Remedy: "run it with --model-gateway"}}
	case about == ModelPath && (h.ModelPath == "" || h.ModelPath == schema.Unknown):
		message, help := why("model_path_unknown")
		return []Gap{{Text: "it is not known whether models were reached past the gateway" + message, Remedy: help}}
	case about == ModelPath:
		return nil
	}
	var gaps []Gap
	if h.ModelLayer != schema.Complete {
		message, help := why("model_bytes_differ", "model_events_unknown", "model_member_odd", "model_body_undecoded",
			"model_body_left_out",
			"model_answer_not_kept")
		gaps = append(gaps, Gap{Text: "the model layer is " + cmp.Or(h.ModelLayer, schema.Unknown) + message,
			Remedy: help})
	}
	if about == Tokens && total.UsageUnknown > 0 {
		gaps = append(gaps, Gap{Text: schema.Count(total.UsageUnknown, "answer does", "answers do") +
			" not say how many tokens were used",
			Remedy: "ask for it, as with stream_options.include_usage of OpenAI's chat"})
	}
	if about == Cost && total.CostUnknown > 0 {
		gaps = append(gaps, Gap{Text: "it is not known what " + schema.Count(total.CostUnknown, "answer", "answers") +
			" cost", Remedy: "name the prices of all models with --model-prices"})
	}
	return gaps
}

func callGaps(d *archive.Documents) []Gap {
	var gaps []Gap
	h, c := &d.Health, &d.Correlation
	if NoReports(d) {
		return append(gaps, Gap{Text: "nobody reported tool calls: what belongs to a call cannot be told",
			Remedy: "name the agent's log with --sdk-event-log, or use assay-run hook, mcp or serve"})
	}
	switch {
	case c.Status == schema.Clean:
	case len(c.Ambiguities) > 0:
		for _, a := range c.Ambiguities[:min(len(c.Ambiguities), 3)] {
			gaps = append(gaps, ambiguity(a))
		}
		if more := len(c.Ambiguities) - 3; more > 0 {
			gaps = append(gaps, Gap{Text: "and " + schema.Count(more, "more call is", "more calls are") +
				" in doubt; see inspect --section calls"})
		}
	case h.KernelLayer == schema.Absent:
		gaps = append(gaps, Gap{Text: "what calls did was not observed" + because(h, "kernel"),
			Remedy: remedy(h, "kernel")})
	case h.CgroupCorrelation != schema.Clean:
		gaps = append(gaps, Gap{Text: "every call was matched, but no cgroup held only the run's processes, so it is " +
			"not known what the run started elsewhere" + because(h, "cgroup"),
			Remedy: "run it as root, where assay-run makes a cgroup and observes it"})
	default:
		gaps = append(gaps, Gap{Text: "calls and what was observed could not all be matched: correlation is " +
			c.Status, Remedy: remedy(h, "sdk")})
	}
	for _, name := range []string{"sdk", "policy", "turns", "audit"} {
		if n := h.Layers[name].Dropped; n > 0 {
			gaps = append(gaps, Gap{Text: fmt.Sprintf("%d lines of the %s layer were lost", n, name),
				Remedy: "make room on the disk that holds the spool"})
		}
	}
	return gaps
}

// ambiguity says in words what an entry of a correlation report's Ambiguities means, and what to do.
func ambiguity(entry string) Gap {
	code, call, of := strings.Cut(entry, ":")
	if of {
		code += ":"
	}
	const log = "look at the log or the hooks of the agent: they must report each call's start and end once"
	said := map[string]Gap{
		schema.AmbiguousPolicyWithoutKernel: {Text: "calls were decided, but what they did was not observed",
			Remedy: "assay-run doctor says what this host can observe"},
		schema.AmbiguousSDKWithoutPolicy: {Text: "was reported by the agent, but the policy was not asked about it",
			Remedy: "let the agent make all its calls through the gateway, or none"},
		schema.AmbiguousSessionCgroup: {Text: "several calls that were decided were open at the same time",
			Remedy: "start the calls' commands with assay-run call --id ID"},
		schema.AmbiguousOverlap: {Text: "several calls were open at the same time, so what happened then may belong " +
			"to each", Remedy: "start the calls' commands with assay-run call --id ID, or with ASSAY_TOOL_CALL_ID set"},
		schema.AmbiguousNeverEnded:   {Text: "was reported to start, but never to end", Remedy: log},
		schema.AmbiguousNeverStarted: {Text: "was reported to end, but never to start", Remedy: log},
		schema.AmbiguousTwice:        {Text: "was reported to start twice", Remedy: log},
		schema.AmbiguousConflict: {Text: "has processes that name different calls",
			Remedy: "set ASSAY_TOOL_CALL_ID to the id of one call"},
		schema.AmbiguousTooManyCalls: {Text: "there were more calls than assay-run keeps", Remedy: "divide the run"},
	}
	g, ok := said[code]
	if !ok {
		g.Text = strings.ReplaceAll(code, "_", " ")
	}
	if call != "" {
		g.Text = "call " + call + " " + g.Text
	}
	return g
}

// because returns the health's first reason for a subject, in brackets; empty if there is none.
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

func spaced(s string) string { return strings.ReplaceAll(s, "_", " ") }

// NoReports reports whether nobody reported tool calls. The policy layer may still have lines, about what a sandbox
// denied.
func NoReports(d *archive.Documents) bool {
	h, c := &d.Health, &d.Correlation
	return h.SDKLayer == schema.Absent && h.Layers["turns"].Written == 0 && len(c.Bindings) == 0 &&
		len(c.ObservedNotReported) == 0 && (h.PolicyLayer == schema.Absent || c.Status == schema.Clean)
}
