package layer

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
)

// Options are what a [Builder] needs. RunID and Sink must be set.
type Options struct {
	RunID string
	// Start is run_started on CLOCK_BOOTTIME, in nanoseconds; t_ns counts from it.
	Start uint64
	// Sink takes the lines in order. The event and its slices are reused after
	// it returns. After it has failed once it is not called again: every
	// further event is counted as dropped.
	Sink func(*schema.KernelEvent) error
	// Surface gathers what is class agent; nil for none.
	Surface *surface.Builder
	// Bind may set ToolCallID and BoundBy of a line before it goes to Sink. They
	// are set already if the environment or an ancestor of the process named the
	// call. What Bind sets on a fork, an exec or a join also holds for the later
	// events of the process and its descendants, unless BoundBy is window.
	// exe is what the process executes, empty if unknown. Nil changes nothing.
	Bind func(ev *kernel.Event, e *schema.KernelEvent, exe string)
	// Wrote is called for each event of writes to a file when it is pushed, up to
	// Window before its line is made: with the file, the bytes, the number of writes,
	// and the times of the first and the last one in the clock of t_ns. It may be nil.
	Wrote func(path string, bytes, count uint64, first, last int64)
	// Shim reports whether the arguments are those of the runner's own program, which
	// it executes through /proc/self/exe before a command; nil for none.
	Shim func(argv []string) bool
	// Helper reports whether an exec is of the runner's own program, which an agent starts to report a
	// call or to reach a server, and Helped whether such a process does by itself what an event
	// says; the latter is class runner. Both are nil for none.
	Helper func(ev *kernel.Event) bool
	Helped func(e *schema.KernelEvent) bool
	// Own reports whether an exec is of the recorder's own program: a recorder inside of the run loads programs into
	// the kernel, as this one does. Nil for none.
	Own func(ev *kernel.Event) bool
	// MovedV1 is called for a process that was moved to another cgroup of a v1 hierarchy. It
	// reports whether that is outside of the run's cgroup, and which controllers no longer
	// cover the run then. Nil: the run has no cgroup in a v1 hierarchy.
	MovedV1 func(hierarchy, cgroup uint64, path string) (controllers string, left bool)
	// Inherited returns what the command begins with. It returns nil before the command is started. Nil: nothing.
	Inherited func() *Inherited
	// Held is the same of the processes in Present, by process; their lines follow their join lines.
	Held map[uint32]*Inherited
	// Checks are the checks of the contract, whose events are not the agent's; nil for
	// a run without a contract.
	Checks *Checks
	// Foreign says that somebody else started the processes: the first of them does
	// nothing for the runner. Present are those that were there when observation
	// began, at Begin on CLOCK_BOOTTIME: each gets a join line.
	Foreign bool
	Present []kernel.Present
	Begin   uint64
	// MountNS is the number of the recorder's mount namespace, as /proc/self/ns/mnt has it.
	// Paths of processes in another one are marked, unless it is the one that the runner
	// made for the command. 0 marks none.
	MountNS uint32
	// Recorder is the recorder's own process, in the initial pid namespace; 0 is unknown.
	Recorder uint32
	// CgroupDir is the session's directory in the cgroup2 hierarchy. A cgroup below it
	// whose name has a container's id is that container's; empty: no container is
	// recognized. Container is the container's id if all events are of one.
	CgroupDir, Container string
	// Starter returns the process that had asked an engine to start the container with that
	// id, and when, where a process from outside of the session joined it at t. Times are
	// nanoseconds of CLOCK_BOOTTIME. A pid of 0 is unknown, and so are all with nil.
	Starter func(container string, t uint64) (pid uint32, at uint64)
	// Window is how long an event is held for earlier ones from other CPUs;
	// 0 means 20 ms. MaxHeld is how many are held; 0 means 4096. The oldest is
	// written as soon as one of the two is reached.
	Window  time.Duration
	MaxHeld int
}

// maxHeldBytes bounds what held events refer to: paths, long argvs.
const maxHeldBytes = 4 << 20

// Builder makes lines from events. It is not safe for concurrent use.
type Builder struct {
	o     Options
	win   window
	procs *table
	names *nameTable
	ways  ways

	cgroups cgroups

	present map[uint32]kernel.Present // those of Options.Present that have no line yet, by pid

	newest   uint64              // latest time seen
	released uint64              // latest time handed out
	out      *schema.KernelEvent // the line that is made: of an event, or added
	added    schema.KernelEvent
	ownNS    uint32 // the mount namespace that the runner made for the command
	begun    bool   // the command has been executed

	counts schema.LayerCounts
	stats  Stats
	open   openCalls
	kinds  [256]uint64
	err    error
}

// NewBuilder returns an empty builder.
func NewBuilder(o Options) *Builder {
	if o.Window <= 0 {
		o.Window = 20 * time.Millisecond
	}
	if o.MaxHeld <= 0 {
		o.MaxHeld = 4096
	}
	b := &Builder{o: o, procs: newTable(), names: newNameTable(), present: make(map[uint32]kernel.Present),
		open: newOpenCalls()}
	for _, p := range o.Present {
		b.present[p.PID] = p
	}
	b.procs.foreign = o.Foreign
	b.cgroups.dir = o.CgroupDir
	return b
}

// Push takes one event, which may be reused when Push returns, and hands out those that were held for long enough. The
// error is the first one of the sink or the surface; every later call returns it too, and counting goes on.
func (b *Builder) Push(ev *kernel.Event) error {
	b.stats.Received++
	if b.o.Wrote != nil && ev.Kind == schema.KindWrite {
		b.o.Wrote(ev.Value, ev.BytesOut, ev.Count, int64(ev.First-b.o.Start), int64(ev.Last-b.o.Start))
	}
	b.ways.note(ev)
	t := ev.Time
	if ev.Repeat {
		t = max(t, b.newest) // its place is where the count is given out
	}
	b.newest = max(b.newest, t)
	if t < b.released {
		b.stats.Late++
		b.line(ev, true)
	} else {
		b.win.add(ev, t)
	}
	return b.release(b.newest)
}

// Tick hands out what has been held for the window at now, CLOCK_BOOTTIME in
// nanoseconds. Call it when no event has come for a while.
func (b *Builder) Tick(now uint64) error {
	b.newest = max(b.newest, now)
	err := b.release(now)
	if len(b.present) > 0 && now > b.o.Begin+uint64(presentAfter) {
		b.admitAll(now)
		err = b.err
	}
	return err
}

// Close hands out everything that is still held.
func (b *Builder) Close() error {
	for b.win.len() > 0 {
		b.next()
	}
	b.admitAll(b.newest)
	return b.err
}

func (b *Builder) release(now uint64) error {
	w := uint64(b.o.Window)
	for b.win.len() > 0 && (b.win.len() > b.o.MaxHeld || b.win.bytes > maxHeldBytes ||
		b.win.oldest().ev.Time+w <= now) {
		b.next()
	}
	return b.err
}

func (b *Builder) next() {
	h := b.win.pop()
	b.released = max(b.released, h.ev.Time)
	b.line(&h.ev, false)
	b.win.done(h)
}

// check marks b.out, which is an event of p, as a check's where it is one.
func (b *Builder) check(p *process, cgroupID uint64) {
	var c *Check
	if p != nil && !p.setup {
		c = p.check
	} else if p != nil {
		return // an engine's runtime, for the check
	} else {
		c = b.o.Checks.of(cgroupID, 0) // byte counts of a connection
	}
	if c == nil {
		return
	}
	b.out.Class = schema.ClassCheck
	switch b.out.Kind {
	case schema.KindFork, schema.KindExec, schema.KindJoin:
		b.out.Check, b.out.Baseline = c.Name, c.Baseline
	}
}

// container is the id of the container that b.out was done in.
func (b *Builder) container(ev *kernel.Event, p *process) string {
	c := &b.cgroups
	switch {
	case b.o.Container != "":
		return b.o.Container
	case c.dir == "":
		return ""
	case ev.Repeat:
		if f := b.procs.first.Get(ev.Slot); f.id == ev.ID {
			return f.container
		}
	case ev.Kind == schema.KindLeave:
		if p != nil {
			return p.container
		}
		return ""
	}
	id := ev.Task.CgroupID
	if ev.Kind == schema.KindFork {
		id = ev.Child.CgroupID
	}
	if id == 0 {
		return ""
	}
	if id == c.last {
		return c.is
	}
	in, ok := c.byID[id]
	if !ok {
		at := ""
		if ev.Kind == schema.KindJoin {
			at = c.below(ev.Value)
		}
		in = c.name(id, at)
	}
	c.last, c.is = id, in
	return in
}

// contain sets the container that the event is of, and its class if an engine's runtime is
// still setting the container up. The runtime does that in a process that it made outside
// of the run and moved into it. The process becomes the container's first by executing a
// program in another mount namespace. A runtime that was started inside of the run counts
// as the agent, which could pretend to be one.
func (b *Builder) contain(ev *kernel.Event, p *process) {
	b.out.ContainerID = b.container(ev, p)
	if b.out.ContainerID == "" && p != nil && !ev.Repeat {
		b.out.ContainerID = p.container // moved on, as into the cgroup of a tool call
	}
	if p == nil || ev.Repeat {
		return
	}
	p.container = b.out.ContainerID
	begins := ev.Kind == schema.KindExec && b.o.MountNS != 0 && b.elsewhere(p)
	if begins && (p.setup || b.o.Container != "") {
		b.cgroups.begin(p.container, p.mountNS)
	}
	if b.o.Container != "" {
		return
	}
	switch ev.Kind {
	case schema.KindJoin:
		if p.setup = p.container != ""; p.setup && p.check == nil {
			p.check = b.o.Checks.during(ev.Time)
		}
	case schema.KindExec:
		p.setup = p.setup && b.o.MountNS != 0 && !begins
	}
}

// started makes a container's first process the child of the one that asked an engine
// for it, and of its tool call. b.out is its join.
func (b *Builder) started(ev *kernel.Event, p *process) {
	if b.o.Starter == nil || b.out.Kind != schema.KindJoin || b.out.ContainerID == "" {
		return
	}
	pid, at := b.o.Starter(b.out.ContainerID, ev.Time)
	by := b.procs.byPID[pid]
	if pid == 0 || by == nil || by.start == 0 || by.start > at {
		return // it is not of the run, or its number is another's now
	}
	b.out.ParentExecID = by.execID
	if by.toolCall != "" {
		p.toolCall, p.boundBy = by.toolCall, schema.BoundByLineage
		b.out.ToolCallID, b.out.BoundBy = p.toolCall, p.boundBy
	}
}

// convert adds to the line of ev, whose process is p, what follows from the run's earlier events. begin has been
// called.
func (b *Builder) convert(ev *kernel.Event, p *process) {
	e := b.out
	switch ev.Kind {
	case schema.KindFork:
		if ev.Thread {
			b.procs.thread(ev.Child.TID)
			e.Kind = schema.KindThread
		}
	case schema.KindExec:
		b.exec(ev, p)
	case schema.KindConnect, schema.KindSendto, schema.KindBind, schema.KindListen, schema.KindAccept, schema.KindFlow,
		schema.KindConnectResult, schema.KindForeignSocket:
		b.network(ev)
	case schema.KindDNS:
		b.dns(ev)
	case schema.KindTLS:
		b.tls(ev)
	}
}

// exec begins a new instance of p.
func (b *Builder) exec(ev *kernel.Event, p *process) {
	e := b.out
	e.ParentExecID, p.execID = p.execID, b.procs.nextID()
	e.ExecID = p.execID
	if surface.SystemLibrary(e.Loader) {
		e.Loader = ""
	}
	p.exe, p.helper = e.Value, b.o.Helper != nil && b.o.Helper(ev)
	if p.own = b.o.Own != nil && b.o.Own(ev); p.own {
		// A process in another mount namespace executed it by way of /proc/self/exe. Its path is the recorder's.
		e.Marks &^= schema.MarkUnreachable
	}
	p.starting = p.starting && b.o.Shim != nil && ev.Filename() == "/proc/self/exe" && b.o.Shim(e.Argv)
	if id := ev.CallInEnv; id != "" && utf8.ValidString(id) {
		p.toolCall, p.boundBy = id, "env"
	} else if p.toolCall != "" {
		p.boundBy = "lineage"
	}
	e.ToolCallID, e.BoundBy = p.toolCall, p.boundBy
}

// network adds the names of the peer.
func (b *Builder) network(ev *kernel.Event) {
	e := b.out
	e.UserMemory = ev.FromUser
	b.open.peers.add(ev)
	switch ev.Kind {
	case schema.KindBind, schema.KindListen:
		return
	case schema.KindConnect:
		if ev.Peer.IsValid() {
			b.stats.Connects++
		}
	case schema.KindSendto:
		if ev.Peer.IsValid() {
			b.stats.DatagramPeers++
		}
	}
	e.Names = b.names.of(kernel.Unmapped(ev.Peer))
}

// line makes the line of ev, and before it one for its process if that is new.
func (b *Builder) line(ev *kernel.Event, late bool) {
	b.expect(ev)
	if ev.Kind == kernel.KindMovedV1 || ev.Kind == kernel.KindKernelExec {
		b.beside(ev, late)
		return
	}
	p, parent, joined := b.process(ev)
	if joined && ev.Kind != schema.KindJoin {
		b.add(ev, p, late)
		b.out.Kind, b.out.PPID, b.out.CgroupID = schema.KindJoin, ev.Task.PPID, ev.Task.CgroupID
		b.contain(ev, p)
		b.check(p, ev.Task.CgroupID)
		b.stats.Added++
		b.finish(ev, p)
	}
	if ev.Kind == kernel.KindUnmodelled {
		b.unmodelled(ev, p)
		return
	}
	b.out = &ev.KernelEvent
	b.begin(ev, p, late)
	b.out.ParentExecID = parent
	b.out.DirectoryClaimed = b.ways.doubtful(ev)
	b.convert(ev, p)
	b.contain(ev, p)
	b.check(p, ev.Task.CgroupID)
	if joined {
		b.started(ev, p)
	}
	b.mounts(ev, p)
	b.class(ev, p)
	helper := b.reach(ev, p)
	b.opens(ev, p)
	b.finish(ev, p)
	if ev.Kind == schema.KindExec {
		b.inherited(ev, p, late)
	}
	if helper != "" {
		b.helperLine(ev, p, helper, late)
	}
	if ev.Kind == schema.KindExit && p != nil {
		b.procs.exit(p)
	}
}

// process finds or makes the instance that ev belongs to. parent is the one that
// forked it. p is nil only for an event that comes after its process was forgotten.
func (b *Builder) process(ev *kernel.Event) (p *process, parent uint64, joined bool) {
	p = b.procs.find(ev)
	if ev.Kind == schema.KindFork && ev.SharesFiles && (p == nil || !p.starting) {
		b.stats.Reach.SharedTables++
	}
	switch {
	case ev.Kind == schema.KindFork && !ev.Thread:
		if p != nil { // the first process is forked by the runner
			parent = p.execID
		}
		child := b.procs.fork(ev, p)
		if p == nil {
			child.check = b.o.Checks.of(ev.Child.CgroupID, ev.Time)
		}
		if child.check != nil {
			b.stats.CheckForks++
		}
		return child, parent, false
	case p != nil, ev.Repeat, ev.Kind == schema.KindFlow, ev.PID == 0: // the last is no process of the run
		return p, 0, false
	}
	p = b.procs.join(ev)
	p.check = b.o.Checks.of(ev.Task.CgroupID, ev.Time)
	return p, 0, true
}

// add begins a line of its own beside that of ev.
func (b *Builder) add(ev *kernel.Event, p *process, late bool) {
	b.added = schema.KernelEvent{
		PID: ev.Task.PID, TID: ev.Task.TID, Repeat: ev.Repeat, Count: ev.Count,
	}
	b.out = &b.added
	b.begin(ev, p, late)
}

// begin sets what all lines have.
func (b *Builder) begin(ev *kernel.Event, p *process, late bool) {
	e := b.out
	e.RunID, e.TNS, e.Late = b.o.RunID, b.rel(ev.Time), late
	if e.TID == 0 {
		e.TID = e.PID
	}
	if p != nil {
		e.ExecID, e.ToolCallID, e.BoundBy = p.execID, p.toolCall, p.boundBy
	}
	if e.Repeat {
		e.Count, e.TFirstNS, e.TLastNS = max(e.Count, 1), b.rel(ev.First), b.rel(ev.Last)
	}
}

func (b *Builder) rel(t uint64) int64 { return int64(t - b.o.Start) }

// class classifies b.out. A repeat has the class, the instance and the tool
// call of the event it repeats.
func (b *Builder) class(ev *kernel.Event, p *process) {
	if ev.Repeat {
		if f := b.procs.first.Get(ev.Slot); f.id == ev.ID {
			b.out.ExecID, b.out.Class = f.execID, f.class
			b.out.ToolCallID, b.out.BoundBy = f.toolCall, f.boundBy
			b.mark(f.mounts)
			return
		}
	}
	switch {
	case p == nil || b.out.Class == schema.ClassCheck:
	case p.starting && b.out.Kind != schema.KindFork && b.out.Kind != schema.KindExecFailed &&
		b.out.Kind != schema.KindExit:
		b.out.Class = schema.ClassRunner
	case p.helper && b.out.Kind != schema.KindFork && b.o.Helped(b.out):
		b.out.Class = schema.ClassRunner
	case p.setup:
		b.out.Class = schema.ClassSetup
	default:
		b.out.Class = surface.Classify(b.out, p.exe)
	}
	if ev.Slot == 0 || ev.Repeat {
		return
	}
	if first := b.procs.first.At(ev.Slot); first != nil {
		*first = eventID{ev.ID, b.out.ExecID, b.out.Class, b.out.ToolCallID, b.out.BoundBy, b.mountsOf(p),
			b.out.ContainerID}
	}
}

// finish counts b.out, adds it to the surface and hands it out.
func (b *Builder) finish(ev *kernel.Event, p *process) {
	e, exe := b.out, ""
	if p != nil {
		exe = p.exe
	}
	if b.o.Bind != nil {
		b.o.Bind(ev, e, exe)
		if p != nil && (e.Kind == schema.KindFork || e.Kind == schema.KindExec || e.Kind == schema.KindJoin) &&
			e.BoundBy != schema.BoundByWindow {
			p.toolCall, p.boundBy = e.ToolCallID, e.BoundBy
		}
	}
	n := e.Times()
	b.counts.Seen += n
	b.stats.ByClass[e.Class] += n
	b.kinds[e.Kind&255] += n
	if e.Class == schema.ClassRunner {
		b.stats.Own.Count(ev)
	}
	const process = schema.FieldArgv | schema.FieldEnvKeys
	if e.Truncated&^process != 0 && e.Errno() != "ENAMETOOLONG" { // which did nothing
		b.stats.Cut++
	}
	if e.Truncated&process != 0 {
		b.stats.CutArguments++
	}
	if e.UserMemory && e.Kind == schema.KindOpen && e.Result >= 0 && !e.Attempted {
		b.stats.UserPaths++
	}
	if e.DirectoryClaimed {
		b.stats.DirectoryClaims++
	}
	if e.Kind == schema.KindJoin && e.Class == schema.ClassAgent {
		b.stats.AgentsJoined++
	}
	// What an open file is written is an event of its own, with the file.
	named := e.Kind != schema.KindOpen || e.Changes()
	if named && (e.UserMemory || e.Claimed || e.DirectoryClaimed) && e.Class == schema.ClassAgent && !e.Failed() {
		for _, how := range e.Touches() {
			if how&schema.AccessModify != 0 {
				b.stats.DoubtfulChanges++
				break
			}
		}
	}
	if b.o.Surface != nil {
		if err := b.o.Surface.Add(e, exe); err != nil && b.err == nil {
			b.err = err
		}
	}
	if b.err == nil {
		b.err = b.o.Sink(e)
	}
	if b.err != nil {
		b.counts.Dropped += n
		b.stats.Dropped++
		return
	}
	b.counts.Written++
	b.stats.Written++
	b.counts.Coalesced += n - 1
}

// mounts follows which mount namespace p is in, and marks the paths of b.out.
func (b *Builder) mounts(ev *kernel.Event, p *process) {
	if p == nil || ev.Repeat { // a repeat is marked as the event that it repeats
		return
	}
	if ev.MountNS != 0 && !ev.Thread {
		p.mountNS = ev.MountNS
		if p.starting && ev.MountNS != b.o.MountNS { // that is the run's own anyway
			b.ownNS = ev.MountNS
		}
	}
	b.mark(b.mountsOf(p))
}

// elsewhere reports whether the paths of p are of other mounts than the run's.
func (b *Builder) elsewhere(p *process) bool {
	return b.o.MountNS != 0 && p != nil && p.mountNS != 0 && p.mountNS != b.o.MountNS && p.mountNS != b.ownNS
}

// mountsOf returns the marks that the paths of p get for the mounts that it sees.
func (b *Builder) mountsOf(p *process) schema.Marks {
	switch {
	case !b.elsewhere(p):
		return 0
	case p.container != "" && b.cgroups.roots[p.container] == p.mountNS:
		return schema.MarkMountNamespace | schema.MarkContainer
	}
	return schema.MarkMountNamespace
}

func (b *Builder) mark(mounts schema.Marks) {
	if mounts == 0 {
		return
	}
	e := b.out
	names := []string{e.Value, e.Target}
	if e.Kind == schema.KindJoin || e.Kind == schema.KindLeave { // their values are cgroups
		names = []string{e.Exe}
	}
	for _, name := range names {
		if strings.HasPrefix(name, "/") || strings.HasPrefix(name, "unix:/") || e.Marks != 0 && name != "" {
			e.Marks |= mounts
			return
		}
	}
}

// dns reads the message of a dns event.
func (b *Builder) dns(ev *kernel.Event) {
	e := b.out
	name, msg := parseDNS(ev.Payload, e.Protocol == "tcp")
	if msg == nil {
		b.stats.Unparsed++
		e.Marks |= schema.MarkUnreadable
		return
	}
	e.Value, e.DNS = name, msg
	if msg.Response && ev.Ingress {
		for _, addr := range resolved(name, msg.Answers) {
			learn(b.names, b.names.byAddr, addr, name)
		}
	}
}

// tls reads the ClientHello of a tls event.
func (b *Builder) tls(ev *kernel.Event) {
	e := b.out
	name, ok := serverName(ev.Payload)
	if !ok {
		b.stats.Unparsed++
		e.Marks |= schema.MarkUnreadable
		return
	}
	e.Value = name
	if !ev.Ingress && ev.Peer.IsValid() { // ours, not one that a client sent to us
		learn(b.names, b.names.byEndpoint, kernel.Unmapped(ev.Peer), name)
	}
}

// expect adds the process of an event to the table if it is one of Options.Present.
func (b *Builder) expect(ev *kernel.Event) {
	if len(b.present) == 0 {
		return
	}
	if ev.Kind == schema.KindFork && !ev.Thread {
		delete(b.present, ev.Child.PID) // it came in between
	}
	if ev.Kind == schema.KindJoin {
		delete(b.present, ev.Task.PID)
	}
	b.admit(ev.Task.PID, ev.Time)
}

// admit begins the instance of a process of Options.Present, after those of its ancestors.
func (b *Builder) admit(pid uint32, t uint64) {
	known, ok := b.present[pid]
	if !ok {
		return
	}
	delete(b.present, pid)
	b.admit(known.PPID, t)
	task := kernel.Task{PID: pid, CgroupID: known.CgroupID}
	ev := kernel.Event{KernelEvent: schema.KernelEvent{Kind: schema.KindJoin}, Time: t, Task: task}
	p := b.procs.join(&ev)
	p.exe, p.mountNS = known.Exe, known.MountNS
	b.add(&ev, p, t < b.released)
	e := b.out
	e.Kind, e.PPID, e.CgroupID = schema.KindJoin, known.PPID, known.CgroupID
	e.Exe, e.Cwd, e.Argv = known.Exe, known.Cwd, known.Argv
	if parent := b.procs.byPID[known.PPID]; parent != nil && !parent.exited {
		e.ParentExecID = parent.execID
	}
	e.ContainerID = b.container(&ev, p)
	if p.container = e.ContainerID; b.o.Container != "" && b.elsewhere(p) {
		b.cgroups.begin(p.container, p.mountNS) // its ancestors come first
	}
	b.mark(b.mountsOf(p))
	b.stats.Added++
	b.finish(&ev, p)
	if list := b.o.Held[pid]; list != nil {
		b.give(list, &ev, p, t < b.released)
	}
}

// admitAll begins the instances of those of Options.Present that have done nothing yet.
func (b *Builder) admitAll(now uint64) {
	for _, pid := range slices.Sorted(maps.Keys(b.present)) {
		b.admit(pid, max(b.released, min(now, b.newest)))
	}
}

// Survivors are the processes that were not seen to end so far.
func (b *Builder) Survivors() (list []Survivor) {
	for pid, p := range b.procs.byPID {
		if !p.exited {
			list = append(list, Survivor{PID: int(pid), Start: p.start})
		}
	}
	return list
}

// portDNS is where the observer looks for DNS messages.
const portDNS = 53

// reach notes what ev did beyond the run. It returns the helper of the kernel's that it
// changed, which has a line of its own, "" for none.
func (b *Builder) reach(ev *kernel.Event, p *process) (changed string) {
	r, n := &b.stats.Reach, max(ev.Count, 1)
	switch ev.Kind {
	case schema.KindSignal:
		// What the recorder has started outside of the run, as its guard, is the recorder's as well.
		if ev.Arg(0) == uint64(b.o.Recorder) || ev.About == b.o.Recorder && ev.About != 0 {
			if r.RunnerSignals == 0 {
				r.RunnerSignal = ev.Arg(1)
			}
			r.RunnerSignals += n
		}
	case schema.KindPtrace:
		r.Injected = r.Injected || ev.Errno == 0
		if traces(ev) && !ev.Attempted { // mostly refused: not known to have reached anybody
			b.touchProcess(uint64(ev.About), n)
		}
		if ev.Syscall == "pidfd_getfd" && ev.Errno == 0 && ev.About == b.o.Recorder {
			r.actOnRunner(ev, ev.Syscall, n)
		}
	case schema.KindBPF:
		traces, network := ev.LoadsProgram()
		switch {
		case p != nil && p.own && !r.Injected: // what a recorder loads is known
		case traces:
			r.changeKernel("bpf", n)
		case network:
			r.Carriers += n
		}
	case schema.KindConnect, schema.KindSendto:
		// Of other families a hook or a flow has the peer, whatever the memory said.
		if ev.Claimed && ev.Protocol == "vsock" && ev.Errno == 0 {
			r.MayCarry += n
		}
	case schema.KindJoin:
		if ev.MovedByRun {
			if r.Joined == 0 {
				r.JoinedFirst = ev.Task.PID
			}
			r.Joined++
		}
	case schema.KindModule:
		if ev.Errno == 0 && !ev.Attempted {
			r.changeKernel(ev.Syscall, n)
		}
	case schema.KindSocket:
		if ev.Carrier() {
			r.Carriers += n
		}
	case schema.KindForeignSocket:
		if ev.PeerUnknown {
			r.MayCarry += n
		}
		if ev.Peer.Port() == portDNS {
			r.ForeignDNS += n
		}
	case schema.KindPrivileged:
		if ev.Syscall == "ioctl" && ev.Errno == 0 && uint32(ev.Arg(1)) == tunSetIff {
			r.Carriers += n
		}
		if ev.Errno == 0 && (ev.About == b.o.Recorder && ev.About != 0 || ofMany(ev)) {
			r.actOnRunner(ev, ev.Syscall, n)
		}
		if ev.Errno == 0 && !ev.Attempted && reachesMachine(ev) {
			r.changeKernel(ev.Syscall, n)
		}
	case schema.KindOpen, schema.KindWrite:
		if ev.Errno != 0 {
			return ""
		}
		if ev.Kind == schema.KindOpen && !b.out.Writes() {
			if pid := uint64(ev.PlaceProcess); pid != 0 && pid != uint64(ev.Task.PID) { // its memory, to read
				b.touchProcess(pid, n)
			}
			return ""
		}
		name := b.out.Value // of a file that the observer knows by nothing else
		if ev.KernelObject() {
			if ev.Place == "" {
				return ""
			}
			name = ev.Place
		}
		switch {
		case name == "/dev/net/tun":
			r.Carriers += n
		case name == kernel.PlaceMemory:
			r.changeKernel(name, n)
		case helper(name):
			if r.Helpers == 0 {
				r.Helper = name
			}
			r.Helpers += n
			if !ev.Repeat {
				return name
			}
		default:
			pid, ok := memoryOf(name)
			r.Injected = r.Injected || ok
			if ev.PlaceProcess != 0 {
				pid = uint64(ev.PlaceProcess)
			}
			if ok && pid != uint64(ev.Task.PID) && !ev.Attempted {
				b.touchProcess(pid, n)
			}
			if !ok && ev.PlaceProcess != 0 && ev.PlaceProcess == b.o.Recorder {
				r.actOnRunner(ev, name, n)
			}
		}
	}
	return ""
}

// touchProcess notes that the run reached into the process of that pid, where it is
// none of the run's.
func (b *Builder) touchProcess(pid, times uint64) {
	if b.procs.has(uint32(pid)) {
		return
	}
	r := &b.stats.Reach
	if r.TracedTimes == 0 {
		r.Traced = pid
	}
	r.TracedTimes += times
	if pid == uint64(b.o.Recorder) {
		r.RecorderTraced += times
	}
}

// helperLine adds the line that calls a change of a helper by its name.
func (b *Builder) helperLine(ev *kernel.Event, p *process, name string, late bool) {
	b.add(ev, p, late)
	b.out.Kind, b.out.Value, b.out.Call = schema.KindPrivileged, name, "kernel_helper"
	b.out.Repeat, b.out.Count, b.out.TFirstNS, b.out.TLastNS = false, 0, 0, 0
	b.stats.Added++
	b.finish(ev, p)
}

// inherited adds the lines of what the command began with, if ev is its exec.
func (b *Builder) inherited(ev *kernel.Event, p *process, late bool) {
	if b.begun || b.o.Inherited == nil || p == nil || p.starting || p.check != nil {
		return
	}
	list := b.o.Inherited()
	if list == nil {
		return
	}
	b.begun = true
	b.give(list, ev, p, late)
}

// give adds the lines of what a process begins with, or had when it was found, after ev.
func (b *Builder) give(list *Inherited, ev *kernel.Event, p *process, late bool) {
	b.stats.Reach.MayCarry += list.Carriers
	for _, pid := range list.Memories {
		b.touchProcess(pid, 1)
	}
	for _, e := range list.Sockets {
		b.add(ev, p, late)
		b.out.Kind, b.out.Value, b.out.Local, b.out.Protocol, b.out.Args = schema.KindInherited, e.Value, e.Local,
			e.Protocol, e.Args
		b.contain(ev, p)
		b.check(p, ev.Task.CgroupID)
		b.stats.Added++
		b.finish(ev, p)
	}
}

// startedFor says for whom the kernel started a program, by the Asked constants.
var startedFor = [...]string{
	kernel.AskedNot: "after that", kernel.Asked: "for a call of the run", kernel.AskedMaybe: "perhaps for the run",
}

// beside makes a line of what others did to a run: a move out of its cgroup in a v1 hierarchy, and a program that the
// kernel started for the run or after the run had changed a helper. Other such events are filtered.
func (b *Builder) beside(ev *kernel.Event, late bool) {
	r, name := &b.stats.Reach, ev.Value
	var p *process
	var call, target string
	switch {
	case ev.Kind == kernel.KindKernelExec && (r.Helpers > 0 || ev.Arg(0) != kernel.AskedNot):
		if r.StartedTimes == 0 {
			r.Started, r.StartedFor = name, startedFor[ev.Arg(0)%uint64(len(startedFor))]
		}
		r.StartedTimes++
		if ev.Arg(0) == kernel.Asked {
			p = b.procs.find(ev)
		}
		call = "kernel_helper_started"
	case ev.Kind == kernel.KindMovedV1 && b.o.MovedV1 != nil:
		controllers, left := b.o.MovedV1(ev.Arg(0), ev.Arg(1), name)
		if !left {
			break
		}
		if len(r.LeftV1) == 0 {
			r.LeftV1To = name
		}
		if !slices.Contains(r.LeftV1, controllers) {
			r.LeftV1 = append(r.LeftV1, controllers)
		}
		p, call, target = b.procs.find(ev), "cgroup_v1_left", controllers
	}
	if call == "" {
		b.counts.Seen++
		b.counts.Filtered++
		b.stats.Filtered++
		return
	}
	b.add(ev, p, late)
	b.out.Kind, b.out.Call, b.out.Value, b.out.Target = schema.KindPrivileged, call, name, target
	b.check(p, ev.Task.CgroupID)
	b.class(ev, p)
	b.finish(ev, p)
}

// unmodelled notes a call that makes no line.
func (b *Builder) unmodelled(ev *kernel.Event, p *process) {
	b.out = &ev.KernelEvent
	b.check(p, ev.Task.CgroupID)
	b.class(ev, p)
	b.opens(ev, p)
	n := max(ev.Count, 1)
	b.counts.Seen += n
	b.counts.Filtered += n
	b.stats.Filtered++
	if b.out.Class == schema.ClassRunner {
		b.stats.Own.Count(ev)
	}
}

// opens notes what claims are open after b.out, the line of ev, unless assay-run itself, a check or an engine's runtime
// did it: what the run asked an engine for has lines of its own.
func (b *Builder) opens(ev *kernel.Event, p *process) {
	switch b.out.Class {
	case schema.ClassRunner, schema.ClassCheck, schema.ClassSetup:
		return
	}
	if p == nil || !p.own || b.stats.Reach.Injected {
		b.open.note(ev, p)
	}
}

// Counts is the layer's account in occurrences: Seen = Written + Coalesced +
// Filtered + Dropped, where Written is lines.
func (b *Builder) Counts() schema.LayerCounts { return b.counts }

// Stats returns the other counts so far.
func (b *Builder) Stats() Stats {
	s, t := b.stats, b.procs
	s.Forks, s.Threads, s.Exits, s.Joins, s.MissedExits, s.Alive = t.forks, t.threads, t.exits, t.joins, t.missedExits,
		t.alive()
	s.Resolved, s.ForgottenNames = b.names.size(), b.names.forgotten
	s.UnnamedCgroups = b.cgroups.unknown
	s.Open = b.open.list()
	s.ByKind = make(map[schema.KernelKind]uint64)
	for k, n := range b.kinds {
		if n > 0 {
			s.ByKind[schema.KernelKind(k)] = n
		}
	}
	return s
}

// presentAfter is how long after Options.Begin the forks have been read of all processes that are in Options.Present
// although their forks were seen.
const presentAfter = 50 * time.Millisecond
