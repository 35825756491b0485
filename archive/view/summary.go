package view

import (
	"context"
	"slices"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// Summary is what a run did, for inspect. Every list holds what a reviewer looks for
// first, and equals in the order in which they were first seen; how much there is
// beyond it stands beside it.
type Summary struct {
	Schema   string   `json:"schema"` // schema.InspectionV0
	RunID    string   `json:"run_id"`
	Identity string   `json:"identity"`
	Command  []string `json:"command"`
	Outcome  string   `json:"outcome"`
	// Ending says in words how the run ended.
	Ending   string  `json:"ending"`
	ExitCode *int    `json:"exit_code"`
	Signal   *string `json:"signal"`
	// ChildNS is how long the command ran, null when nobody saw it end.
	ChildNS   *int64              `json:"child_ns"`
	Error     *schema.ResultError `json:"error,omitempty"`
	Workdir   string              `json:"workdir"`
	StartedAt string              `json:"started_at"`
	Usage     schema.Usage        `json:"usage"`
	Stdio     schema.Stdio        `json:"stdio"`
	Limits    schema.Limits       `json:"limits"`
	LimitsHit []string            `json:"limits_hit"`
	Leftovers *int                `json:"leftovers"`
	Contract  *string             `json:"contract"`
	// StrictChecks tells that each check had directories, an environment and a network
	// of its own.
	StrictChecks bool `json:"strict_checks,omitempty"`
	// Checks are the contract's, and Protected its protected paths that had been
	// changed. Recorder is the program that recorded the run.
	Checks    []schema.CheckSummary    `json:"checks,omitempty"`
	Protected []schema.ProtectedChange `json:"protected_changes,omitempty"`
	Labels    map[string]string        `json:"labels,omitempty"`
	Recorder  string                   `json:"recorder"`

	// What may be claimed, from observation-health.json.
	KernelLayer   string                        `json:"kernel_layer"`
	KernelState   string                        `json:"kernel_state"`
	PolicyLayer   string                        `json:"policy_layer"`
	SDKLayer      string                        `json:"sdk_layer"`
	Correlation   string                        `json:"cgroup_correlation"`
	Layers        map[string]schema.LayerCounts `json:"layers"`
	RingbufDrops  uint64                        `json:"ringbuf_drops"`
	Network       string                        `json:"network_protocol_coverage"`
	EndpointScope string                        `json:"network_endpoint_claim_scope"`
	Reasons       []schema.Reason               `json:"reasons"`
	Containment   string                        `json:"containment,omitempty"`
	Resistance    string                        `json:"tamper_resistance,omitempty"`
	Redaction     *schema.Redaction             `json:"redaction,omitempty"`
	// Claims say in sentences what may be concluded from what the bundle does not show.
	Claims []Sentence `json:"claims"`
	// Evaluation is what the rules about an agent under evaluation say; whoever judges sets it.
	// Left out without an evaluation file.
	Evaluation []schema.EvaluationVerdict `json:"evaluation,omitempty"`
	// Mode, Policy and User are what the run was asked to hold the command with.
	Mode   string `json:"mode,omitempty"`
	Policy string `json:"policy,omitempty"`
	User   string `json:"user,omitempty"`

	// Events is how often anything was observed, ByKind and ByClass how often
	// of each sort: repeats that were coalesced into one line included.
	Events  uint64            `json:"events"`
	ByKind  map[string]uint64 `json:"by_kind"`
	ByClass map[string]uint64 `json:"by_class"`

	// Calls are the tool calls, Unreported what was done outside of them, and
	// CallStatus how far the two could be told apart, with what could not be.
	CallStatus  string              `json:"calls_status"`
	Calls       List[Call]          `json:"calls"`
	Unreported  []schema.Unreported `json:"unreported,omitempty"`
	Ambiguities []string            `json:"ambiguities"`

	// Containers are those that processes of the run were in; left out without any.
	Containers List[Container] `json:"containers,omitzero"`

	Processes Tree          `json:"processes"`
	Programs  List[Program] `json:"programs"`
	Commands  List[Command] `json:"commands"`
	// Files are those that class agent touched: made under a name that did not exist,
	// written to, opened for it or overwritten, changed in mode, owner or attributes,
	// deleted or renamed away, opened for reading only.
	Created List[File] `json:"created"`
	Written List[File] `json:"written"`
	Changed List[File] `json:"changed"`
	Deleted List[File] `json:"deleted"`
	Read    List[File] `json:"read"`
	Hosts   List[Host] `json:"hosts"`
	Lookups List[Name] `json:"lookups"`
	// Denied is what policy or permissions refused, of every class, the tool calls
	// that a policy denied first; Failed what failed otherwise, of class agent.
	Denied     List[Failure] `json:"denied"`
	Failed     List[Failure] `json:"failed"`
	Privileged List[Failure] `json:"privileged"`
}

// Container is a container by its id, with the first command that was executed in it
// and how often anything was observed there, the engine's work to set it up left out.
// Name and Image are what its engine told, empty if unknown.
type Container struct {
	ID    string   `json:"id"`
	Name  string   `json:"name,omitempty"`
	Image string   `json:"image,omitempty"`
	Argv  []string `json:"argv"`
	Exe   string   `json:"exe,omitempty"`
	Count uint64   `json:"count"`
}

// Program is an executable that was run. Made is true if the run itself created or
// wrote it, or executed it from memory.
type Program struct {
	Exe   string `json:"exe"`
	By    string `json:"by,omitempty"`
	Made  bool   `json:"made,omitempty"`
	Count uint64 `json:"count"`
}

// Command is an argument vector that was executed.
type Command struct {
	Argv  []string `json:"argv"`
	Exe   string   `json:"exe"`
	Count uint64   `json:"count"`
}

// File is a path and how often it was used so; By is the executable that did
// so first, empty when unknown.
type File struct {
	Path  string `json:"path"`
	By    string `json:"by,omitempty"`
	Count uint64 `json:"count"`
	// ByEach are the executables and how often each did so, where there are several.
	ByEach []User `json:"by_each,omitempty"`
	Bytes  uint64 `json:"bytes,omitempty"`
	// Outside is true for a file outside of the directory that the command started
	// in; Secret for one whose name is that of a file with keys or passwords.
	Outside bool `json:"outside,omitempty"`
	Secret  bool `json:"secret,omitempty"`
}

// User is an executable and how often it did something; Exe is empty for those that are
// not known, or one too many to be told apart.
type User struct {
	Exe   string `json:"exe"`
	Count uint64 `json:"count"`
}

// maxUsers is how many executables are told apart for one thing.
const maxUsers = 8

// used adds n uses by exe to those of each executable; before is how often the first one
// had used it, which has no entry while it is the only one.
func used(each []User, first string, before uint64, exe string, n uint64) []User {
	if len(each) == 0 {
		if before == 0 || exe == first {
			return nil
		}
		each = []User{{first, before}}
	}
	if i := slices.IndexFunc(each, func(u User) bool { return u.Exe == exe }); i >= 0 {
		each[i].Count += n
		return each
	}
	if len(each) < maxUsers || exe == "" {
		return append(each, User{exe, n})
	}
	return used(each, first, before, "", n)
}

// Host is a remote endpoint.
type Host struct {
	Endpoint string `json:"endpoint"`
	// Listening: Endpoint is the run's own, and Peers connected to it. Count is then
	// how many connections it accepted.
	Listening bool     `json:"listening,omitempty"`
	Peers     uint64   `json:"peers,omitempty"`
	Names     []string `json:"names,omitempty"`
	// Network is where the run's process was. Bytes of an endpoint that several have are
	// with OwnNetwork, if that has it.
	Network  Network `json:"network_namespace,omitempty"`
	Protocol string  `json:"protocol,omitempty"`
	By       string  `json:"by,omitempty"`
	Count    uint64  `json:"count"`
	Failed   uint64  `json:"failed,omitempty"`
	BytesOut uint64  `json:"bytes_out,omitempty"`
	BytesIn  uint64  `json:"bytes_in,omitempty"`
}

// What is the endpoint, and whether the run listened there or was in another network namespace.
func (h *Host) What() string {
	if h.Listening {
		return "listening " + h.Endpoint + h.Network.Mark()
	}
	return h.Endpoint + h.Network.Mark()
}

// Name is a name that DNS was asked for.
type Name struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// ToolCall is the Kind of a Failure that is a denied tool call: Value is the tool, and
// Result the decision in the words of who decided.
const ToolCall = "tool_call"

// Failure is something that was denied, failed, or needed privilege.
type Failure struct {
	Kind   string `json:"kind"`
	Value  string `json:"value"`
	Result string `json:"result"`
	By     string `json:"by,omitempty"`
	// ByEach are the executables and how often each did so, where there are several.
	ByEach []User `json:"by_each,omitempty"`
	// Rule is the policy's rule that denied it, where one did.
	Rule  string `json:"rule,omitempty"`
	Count uint64 `json:"count"`
}

// Source is the bundle that Summarize reads; *archive.Reader is one.
type Source interface {
	Items
	Documents(ctx context.Context, without ...string) (*archive.Documents, error)
	Identity() string
}

// maxProcesses bounds the process tree of a Summary without a limit.
const maxProcesses = 10_000

// Summarize reads the whole bundle. limit is how much each list holds, and a
// tenth of how many processes are shown; 0 means all, up to bounds that are counted
// in what is beyond.
func Summarize(ctx context.Context, src Source, limit int) (*Summary, error) {
	processes := 10 * limit
	if limit <= 0 {
		limit, processes = 0, maxProcesses
	}
	docs, err := src.Documents(ctx, schema.SurfacePath) // not shown, and large
	if err != nil {
		return nil, err
	}
	g := newGatherer(processes, docs.Run.Workdir)
	if err := g.policies(ctx, src); err != nil {
		return nil, err
	}
	for it, err := range src.Items(ctx, schema.KernelPath) {
		if err != nil {
			return nil, err
		}
		g.event(it.Kernel)
	}
	s := g.summary(limit)
	if err := s.nameContainers(ctx, src); err != nil {
		return nil, err
	}
	s.about(docs)
	s.correlate(&docs.Correlation, limit)
	s.Schema, s.Identity = schema.InspectionV0, src.Identity()
	return s, nil
}
