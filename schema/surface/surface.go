package surface

import (
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// Builder gathers the capability surface: what events of class agent touched,
// as sorted sets. Equal workloads give equal bytes; normalize.go says which
// parts of a name count as equal.
//
//   - filesystem_paths: the object of every file event, both names of a rename
//     and a link, whatever the outcome: what was denied or not there was tried.
//   - network_endpoints: "ip:port" of every connect and datagram, followed by
//     " (name,name)" with the names that DNS and TLS gave it; "unix:/path";
//     "bind ip:port" for a local endpoint. A bound port in the range from which
//     the kernel chooses (32768 and up, ip(7)) is <ephemeral>, and so is that
//     port where the run itself connects to it over loopback, and the peer of
//     a datagram there. Peers of accepted connections are not listed: their
//     ports are chance, and the bind says that they could come.
//   - process_execs: the executable of every successful exec.
//
// It is not safe for concurrent use.
type Builder struct {
	// Redact takes the secrets out of a name, tags included, before anything
	// else looks at it; nil leaves names as they are.
	Redact func(string) string

	runID               string
	paths, hosts, execs *set
	tools, decisions    map[string]struct{}
	leftOut             [schema.NumClasses]uint64
	bound               portSet             // of those from firstEphemeral on
	temp                map[string]made     // by exact path; see made
	past                map[string]string   // names of those that are gone, for repeats that come late
	held                int                 // how many paths wait for one of temp
	dirs                int                 // how many of temp were directories
	words, pieces       map[string]struct{} // of arguments, and of random names; see hear
	perls               map[uint64]struct{} // the instances that execute Perl

	room    map[string]int64  // bytes of each list in the document
	omitted map[string]uint64 // by list: how many WriteTo had no room for
}

// setMemory bounds each set in memory, in bytes.
const setMemory = 4 << 20

// New returns an empty surface. What is over 4 MiB in a set is kept in files in
// dir, with names that start with a dot, until Close; with an empty dir
// everything stays in memory.
func New(runID, dir string) *Builder { return newBuilder(runID, dir, setMemory) }

func newBuilder(runID, dir string, memory int) *Builder {
	return &Builder{
		runID: runID, room: listRoom, tools: make(map[string]struct{}), decisions: make(map[string]struct{}),
		temp: make(map[string]made), past: make(map[string]string), words: make(map[string]struct{}),
		pieces: make(map[string]struct{}), perls: make(map[uint64]struct{}),
		paths: newSet(dir, ".surface-paths", memory),
		hosts: newSet(dir, ".surface-hosts", memory),
		execs: newSet(dir, ".surface-execs", memory),
	}
}

// AddPolicy adds what a line of the policy layer decided about a tool.
func (b *Builder) AddPolicy(e *schema.PolicyEvent) {
	if e.Tool != "" {
		b.AddTool(e.Tool)
		b.AddDecision(e.Decision + ":" + e.Tool)
	}
}

// AddTool adds to mcp_tools, AddDecision to policy_decisions ("allow:tool").
func (b *Builder) AddTool(name string)  { b.tools[b.clean(name)] = struct{}{} }
func (b *Builder) AddDecision(d string) { b.decisions[b.clean(d)] = struct{}{} }

// clean is a name without secrets and without the tags of those that were taken
// out of a line before: runs that differ only in a secret have one surface.
func (b *Builder) clean(name string) string {
	if b.Redact != nil {
		return b.Redact(name)
	}
	return redact.Untag(name)
}

// LeftOut is how many occurrences were of another class than agent, by class;
// classes without any are left out.
func (b *Builder) LeftOut() map[string]uint64 {
	m := make(map[string]uint64)
	for c, n := range b.leftOut {
		if n > 0 {
			m[schema.Class(c).String()] = n
		}
	}
	return m
}

// Close removes the files of the surface.
func (b *Builder) Close() {
	b.paths.close()
	b.hosts.close()
	b.execs.close()
}

// Add takes one event of the layer. Only a failure to spill is an error. It
// keeps nothing of e but its strings.
func (b *Builder) Add(e *schema.KernelEvent) error {
	if e.Class != schema.ClassAgent {
		b.leftOut[e.Class] += e.Times()
		return nil
	}
	switch e.Kind {
	case schema.KindOpen, schema.KindMkdir, schema.KindMknod, schema.KindSymlink, schema.KindLink, schema.KindRename:
		b.remember(e)
	case schema.KindExec:
		b.hear(e.Argv)
		if err := b.executed(e); err != nil {
			return err
		}
	}
	b.program(e)
	for name, how := range e.Touches() {
		var err error
		switch how {
		case schema.AccessRun:
			err = b.execs.add(b.clean(e.Name(nameless(normalizePath(name, e.PID), e.Marks))))
		case schema.AccessConnect:
			err = b.endpoint(name, e)
		default:
			err = b.path(e, name)
		}
		if err != nil {
			return err
		}
	}
	switch e.Kind {
	case schema.KindUnlink, schema.KindRmdir, schema.KindRename:
		if len(b.temp) > 0 && !e.Failed() {
			return b.gone(plainPath(e.Value, e.PID))
		}
	case schema.KindFlow:
		return b.nameOf(e.Value, e.Names...)
	case schema.KindTLS:
		return b.nameOf(e.Remote, e.Value)
	case schema.KindBind:
		return b.bind(e)
	case schema.KindListen:
		b.note(e.Value)
	}
	return nil
}

// program takes note of who executes Perl, which makes names of its own kind.
func (b *Builder) program(e *schema.KernelEvent) {
	_, perl := b.perls[e.ParentExecID]
	if e.Kind == schema.KindExec && isProgram(e.Value, "perl") || e.Kind == schema.KindFork && perl &&
		len(b.perls) < maxMade {
		b.perls[e.ExecID] = struct{}{}
	}
}
