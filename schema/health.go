package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Values of the v0 observation health vocabulary.
const (
	Complete             = "complete"
	PartialRingbufDrops  = "partial_ringbuf_drops"
	Absent               = "absent"
	Present              = "present"
	SelfReported         = "self_reported"
	Clean                = "clean"
	Partial              = "partial"
	Failed               = "failed"
	Unknown              = "unknown"
	NotApplicable        = "not_applicable"
	ConnectOnly          = "connect_only"
	DatagramPeerObserved = "datagram_peer_observed"
	ConnectAndDatagram   = "connect_and_datagram_peer_observed"
	DiagnosticOnly       = "diagnostic_only"
	Unconfirmed          = "unconfirmed"
	PeerSet              = "peer_set"
)

// ObservationHealth is observation-health.json: what may be claimed from the
// bundle's layers, and why not more.
type ObservationHealth struct {
	Schema   string `json:"schema"` // ObservationHealthV0
	RunID    string `json:"run_id"`
	Platform string `json:"platform"`
	// KernelLayer is complete, partial_ringbuf_drops or absent: the words of v0,
	// where the second stands for everything between the others.
	KernelLayer string `json:"kernel_layer"`
	// KernelState is complete, partial or absent, and what people are shown. It
	// follows from KernelLayer; set both with SetKernelLayer.
	KernelState  string `json:"kernel_state,omitempty"`
	RingbufDrops uint64 `json:"ringbuf_drops"`
	PolicyLayer  string `json:"policy_layer"`
	SDKLayer     string `json:"sdk_layer"`
	// ModelLayer is complete (the gateway has every byte that the kernel layer saw go to it), unconfirmed (nothing is
	// known to be missing, but only the gateway itself says so), partial, or absent (the gateway did not start). It and
	// the next three fields are empty without a model gateway.
	ModelLayer string `json:"model_layer,omitempty"`
	// ModelFlow is the evidence for ModelLayer; nil if only the gateway counted.
	ModelFlow *ModelFlow `json:"model_flow,omitempty"`
	// ModelPath says whether the command could reach models without the gateway: only (its sandbox has no other way
	// out), alone (it had another way, and the kernel layer shows that it did not use it), bypass_possible, or unknown.
	ModelPath string `json:"model_path,omitempty"`
	// ModelBypasses are the connections that ModelPath is bypass_possible for. They may be about something else,
	// such as telemetry.
	ModelBypasses []ModelBypass `json:"model_bypasses,omitempty"`
	// CgroupCorrelation is clean, partial or failed.
	CgroupCorrelation         string `json:"cgroup_correlation"`
	NetworkProtocolCoverage   string `json:"network_protocol_coverage"`
	NetworkEndpointClaimScope string `json:"network_endpoint_claim_scope"`
	// Notes are "code: message" strings with stable codes.
	Notes []string `json:"notes"`

	// Reasons say why a layer is less than complete.
	Reasons []Reason `json:"reasons"`
	// Hooks are the kernel hooks of the run that saw something, the self-test included, or have a fault; empty when
	// none was loaded.
	Hooks []Hook `json:"hooks"`
	// Coverage says for each dimension what was watched and what was not.
	Coverage []Coverage `json:"coverage"`
	// Model is the digest of the table of system calls that Open follows; empty where the kernel
	// layer does not watch every call. Open are the calls of the run after which claims are open.
	Model string     `json:"model,omitempty"`
	Open  []OpenCall `json:"open,omitempty"`
	// Layers counts every layer's events by its name (lifecycle, kernel,
	// policy, sdk, turns, audit): seen = written + coalesced + filtered + dropped.
	Layers map[string]LayerCounts `json:"layers"`
	// Kernel is the kernel layer's account, stage by stage; null when absent.
	Kernel *KernelAccount `json:"kernel,omitempty"`
	// LeftOut counts the kernel events that the capability surface leaves out,
	// by class.
	LeftOut map[string]uint64 `json:"left_out,omitempty"`
	// Containment is what kept the command's processes together: cgroup or
	// descent. TamperResistance is none (the command could reach the recorder's
	// memory or files), user (it was another user, without capabilities over it) or
	// sandbox (it could not name it). Both are absent in bundles
	// of runs that were interrupted.
	Containment      string `json:"containment,omitempty"`
	TamperResistance string `json:"tamper_resistance,omitempty"`
	// Startup is what programs that start outside of the run obey after it, and did not before; nil if nobody compared.
	Startup *Startup `json:"startup,omitempty"`
	// ClosedBook says whether the command could look up its task's answer; nil without --closed-book.
	ClosedBook *ClosedBook `json:"closed_book,omitempty"`
	// Judgements lists later evaluations of the contract, oldest first. The verdict is then not that of the run itself:
	// the changes that the run left were judged again in a clean workspace.
	Judgements []Judgement `json:"judgements,omitempty"`
	// Redaction says what was taken out of the members before they were
	// written; absent in bundles of recorders that did not redact.
	Redaction *Redaction `json:"redaction,omitempty"`
}

// Startup compares what git, shells, editors and agents obeyed before a run and after it.
type Startup struct {
	// Names counts the files and directories that were looked at after the run.
	Names int `json:"names"`
	// Changes are at most MaxStartupChanges; Beyond counts the others.
	Changes []StartupChange `json:"changes"`
	Beyond  int             `json:"beyond,omitempty"`
	// Unsearched are directories that were not searched, before or after; at most MaxStartupChanges.
	Unsearched []string `json:"unsearched,omitempty"`
	// NotCompared are directories that the command could write, and that other programs change too: nothing below
	// them was compared, only what programs obey in the directories themselves.
	NotCompared []string `json:"not_compared,omitempty"`
}

// MaxStartupChanges limits the lists of Startup.
const MaxStartupChanges = 100

// StartupChange is something that a program obeys only since the run.
type StartupChange struct {
	// Where is the directory in which a program would obey.
	Where string `json:"where"`
	// What is a start-up file, relative to Where, or what git would obey, such as: git's hook pre-commit.
	What string `json:"what"`
	// Path is the file.
	Path string `json:"path"`
}

func (c StartupChange) String() string {
	if strings.HasPrefix(c.What, "git's ") {
		return fmt.Sprintf("in %q, git obeys %q: %s", c.Where, c.Path, c.What)
	}
	return fmt.Sprintf("programs that start in %q obey %q", c.Where, c.Path)
}

// ModelFlow counts the bytes between the command and the model gateway. It leaves out other clients of the gateway.
type ModelFlow struct {
	Connections       uint64 `json:"connections"`
	ToGateway         uint64 `json:"to_gateway"` // read by the gateway
	FromGateway       uint64 `json:"from_gateway"`
	KernelToGateway   uint64 `json:"kernel_to_gateway"` // on the wire: what TCP sends twice counts twice
	KernelFromGateway uint64 `json:"kernel_from_gateway"`
}

// ModelBypass is a host that the command reached and that may have answered for a model.
type ModelBypass struct {
	Endpoint string  `json:"endpoint"` // its address
	Name     string  `json:"name,omitempty"`
	ExecID   *uint64 `json:"exec_id"` // the first process that reached it; null where that is not known
	Exe      string  `json:"exe,omitempty"`
	BytesOut uint64  `json:"bytes_out"`
	BytesIn  uint64  `json:"bytes_in"`
}

// Where returns the host's name with its address, or only the address.
func (b *ModelBypass) Where() string {
	if b.Name == "" {
		return b.Endpoint
	}
	return b.Name + " (" + b.Endpoint + ")"
}

// Words of ModelPath.
const (
	ModelPathOnly   = "only"
	ModelPathAlone  = "alone"
	ModelPathBypass = "bypass_possible"
)

// Judgement is one evaluation of a contract on the changes that a bundle keeps.
type Judgement struct {
	// From is the identity of that bundle.
	From string `json:"from"`
	// By is the program.
	By string `json:"by"`
	// JudgedAt is the wall clock at its end, RFC 3339 in UTC.
	JudgedAt string `json:"judged_at"`
}

// The words of Containment and, in rising order, of TamperResistance.
const (
	ByCgroup  = "cgroup"
	ByDescent = "descent"

	ResistsNone    = "none"
	ResistsUser    = "user"
	ResistsSandbox = "sandbox"
)

// SetKernelLayer sets KernelLayer, and KernelState, which follows from it.
func (h *ObservationHealth) SetKernelLayer(layer string) {
	h.KernelLayer, h.KernelState = layer, KernelState(layer)
}

// KernelState is what people are shown for a kernel_layer.
func KernelState(layer string) string {
	if layer == PartialRingbufDrops {
		return Partial
	}
	return layer
}

// Reason is one reason why less can be claimed, and what would fix it.
type Reason struct {
	// Subject is the layer or thing concerned: kernel, cgroup, limits, ...
	Subject string `json:"subject"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Hook is one kernel hook and its account over all CPUs:
// fired = filtered + coalesced + emitted + dropped.
type Hook struct {
	Name string `json:"name"`
	// Fault is HookUnattached or HookUntested of a hook that complete depends on, otherwise empty.
	Fault string `json:"fault,omitempty"`
	// Seen is how often the hook's program ran for a task of the session.
	Seen            uint64 `json:"seen"`
	Filtered        uint64 `json:"filtered,omitempty"`
	Coalesced       uint64 `json:"coalesced,omitempty"`
	Emitted         uint64 `json:"emitted,omitempty"`
	Dropped         uint64 `json:"dropped,omitempty"`
	FailedReads     uint64 `json:"failed_reads,omitempty"`
	RecursionMisses uint64 `json:"recursion_misses,omitempty"`
}

// What a hook can lack: it was not attached, or no self-test has shown that it fires.
const (
	HookUnattached = "not_attached"
	HookUntested   = "not_self_tested"
)

// KernelAccount counts kernel events at each stage in user space, as records and then as lines:
//
//	emitted = received
//	received = decoded + malformed
//	decoded + drained + added = written + filtered + coalesced + dropped + parts + self_test
type KernelAccount struct {
	Emitted   uint64 `json:"emitted"`
	Received  uint64 `json:"received"`
	Decoded   uint64 `json:"decoded"`
	Malformed uint64 `json:"malformed"`
	// Drained counts the records that came at the end from the coalescing slots (repeats) and the table of endpoints
	// (flows), and not through the ring.
	Drained uint64 `json:"drained,omitempty"`
	// Added counts the lines that the recorder added for processes whose fork it had not seen.
	Added    uint64 `json:"added,omitempty"`
	Written  uint64 `json:"written"`
	Filtered uint64 `json:"filtered"` // records that make no line
	Dropped  uint64 `json:"dropped"`
	// Parts counts records that were joined into others (a long argv), SelfTest those of the self-test.
	Parts    uint64 `json:"parts,omitempty"`
	SelfTest uint64 `json:"self_test,omitempty"`
	// Forks counts the tasks, threads included, that began in the session or were moved into it. Exits counts those
	// that ended there.
	Forks      uint64 `json:"forks"`
	Exits      uint64 `json:"exits"`
	LeftCgroup uint64 `json:"left_cgroup"`
}

// OpenCall is a system call that can have done what no line tells.
type OpenCall struct {
	Call      string `json:"call"`
	Operation string `json:"operation,omitempty"`
	Count     uint64 `json:"count"`
	// Program is the first program that made it, as far as that is known.
	Program string `json:"program,omitempty"`
	// Claims are the subjects that are open: SubjectPrograms and the like.
	Claims []string `json:"claims"`
	Why    string   `json:"why"`
	// Unusual says that no honest program is known to make it.
	Unusual bool `json:"unusual,omitempty"`
}

// Opens reports whether the call opens the claim about a subject.
func (o *OpenCall) Opens(subject string) bool { return slices.Contains(o.Claims, subject) }

// Name is the call with its operation.
func (o *OpenCall) Name() string { return strings.TrimSpace(o.Call + " " + o.Operation) }

// String says what the program did, and how often: "/x set IP_ADD_MEMBERSHIP (1x)".
func (o *OpenCall) String() string {
	what := "called " + o.Name()
	switch o.Call {
	case "setsockopt":
		what = "set " + o.Operation
	case "open", "write":
		what = "wrote, or could write, to " + o.Operation
	case "mount", "fsopen", "fspick":
		if what = "mounted a file system of type " + o.Operation; o.Operation == "remount" {
			what = "gave a mounted file system new options"
		}
	case "flow":
		return "bytes went to " + o.Operation
	case "socket":
		what = "made a socket of " + o.Operation
	case "netlink", "control message":
		what = "sent " + o.Name()
	case "packet":
		return "packets with options were sent"
	case "cgroup hierarchy":
		what = "made or changed a cgroup hierarchy"
	}
	return fmt.Sprintf("%s %s (%dx)", cmp.Or(o.Program, "a program that is not known"), what, o.Count)
}

// Coverage is one dimension of observation (filesystem, process, network, ...).
type Coverage struct {
	Dimension       string      `json:"dimension"`
	Method          string      `json:"method"`
	Observes        []string    `json:"observes,omitempty"` // empty in bundles
	KnownBlindSpots []BlindSpot `json:"known_blind_spots"`
}

// LayerCounts is one layer's account: Seen = Written + Coalesced + Filtered + Dropped.
type LayerCounts struct {
	Seen      uint64 `json:"seen"`
	Written   uint64 `json:"written"`
	Coalesced uint64 `json:"coalesced"`
	Filtered  uint64 `json:"filtered"`
	Dropped   uint64 `json:"dropped"`
}

// What a blind spot can hide: names or acts of these subjects.
const (
	SubjectPrograms  = "programs"  // what was executed
	SubjectFiles     = "files"     // what was opened, written, changed, removed
	SubjectHosts     = "hosts"     // whom the run talked to
	SubjectPrivilege = "privilege" // system calls that need privilege
)

// Subjects are all of them.
var Subjects = []string{SubjectPrograms, SubjectFiles, SubjectHosts, SubjectPrivilege}

// CodeBlindSpot is the code of the reason for a kernel layer that is not complete because the run used a blind spot
// that can hide something.
const CodeBlindSpot = "blind_spot_used"

// BlindSpot is something that a method cannot see. If a run used one that can hide something, its kernel layer is not
// complete. The others only limit what is known of recorded acts, such as an amount or a time.
type BlindSpot struct {
	ID   string `json:"id,omitempty"` // stable
	Name string `json:"name"`
	// Exercised is whether the run did it; null when that is not known.
	Exercised *bool `json:"exercised"`
	// Hides are the subjects of which it can hide something: SubjectPrograms and the like;
	// see CanHide.
	Hides []string `json:"hides,omitempty"`
}

// NewBlindSpot returns the blind spot of that id with what it can hide.
func NewBlindSpot(id, name string, exercised *bool) BlindSpot {
	return BlindSpot{ID: id, Name: name, Exercised: exercised, Hides: BlindSpots[id].Subjects}
}

// CanHide returns the subjects of which the blind spot can hide something. known is false if this build does not know
// its id and the bundle does not say.
func (s BlindSpot) CanHide() (subjects []string, known bool) {
	if spot, ok := BlindSpots[s.ID]; ok {
		return spot.Subjects, true
	}
	return s.Hides, len(s.Hides) > 0
}

// Used reports whether the run is known to have used the blind spot, and something may be hidden there.
func (s BlindSpot) Used() bool {
	hides, _ := s.CanHide()
	return len(hides) > 0 && s.Exercised != nil && *s.Exercised
}

// Matters reports whether a reader decides by the blind spot where it is not known that the run used it: it can hide
// something, or limits the scope of the endpoints.
func (s BlindSpot) Matters() bool {
	hides, _ := s.CanHide()
	return len(hides) > 0 || BlindSpots[s.ID].Why == scopeWhy
}

// Remedy says how a run can avoid the blind spot; "" if nothing is known to help.
func (s BlindSpot) Remedy() string { return BlindSpots[s.ID].Remedy }

// Hiding says what a blind spot can hide, and how a run can avoid it. If it hides nothing, Why says why.
type Hiding struct {
	Subjects []string
	Remedy   string
	Why      string
}

var (
	hidesFiles     = []string{SubjectFiles}
	hidesPrograms  = []string{SubjectPrograms}
	hidesHosts     = []string{SubjectHosts}
	hidesPrivilege = []string{SubjectPrivilege}
)

const scopeWhy = "the scope of the endpoints"

const rootTier = "run assay-run as root, so that it can observe by eBPF"

// BlindSpots says of each blind spot, by its id, what it can hide.
var BlindSpots = map[string]Hiding{
	// Files.
	"io_uring_unseen": {Subjects: []string{SubjectFiles, SubjectHosts},
		Remedy: "run on Linux 6.1 or later, or without io_uring"},
	"io_uring_commands": {Subjects: hidesFiles, Remedy: "run it without commands of io_uring to devices"},
	"io_uring_bytes":    {Why: "an amount"},
	"user_memory":       {Why: "doubtful_changes says whether a change has such a name"},
	"claimed": {Why: "doubtful_changes says whether a change has such a name; flows have " +
		"the peers' addresses"},
	"foreign_writes": {Why: "doubtful_changes has each change whose name is neither the kernel's " +
		"object nor its copy"},
	"private_mapping": {Why: "doubtful_changes has each change whose name is neither the kernel's " +
		"object nor its copy"},
	"claimed_directories": {Why: "doubtful_changes says whether a change has such a name"},
	"doubtful_changes":    {Subjects: hidesFiles, Remedy: "look for such changes with assay-run events"},
	"long_paths":          {Subjects: hidesFiles, Remedy: "use shorter paths"},
	"failed_links":        {Why: "it changed nothing"},
	"reused_descriptors":  {Why: "doubtful_changes says whether a change has such a name"},
	"mapped_bytes":        {Why: "an amount"},
	"remapped":            {Why: "the open for writing is recorded"},
	"mount_namespace":     {Why: "the events are marked"},
	"io_submit":           {Why: "the open for writing is recorded"},
	"device_bytes":        {Why: "an amount"},
	"handed_files":        {Why: "the writes are recorded"},
	"reads":               {Why: "they are not part of any claim"},
	"times":               {Why: "a time"},
	"file_ioctls":         {Why: "the open for writing is recorded"},
	"ipc":                 {Why: "they are not files"},
	"repeated_path":       {Why: "a process outside of the run has to rename the directory"},
	"links":               {Subjects: hidesFiles, Remedy: rootTier},
	"unreadable":          {Subjects: hidesFiles, Remedy: rootTier},
	"writes":              {Subjects: hidesFiles, Remedy: rootTier},

	// Programs.
	"compat_calls":     {Subjects: Subjects, Remedy: "run 64-bit programs only"},
	"moved_tasks":      {Subjects: Subjects, Remedy: "let no process move between cgroups"},
	"kernel_helpers":   {Subjects: Subjects, Remedy: "run it as a user who cannot set the kernel's helpers"},
	"long_arguments":   {Subjects: hidesPrograms, Remedy: "give programs fewer arguments"},
	"killed_early":     {Subjects: hidesPrograms, Remedy: rootTier},
	"execution_killed": {Why: "the execution is recorded"},
	"found_observer":   {Why: "root is trusted"},
	"pid_namespace":    {Why: "a number"},
	"outside_help":     {Why: "no act of the run; a container engine that was asked is a reason of its own"},
	"injected_code":    {Why: "it is executed by a program that is recorded"},
	"own_argv":         {Why: "it was executed by then"},
	"lost_parent":      {Why: "the process is recorded"},
	"lost_status":      {Why: "the process is recorded"},
	"quiet_threads":    {Why: "they did nothing"},
	"checks":           {Why: "no act of the command"},

	// Hosts. The scope of the endpoints says whether sockets and descriptors came from elsewhere.
	"many_endpoints": {Subjects: hidesHosts,
		Remedy: "split the run, so that each part contacts at most 8,192 endpoints"},
	"io_uring_accepts": {Subjects: hidesHosts, Remedy: "accept connections without io_uring"},
	"handed_sockets":   {Why: "their peers are recorded; handed_names says whether DNS messages are missing"},
	"other_sockets": {Subjects: hidesHosts,
		Remedy: "run it without packet sockets, raw sockets and tunnels, as a user without CAP_NET_RAW"},
	"handed_names": {Subjects: hidesHosts,
		Remedy: "let the run make its sockets to DNS servers itself"},
	"passed_descriptors":     {Why: scopeWhy},
	"unix_datagrams":         {Why: scopeWhy},
	"background_connections": {Why: "their beginning is recorded"},
	"io_uring_connections":   {Why: "the address is recorded"},
	"failed_addresses":       {Why: "it reached nobody"},
	"endpoint_bytes":         {Why: "an amount"},
	"protocol":               {Subjects: hidesHosts, Remedy: rootTier},
	"accepted":               {Subjects: hidesHosts, Remedy: rootTier},
	"listening_address":      {Subjects: hidesHosts, Remedy: rootTier},
	"many_messages":          {Subjects: hidesHosts, Remedy: rootTier},
	"attempted":              {Subjects: Subjects, Remedy: rootTier},

	// Names prove nothing about whom the run talked to, so that no claim rests on them.
	"quic_names":      {Why: "a name"},
	"encrypted_dns":   {Why: "a name"},
	"daemon_dns":      {Why: "a name"},
	"cut_messages":    {Why: "a name"},
	"encrypted_hello": {Why: "a name"},
	"unparsed":        {Why: "a name"},
	"forgotten_names": {Why: "a name"},
	"names":           {Why: "a name"},

	// Privilege.
	"limit_signals":    {Why: "the change of the limit is recorded"},
	"terminal_signals": {Why: "the open of the terminal is recorded, or who started the run gave it"},
	"pointed_data":     {Why: "the call is recorded"},
	"observer_maps":    {Subjects: Subjects, Remedy: "run it as a user who may not use bpf()"},
	"set_user_id":      {Why: "the execution and what the program then does are recorded"},
	"outside_signals":  {Subjects: hidesPrivilege, Remedy: rootTier},
}
