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

// harmless are the beginnings of the names of blind spots that can hide no name and no
// act of a subject, with the reason. A spot that is not among them counts as used
// unless the bundle says that it was not.
var harmless = []struct{ spot, why string }{
	// They hide how much, or which number, and never whether.
	{"bytes are counted", "an amount"},
	{"bytes written through", "an amount"},
	{"how many bytes", "an amount"},
	{"the results of writes by io_submit", "an amount"},
	{"bytes written to character devices", "an amount"},
	{"traffic with more than", "an amount"},
	{"which times", "a time"},
	{"pids are those", "a number"},
	// The act is recorded by what comes before or after it.
	{"a shared mapping made read-only", "the open for writing is recorded"},
	{"FICLONE", "the open for writing is recorded"},
	{"the opening of files that were opened before", "the writes are recorded"},
	{"how connections in the background ended", "their beginning is recorded"},
	{"results of connections, binds", "the address is recorded"},
	{"the address of a bind or connect that failed", "it reached nobody"},
	{"a symbolic link as the last part of a name is not followed where the call failed", "it changed nothing"},
	{"a change of identity by executing", "the execution and what the program then does are recorded"},
	{"code brought in by ptrace or a shared mapping", "it is executed by a program that is recorded"},
	{"a program that overwrites its own argv", "it was executed by then"},
	{"reads, stat, access", "they are not part of any claim"},
	{"POSIX message queues", "they are not files"},
	// It was done by a process that is not of the run.
	{"what processes outside do for the run", "no act of the run"},
	{"the observer was loaded by an earlier process of root", "root is trusted"},
	{"a repeat of an event keeps the first one's path", "a process outside has to rename the directory"},
	// Events that may be wrong for this reason say so themselves.
	{"names of failed opens, renames", "arguments: claimed"},
	{"a descriptor that another thread closed", "arguments: claimed"},
	{"a name in a private mapping", "arguments: claimed"},
	{"paths are those of the mount namespace", "the events are marked"},
}

// Gap is one reason why a bundle does not tell everything about a subject, and what
// would close it.
type Gap struct {
	Text   string
	Remedy string // empty where nothing is known to help
	// Marked says that it is about single events, which say so themselves (arguments,
	// path_source): none that does not is concerned.
	Marked bool
}

// String is the gap with its remedy, in one line.
func (g Gap) String() string {
	if g.Remedy == "" {
		return g.Text
	}
	return g.Text + "; " + g.Remedy
}

// Claim is what may be concluded about a subject from what the bundle does not show.
// Without gaps, what it does not show did not happen. The gravest gap comes first: it
// is the one thing that is missing. Every reader takes its conclusions from here.
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
		add(remedy(h, "kernel"), "the kernel layer is not complete%s", because(h, "kernel"))
	}
	if h.CgroupCorrelation != schema.Clean {
		add(remedy(h, "cgroup"),
			"what belongs to the run is not certain: some of its processes were not kept in its cgroup%s",
			because(h, "cgroup"))
	}
	for _, r := range h.Reasons {
		if r.Subject == "surface" {
			add(r.Remedy, "%s", r.Message)
		}
	}
	for _, spot := range blindSpots(d, about) {
		if spot.Exercised == nil {
			add("look at what it did with assay-run show",
				"it is not known whether the run used what the recorder cannot see: %s", spot.Name)
		} else {
			add("look at what it did with assay-run show", "the run used what the recorder cannot see: %s", spot.Name)
		}
		gaps[len(gaps)-1].Marked = strings.Contains(spot.Name, "such events say ")
	}
	if about == Hosts && h.NetworkEndpointClaimScope != schema.PeerSet {
		add(remedy(h, "network"), "the list of hosts may not be whole: network coverage is %s, and endpoints are %s",
			spaced(h.NetworkProtocolCoverage), spaced(h.NetworkEndpointClaimScope))
	}
	return gaps
}

// blindSpots are those that can hide something of the subject and that the run used, or
// may have used. Of hosts the scope of the endpoints says whether it may have.
func blindSpots(d *archive.Documents, about Subject) []schema.BlindSpot {
	var spots []schema.BlindSpot
	for _, c := range d.Health.Coverage {
		if !slices.Contains(dimensions[about], c.Dimension) {
			continue
		}
		for _, spot := range c.KnownBlindSpots {
			used := spot.Exercised != nil && *spot.Exercised
			possible := spot.Exercised == nil &&
				!(about == Hosts && d.Health.NetworkEndpointClaimScope == schema.PeerSet)
			if (used || possible) && !isHarmless(spot.Name, used) {
				spots = append(spots, spot)
			}
		}
	}
	// Those that were used stand before those that may have been.
	slices.SortStableFunc(spots, func(a, b schema.BlindSpot) int {
		if (a.Exercised == nil) == (b.Exercised == nil) {
			return 0
		} else if a.Exercised == nil {
			return 1
		}
		return -1
	})
	return spots
}

func isHarmless(name string, used bool) bool {
	for _, h := range harmless {
		if strings.HasPrefix(name, h.spot) {
			return !used || !strings.HasPrefix(h.why, "arguments")
		}
	}
	return false
}

func callGaps(d *archive.Documents) []Gap {
	var gaps []Gap
	h, c := &d.Health, &d.Correlation
	if Nobody(d) {
		return append(gaps, Gap{Text: "nobody reported tool calls: what belongs to a call cannot be told",
			Remedy: "name the agent's log with --sdk-event-log, or use assay-run hook, mcp or serve"})
	}
	if c.Status != schema.Clean {
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

func spaced(s string) string { return strings.ReplaceAll(s, "_", " ") }

// Nobody says that there was no report of tool calls at all.
func Nobody(d *archive.Documents) bool {
	h := &d.Health
	return h.SDKLayer == schema.Absent && h.PolicyLayer == schema.Absent && h.Layers["turns"].Written == 0
}
