package query

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// Summary is what a run did, for inspect. Every list holds what happened most
// often first; how much there is beyond it stands beside it.
type Summary struct {
	RunID    string   `json:"run_id"`
	Identity string   `json:"identity"`
	Command  []string `json:"command"`
	Outcome  string   `json:"outcome"`
	ExitCode *int     `json:"exit_code"`
	Signal   *string  `json:"signal"`
	// ChildNS is how long the command ran.
	ChildNS   int64               `json:"child_ns"`
	Error     *schema.ResultError `json:"error,omitempty"`
	Workdir   string              `json:"workdir"`
	StartedAt string              `json:"started_at"`
	Usage     schema.Usage        `json:"usage"`
	Stdio     schema.Stdio        `json:"stdio"`
	Limits    schema.Limits       `json:"limits"`
	LimitsHit []string            `json:"limits_hit"`
	Leftovers int                 `json:"leftovers"`
	Contract  *string             `json:"contract"`

	// What may be claimed, from observation-health.json.
	KernelLayer   string                        `json:"kernel_layer"`
	PolicyLayer   string                        `json:"policy_layer"`
	SDKLayer      string                        `json:"sdk_layer"`
	Correlation   string                        `json:"cgroup_correlation"`
	Layers        map[string]schema.LayerCounts `json:"layers"`
	RingbufDrops  uint64                        `json:"ringbuf_drops"`
	Network       string                        `json:"network_protocol_coverage"`
	EndpointScope string                        `json:"network_endpoint_claim_scope"`
	Reasons       []schema.Reason               `json:"reasons"`

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

	Processes Processes     `json:"processes"`
	Commands  List[Command] `json:"commands"`
	// Files are those that class agent touched: created under a new name or
	// opened with O_CREAT, written to or opened for it, changed in mode, owner
	// or attributes, deleted or renamed away, opened for reading only.
	Created List[File] `json:"created"`
	Written List[File] `json:"written"`
	Changed List[File] `json:"changed"`
	Deleted List[File] `json:"deleted"`
	Read    List[File] `json:"read"`
	Hosts   List[Host] `json:"hosts"`
	Lookups List[Name] `json:"lookups"`
	// Denied is what policy or permissions refused, of every class; Failed
	// what failed otherwise, of class agent.
	Denied     List[Failure] `json:"denied"`
	Failed     List[Failure] `json:"failed"`
	Privileged List[Failure] `json:"privileged"`
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
	Bytes uint64 `json:"bytes,omitempty"`
}

// Host is a remote endpoint.
type Host struct {
	Endpoint string   `json:"endpoint"`
	Names    []string `json:"names,omitempty"`
	Protocol string   `json:"protocol,omitempty"`
	By       string   `json:"by,omitempty"`
	Count    uint64   `json:"count"`
	Failed   uint64   `json:"failed,omitempty"`
	BytesOut uint64   `json:"bytes_out,omitempty"`
	BytesIn  uint64   `json:"bytes_in,omitempty"`
}

// Name is a name that DNS was asked for.
type Name struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// Failure is something that was denied, failed, or needed privilege.
type Failure struct {
	Kind   string `json:"kind"`
	Value  string `json:"value"`
	Result string `json:"result"`
	By     string `json:"by,omitempty"`
	Count  uint64 `json:"count"`
}

// Source is the bundle that Summarize reads; *archive.Reader is one.
type Source interface {
	Bundle
	Documents(context.Context) (*archive.Documents, error)
	Identity() string
}

// DefaultLimit is how much a list of a Summary holds.
const DefaultLimit = 20

// Summarize reads the whole bundle. limit is how much each list holds, and a
// tenth of how many processes are shown; 0 means DefaultLimit.
func Summarize(ctx context.Context, src Source, limit int) (*Summary, error) {
	if limit <= 0 {
		limit = DefaultLimit
	}
	docs, err := src.Documents(ctx)
	if err != nil {
		return nil, err
	}
	g := newGatherer(10 * limit)
	var e schema.KernelEvent
	n := 0
	for line, err := range src.Lines(ctx, schema.KernelPath) {
		n++
		if err == nil {
			if err = schema.DecodeKernelEvent(line, &e); err != nil {
				err = fmt.Errorf("%s: line %d: %w", schema.KernelPath, n, err)
			}
		}
		if err != nil {
			return nil, err
		}
		g.event(&e)
	}
	s := g.summary(limit)
	s.about(docs)
	s.correlate(&docs.Correlation, limit)
	s.Identity = src.Identity()
	return s, nil
}

// gatherer collects a summary event by event.
type gatherer struct {
	tree    *tree
	events  uint64
	kinds   map[schema.KernelKind]uint64
	classes [schema.NumClasses]uint64

	commands                                 *tally[Command]
	created, written, changed, deleted, read *tally[File]
	hosts                                    *tally[Host]
	lookups                                  *tally[Name]
	denied, failed, privileged               *tally[Failure]
}

func newGatherer(processes int) *gatherer {
	return &gatherer{
		tree: newTree(processes), kinds: make(map[schema.KernelKind]uint64), commands: newTally[Command](),
		created: newTally[File](), written: newTally[File](), changed: newTally[File](), deleted: newTally[File](), read: newTally[File](),
		hosts: newTally[Host](), lookups: newTally[Name](), denied: newTally[Failure](), failed: newTally[Failure](), privileged: newTally[Failure](),
	}
}

func (g *gatherer) event(e *schema.KernelEvent) {
	n := e.Times()
	g.events += n
	if len(g.kinds) < 1024 || g.kinds[e.Kind] > 0 {
		g.kinds[e.Kind] += n
	}
	g.classes[e.Class] += n
	g.tree.event(e)
	g.failure(e, n)
	if e.Class != schema.ClassAgent || e.Failed() && e.Kind != schema.KindConnect {
		return
	}
	switch e.Kind {
	case schema.KindOpen:
		switch {
		case e.Value == "/dev/null":
		case e.Creates():
			g.file(g.created, e.Value, e, n, 0)
			g.file(g.written, e.Value, e, n, 0)
		case e.Writes():
			g.file(g.written, e.Value, e, n, 0)
		default:
			g.file(g.read, e.Value, e, n, 0)
		}
	case schema.KindWrite:
		g.file(g.written, e.Value, e, n, e.BytesOut)
	case schema.KindMmapShared, schema.KindTruncate:
		g.file(g.written, e.Value, e, n, 0)
	case schema.KindMkdir, schema.KindMknod, schema.KindSymlink:
		g.file(g.created, e.Value, e, n, 0)
	case schema.KindLink:
		g.file(g.created, e.Target, e, n, 0)
	case schema.KindRename:
		g.file(g.created, e.Target, e, n, 0)
		g.file(g.deleted, e.Value, e, n, 0)
	case schema.KindUnlink, schema.KindRmdir:
		g.file(g.deleted, e.Value, e, n, 0)
	case schema.KindChmod, schema.KindChown, schema.KindSetxattr, schema.KindRemovexattr, schema.KindUtime:
		g.file(g.changed, e.Value, e, n, 0)
	case schema.KindConnect, schema.KindSendto, schema.KindFlow, schema.KindConnectBlocked:
		g.host(e, n)
	case schema.KindDNS:
		if e.Value != "" && (e.DNS == nil || !e.DNS.Response) {
			c := g.lookups.at(e.Value, n)
			if c != nil {
				c.Name, c.Count = e.Value, c.Count+n
			}
		}
	case schema.KindExec:
		argv := e.Argv
		if c := g.commands.at(e.Value+"\x00"+cut(strings.Join(argv, "\x00"), 4096), n); c != nil {
			if c.Count == 0 {
				c.Argv, c.Exe = shortArgs(argv), e.Value
			}
			c.Count += n
		}
	}
}

// shortArgs keeps what is shown of an argument vector.
func shortArgs(argv []string) []string {
	const args, chars = 64, 256
	out := make([]string, 0, min(len(argv), args))
	for i, a := range argv {
		if i == args {
			return append(out, "…")
		}
		out = append(out, strings.Clone(cut(a, chars)))
	}
	return out
}

func (g *gatherer) file(t *tally[File], path string, e *schema.KernelEvent, n, bytes uint64) {
	if path == "" {
		return
	}
	if f := t.at(path, n); f != nil {
		if f.Count == 0 {
			f.Path, f.By = path, g.tree.exe(e)
		}
		f.Count += n
		f.Bytes += bytes
	}
}

func (g *gatherer) host(e *schema.KernelEvent, n uint64) {
	if e.Value == "" {
		return
	}
	h := g.hosts.at(e.Value, n)
	if h == nil {
		return
	}
	if h.Endpoint == "" {
		h.Endpoint, h.Protocol, h.By = e.Value, e.Protocol, g.tree.exe(e)
	}
	if e.Kind != schema.KindFlow {
		h.Count += n
	} else {
		h.BytesOut += e.BytesOut
		h.BytesIn += e.BytesIn
	}
	if e.Failed() || e.Blocked() {
		h.Failed += n
	}
	for _, name := range e.Names {
		if len(h.Names) < 8 && !slices.Contains(h.Names, name) {
			h.Names = append(h.Names, name)
		}
	}
}

// failure notes what was denied, failed or needed privilege.
func (g *gatherer) failure(e *schema.KernelEvent, n uint64) {
	var t *tally[Failure]
	value, result := e.Value, outcome(e)
	switch {
	case e.Blocked(), e.Failed() && (result == "EACCES" || result == "EPERM"):
		t = g.denied
	case e.Kind >= schema.KindSetID && e.Kind <= schema.KindCompatSyscall || e.Kind == schema.KindLeave:
		t = g.privileged
		if e.Call != "" {
			value = strings.TrimSpace(e.Call + " " + value)
		}
	case e.Failed() && e.Class == schema.ClassAgent:
		t = g.failed
	default:
		return
	}
	if f := t.at(e.Kind.String()+"\x00"+value+"\x00"+result, n); f != nil {
		if f.Count == 0 {
			f.Kind, f.Value, f.Result, f.By = e.Kind.String(), value, result, g.tree.exe(e)
		}
		f.Count += n
	}
}

func (g *gatherer) summary(limit int) *Summary {
	s := &Summary{Events: g.events, ByKind: make(map[string]uint64), ByClass: make(map[string]uint64), Processes: g.tree.done()}
	for k, n := range g.kinds {
		s.ByKind[k.String()] = n
	}
	for c, n := range g.classes {
		if n > 0 {
			s.ByClass[schema.Class(c).String()] = n
		}
	}
	files := func(t *tally[File]) List[File] {
		return t.list(limit, func(f *File) (uint64, string) { return max(f.Count, f.Bytes), f.Path })
	}
	failures := func(t *tally[Failure]) List[Failure] {
		return t.list(limit, func(f *Failure) (uint64, string) { return f.Count, f.Kind + f.Value + f.Result })
	}
	s.Commands = g.commands.list(limit, func(c *Command) (uint64, string) { return c.Count, c.Exe + strings.Join(c.Argv, " ") })
	s.Created, s.Written, s.Changed, s.Deleted, s.Read = files(g.created), files(g.written), files(g.changed), files(g.deleted), files(g.read)
	s.Hosts = g.hosts.list(limit, func(h *Host) (uint64, string) { return h.BytesIn + h.BytesOut + h.Count, h.Endpoint })
	s.Lookups = g.lookups.list(limit, func(x *Name) (uint64, string) { return x.Count, x.Name })
	s.Denied, s.Failed, s.Privileged = failures(g.denied), failures(g.failed), failures(g.privileged)
	return s
}
