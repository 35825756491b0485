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
	Hosts     Subject = "hosts"     // whom the run talked to
	Privilege Subject = "privilege" // system calls that need privilege
	Calls     Subject = "calls"     // tool calls and what belongs to them
	Verdict   Subject = "verdict"   // how the run ended
	Models    Subject = "models"    // requests to models
	Tokens    Subject = "tokens"    // what they used
	Cost      Subject = "cost"      // what they cost
	ModelPath Subject = "path"      // how models could be reached
)

// spot is what a blind spot can hide: names or acts of some subjects, and how a run does without it, or none, for
// the reason given.
type spot struct {
	hides  []Subject
	remedy string
	why    string
}

var (
	files      = []Subject{Files}
	programs   = []Subject{Programs}
	hosts      = []Subject{Hosts}
	privilege  = []Subject{Privilege}
	everything = []Subject{Programs, Files, Hosts, Privilege}
)

const rootTier = "run assay-run as root, so that it can observe by eBPF"

// spots says of each blind spot, by its id, what it can hide.
var spots = map[string]spot{
	// Files.
	"io_uring_unseen":   {hides: []Subject{Files, Hosts}, remedy: "run on Linux 6.1 or later, or without io_uring"},
	"io_uring_commands": {hides: files, remedy: "run it without commands of io_uring to devices"},
	"io_uring_bytes":    {why: "an amount"},
	"user_memory":       {why: "doubtful_changes says whether a change has such a name"},
	"claimed": {why: "doubtful_changes says whether a change has such a name; flows have " +
		"the peers' addresses"},
	"foreign_writes": {why: "doubtful_changes has each change whose name is neither the kernel's " +
		"object nor its copy"},
	"private_mapping": {why: "doubtful_changes has each change whose name is neither the kernel's " +
		"object nor its copy"},
	"claimed_directories": {why: "doubtful_changes says whether a change has such a name"},
	"doubtful_changes":    {hides: files, remedy: "look for such changes with assay-run events"},
	"long_paths":          {hides: files, remedy: "use shorter paths"},
	"failed_links":        {why: "it changed nothing"},
	"reused_descriptors":  {why: "doubtful_changes says whether a change has such a name"},
	"mapped_bytes":        {why: "an amount"},
	"remapped":            {why: "the open for writing is recorded"},
	"mount_namespace":     {why: "the events are marked"},
	"io_submit":           {why: "the open for writing is recorded"},
	"device_bytes":        {why: "an amount"},
	"handed_files":        {why: "the writes are recorded"},
	"reads":               {why: "they are not part of any claim"},
	"times":               {why: "a time"},
	"file_ioctls":         {why: "the open for writing is recorded"},
	"ipc":                 {why: "they are not files"},
	"repeated_path":       {why: "a process outside of the run has to rename the directory"},
	"links":               {hides: files, remedy: rootTier},
	"unreadable":          {hides: files, remedy: rootTier},
	"writes":              {hides: files, remedy: rootTier},

	// Programs.
	"compat_calls":     {hides: everything, remedy: "run 64-bit programs only"},
	"moved_tasks":      {hides: everything, remedy: "let no process move between cgroups"},
	"kernel_helpers":   {hides: everything, remedy: "run it as a user who cannot set the kernel's helpers"},
	"long_arguments":   {hides: programs, remedy: "give programs fewer arguments"},
	"killed_early":     {hides: programs, remedy: rootTier},
	"execution_killed": {why: "the execution is recorded"},
	"found_observer":   {why: "root is trusted"},
	"pid_namespace":    {why: "a number"},
	"outside_help":     {why: "no act of the run; a container engine that was asked is a reason of its own"},
	"injected_code":    {why: "it is executed by a program that is recorded"},
	"own_argv":         {why: "it was executed by then"},
	"lost_parent":      {why: "the process is recorded"},
	"lost_status":      {why: "the process is recorded"},
	"quiet_threads":    {why: "they did nothing"},
	"checks":           {why: "no act of the command"},

	// Hosts. The scope of the endpoints says whether sockets and descriptors came from elsewhere.
	"many_endpoints": {hides: hosts,
		remedy: "split the run, so that each part contacts at most 8,192 endpoints"},
	"io_uring_accepts": {hides: hosts, remedy: "accept connections without io_uring"},
	"handed_sockets":   {why: "the scope of the endpoints"},
	"other_sockets": {hides: hosts,
		remedy: "run it without packet sockets, raw sockets and tunnels, as a user without CAP_NET_RAW"},
	"passed_descriptors":     {why: "the scope of the endpoints"},
	"unix_datagrams":         {why: "the scope of the endpoints"},
	"background_connections": {why: "their beginning is recorded"},
	"io_uring_connections":   {why: "the address is recorded"},
	"failed_addresses":       {why: "it reached nobody"},
	"endpoint_bytes":         {why: "an amount"},
	"protocol":               {hides: hosts, remedy: rootTier},
	"accepted":               {hides: hosts, remedy: rootTier},
	"listening_address":      {hides: hosts, remedy: rootTier},
	"many_messages":          {hides: hosts, remedy: rootTier},
	"attempted":              {hides: everything, remedy: rootTier},

	// Names prove nothing about whom the run talked to, so that no claim rests on them.
	"quic_names":      {why: "a name"},
	"encrypted_dns":   {why: "a name"},
	"daemon_dns":      {why: "a name"},
	"cut_messages":    {why: "a name"},
	"encrypted_hello": {why: "a name"},
	"unparsed":        {why: "a name"},
	"forgotten_names": {why: "a name"},
	"names":           {why: "a name"},

	// Privilege.
	"limit_signals":    {why: "the change of the limit is recorded"},
	"terminal_signals": {why: "the open of the terminal is recorded, or who started the run gave it"},
	"pointed_data":     {why: "the call is recorded"},
	"observer_maps":    {hides: everything, remedy: "run it as a user who may not use bpf()"},
	"set_user_id":      {why: "the execution and what the program then does are recorded"},
	"outside_signals":  {hides: privilege, remedy: rootTier},
}

// dimensions are the subjects that a blind spot without a known id can hide: those of its dimension.
var dimensions = map[string]Subject{"process": Programs, "filesystem": Files, "network": Hosts, "privilege": Privilege}

// Hides reports whether a blind spot of a dimension can hide something of the subject, and whether
// that was decided for this blind spot, by its id, or is assumed of all unknown ones.
func Hides(s schema.BlindSpot, dimension string, about Subject) (hides, decided bool) {
	if about == Processes {
		about = Programs
	}
	if known, ok := spots[s.ID]; ok {
		return slices.Contains(known.hides, about), true
	}
	return dimensions[dimension] == about, false
}

// Gap is one reason why a bundle does not tell everything about a subject, and what
// would close it.
type Gap struct {
	Text   string
	Remedy string // empty where nothing is known to help
	// Spot is the id of the blind spot that is the reason, empty for another reason.
	Spot string
}

// String is the gap with its remedy, in one line.
func (g Gap) String() string {
	if g.Remedy == "" {
		return g.Text
	}
	return g.Text + "; " + g.Remedy
}

// Claim is what may be concluded about a subject from what the bundle does not show. Without gaps,
// what it does not show did not happen. The gravest gap comes first. All readers use this function for
// their conclusions.
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
		add(remedy(h, "kernel"), "the kernel layer is not complete%s", because(h, "kernel"))
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
	for _, r := range h.Reasons {
		if r.Code == "engine_asked" {
			add(r.Remedy, "%s", r.Message)
		}
	}
	for _, spot := range blindSpots(d, about) {
		what := "the run used what the recorder cannot see"
		if spot.Exercised == nil {
			what = "it is not known whether the run used what the recorder cannot see"
		}
		add(cmp.Or(spots[spot.ID].remedy, "look at what it did with assay-run show"), "%s: %s", what, spot.Name)
		gaps[len(gaps)-1].Spot = spot.ID
	}
	if about == Hosts && h.NetworkEndpointClaimScope != schema.PeerSet {
		add(remedy(h, "network"), "the list of hosts may not be whole: network coverage is %s, and endpoints are %s",
			spaced(h.NetworkProtocolCoverage), spaced(h.NetworkEndpointClaimScope))
	}
	return gaps
}

// formV0 reports whether the health has the form of v0, which knows neither kernel_state nor coverage.
func formV0(h *schema.ObservationHealth) bool { return h.KernelState == "" && len(h.Coverage) == 0 }

// blindSpots are those that can hide something of the subject and that the run used, or may have used.
func blindSpots(d *archive.Documents, about Subject) []schema.BlindSpot {
	var all []schema.BlindSpot
	for _, c := range d.Health.Coverage {
		for _, s := range c.KnownBlindSpots {
			if s.Exercised != nil && !*s.Exercised {
				continue
			}
			if hides, _ := Hides(s, c.Dimension, about); hides {
				all = append(all, s)
			}
		}
	}
	// Those that were used stand before those that may have been.
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

// modelGaps are why the model layer does not tell everything.
func modelGaps(d *archive.Documents, about Subject) []Gap {
	h, total := &d.Health, d.Result.Model
	// why gives the first reason that the health has for this.
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
		message, help := why("model_bytes_differ", "model_events_unknown", "model_body_undecoded",
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

// Nobody reports whether there was no report of tool calls at all. A policy layer may hold what a sandbox denied
// alone.
func Nobody(d *archive.Documents) bool {
	h, c := &d.Health, &d.Correlation
	return h.SDKLayer == schema.Absent && h.Layers["turns"].Written == 0 && len(c.Bindings) == 0 &&
		len(c.ObservedNotReported) == 0 && (h.PolicyLayer == schema.Absent || c.Status == schema.Clean)
}
