package layer

import (
	"time"

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

// Builder makes lines from events. An event takes its turn (window), gets its process (table) and where that process is
// (origin), and becomes a line, which is counted (counter) and handed out (outlet). It is not safe for concurrent use.
type Builder struct {
	stamp      stamp
	wrote      func(path string, bytes, count uint64, first, last int64)
	helped     func(e *schema.KernelEvent) bool
	order      *window
	present    *present
	procs      *table
	mounts     *mounts
	containers *containers
	repeats    repeats
	ways       ways
	names      *nameTable
	inherited  inheritance
	reach      *reach
	open       openCalls
	counter    counter
	out        *outlet
}

// NewBuilder returns an empty builder.
func NewBuilder(o Options) *Builder {
	if o.Window <= 0 {
		o.Window = 20 * time.Millisecond
	}
	if o.MaxHeld <= 0 {
		o.MaxHeld = 4096
	}
	procs := newTable(o.Foreign, o.Checks, programs{shim: o.Shim, helper: o.Helper, own: o.Own})
	mounts := newMounts(o.MountNS)
	return &Builder{
		stamp:      stamp{runID: o.RunID, start: o.Start},
		wrote:      o.Wrote,
		helped:     o.Helped,
		order:      newWindow(o.Window, o.MaxHeld),
		present:    newPresent(o.Present, o.Begin),
		procs:      procs,
		mounts:     mounts,
		containers: newContainers(o.Container, o.CgroupDir, mounts, procs, o.Checks, o.Starter),
		names:      newNameTable(),
		inherited:  inheritance{atStart: o.Inherited, held: o.Held},
		reach:      newReach(o.Recorder, procs, o.MovedV1),
		open:       newOpenCalls(),
		out:        &outlet{bind: o.Bind, surface: o.Surface, sink: o.Sink},
	}
}

// Push takes one event, which may be reused when Push returns, and hands out those that were held for long enough. The
// error is the first one of the sink or the surface; every later call returns it too, and counting goes on.
func (b *Builder) Push(ev *kernel.Event) error {
	b.counter.stats.Received++
	if b.wrote != nil && ev.Kind == schema.KindWrite {
		b.wrote(ev.Value, ev.BytesOut, ev.Count, b.stamp.since(ev.First), b.stamp.since(ev.Last))
	}
	b.ways.note(ev)
	if !b.order.add(ev) {
		b.line(ev, true)
	}
	b.release(b.order.newest)
	return b.out.err
}

// Tick hands out what has been held for the window at now, CLOCK_BOOTTIME in
// nanoseconds. Call it when no event has come for a while.
func (b *Builder) Tick(now uint64) error {
	b.order.advance(now)
	b.release(now)
	if b.present.overdue(now) {
		b.admitAll(now)
	}
	return b.out.err
}

// Close hands out everything that is still held.
func (b *Builder) Close() error {
	for b.order.len() > 0 {
		b.next()
	}
	b.admitAll(b.order.newest)
	return b.out.err
}

// release makes the lines of the events whose turn it is.
func (b *Builder) release(now uint64) {
	for b.order.due(now) {
		b.next()
	}
}

func (b *Builder) next() {
	h := b.order.pop()
	b.line(&h.ev, false)
	b.order.done(h)
}

// line makes the line of ev, and before it those for processes that are new.
func (b *Builder) line(ev *kernel.Event, late bool) {
	for _, known := range b.present.before(ev) {
		b.admit(&known, ev.Time)
	}
	if ev.Kind == kernel.KindMovedV1 || ev.Kind == kernel.KindKernelExec {
		b.outside(ev, late)
		return
	}
	p, parent, joined := b.procs.of(ev)
	if joined && ev.Kind != schema.KindJoin {
		e := b.beside(ev, p, late)
		e.Kind, e.PPID, e.CgroupID = schema.KindJoin, ev.Task.PPID, ev.Task.CgroupID
		b.place(e, ev, p)
		b.add(ev, e, p)
	}
	if ev.Kind == kernel.KindUnmodelled {
		b.unmodelled(ev, p)
		return
	}
	e := &ev.KernelEvent
	b.stamp.write(e, ev, late)
	e.DirectoryClaimed = b.ways.doubtful(ev)
	switch e.Kind {
	case schema.KindFork:
		if ev.Thread {
			e.Kind = schema.KindThread
		}
	case schema.KindExec:
		parent = b.procs.exec(ev, p)
		if surface.SystemLibrary(e.Loader) {
			e.Loader = ""
		}
		if p.own {
			// A process in another mount namespace executed it by way of /proc/self/exe. Its path is the recorder's.
			e.Marks &^= schema.MarkUnreachable
		}
	case schema.KindConnect, schema.KindSendto, schema.KindBind, schema.KindListen, schema.KindAccept, schema.KindFlow,
		schema.KindConnectResult, schema.KindForeignSocket:
		e.UserMemory = ev.FromUser
		b.open.peers.add(ev)
		if e.Kind != schema.KindBind && e.Kind != schema.KindListen {
			e.Names = b.names.of(kernel.Unmapped(ev.Peer))
		}
	case schema.KindDNS, schema.KindTLS:
		name, msg, ok := b.names.hear(ev)
		if !ok {
			e.Marks |= schema.MarkUnreadable
			break
		}
		e.Value, e.DNS = name, msg
	}
	container := ""
	if !b.repeats.knows(ev) {
		container = b.containers.enter(ev, p)
	}
	if joined {
		if by := b.containers.starter(ev, container); by != nil {
			parent = by.execID
			p.inherit(by.toolCall)
		}
	}
	e.ParentExecID = parent
	b.mounts.enter(ev, p)
	o := b.origin(ev, p, container)
	changed := b.reach.note(ev, p)
	b.claims(ev, p, o.class)
	b.finish(ev, e, p)
	if ev.Kind == schema.KindExec {
		b.give(b.inherited.begin(p), ev, p, late)
	}
	if changed != "" {
		e := b.beside(ev, p, late)
		e.Kind, e.Value, e.Call = schema.KindPrivileged, changed, "kernel_helper"
		e.Repeat, e.Count, e.TFirstNS, e.TLastNS = false, 0, 0, 0
		b.add(ev, e, p)
	}
	if ev.Kind == schema.KindExit && p != nil {
		b.procs.exit(p)
	}
}

// origin writes into the line of ev where the event comes from, and returns that. A repeat has the origin of the event
// that it repeats.
func (b *Builder) origin(ev *kernel.Event, p *process, container string) origin {
	e := &ev.KernelEvent
	if b.repeats.knows(ev) {
		o := b.repeats.of(ev)
		o.write(e)
		return o
	}
	o := p.origin()
	o.container, o.check = container, b.procs.checkOf(p, ev.Task.CgroupID)
	if !ev.Repeat {
		o.mounts = b.mounts.marks(p)
	}
	o.write(e)
	o.class = b.class(e, p, o.check)
	e.Class = o.class
	b.repeats.keep(ev, &o)
	return o
}

// class returns the class of what p does.
func (b *Builder) class(e *schema.KernelEvent, p *process, check *Check) schema.Class {
	switch {
	case check != nil:
		return schema.ClassCheck
	case p == nil:
		return schema.ClassAgent
	case p.starting && e.Kind != schema.KindFork && e.Kind != schema.KindExecFailed && e.Kind != schema.KindExit,
		p.helper && e.Kind != schema.KindFork && b.helped(e):
		return schema.ClassRunner
	case p.setup:
		return schema.ClassSetup
	}
	return surface.Classify(e, p.exe)
}

// place writes into an added line in which container it was done, and for which check.
func (b *Builder) place(e *schema.KernelEvent, ev *kernel.Event, p *process) {
	e.ContainerID = b.containers.enter(ev, p)
	b.procs.checkOf(p, ev.Task.CgroupID).write(e)
}

// beside returns a line of its own beside that of ev.
func (b *Builder) beside(ev *kernel.Event, p *process, late bool) *schema.KernelEvent {
	e := &schema.KernelEvent{PID: ev.Task.PID, TID: ev.Task.TID, Repeat: ev.Repeat, Count: ev.Count}
	b.stamp.write(e, ev, late)
	o := p.origin()
	o.write(e)
	return e
}

// add hands out a line that no event was received for.
func (b *Builder) add(ev *kernel.Event, e *schema.KernelEvent, p *process) {
	b.counter.stats.Added++
	b.finish(ev, e, p)
}

// finish binds a line to its tool call, counts it and hands it out.
func (b *Builder) finish(ev *kernel.Event, e *schema.KernelEvent, p *process) {
	b.out.bindTo(ev, e, p)
	b.counter.line(ev, e)
	b.counter.handedOut(e.Times(), b.out.write(e, p.program()))
}

// admit makes the join line of a process that was there before, as of time t.
func (b *Builder) admit(known *kernel.Present, t uint64) {
	late := b.order.passed(t)
	ev := kernel.Event{KernelEvent: schema.KernelEvent{Kind: schema.KindJoin}, Time: t,
		Task: kernel.Task{PID: known.PID, CgroupID: known.CgroupID}}
	p := b.procs.join(&ev)
	p.exe, p.mountNS = known.Exe, known.MountNS
	e := b.beside(&ev, p, late)
	e.Kind, e.PPID, e.CgroupID = schema.KindJoin, known.PPID, known.CgroupID
	e.Exe, e.Cwd, e.Argv = known.Exe, known.Cwd, known.Argv
	e.ParentExecID = b.procs.living(known.PPID)
	e.ContainerID = b.containers.admit(&ev, p)
	e.Marks |= marksOf(e, b.mounts.marks(p))
	b.add(&ev, e, p)
	b.give(b.inherited.held[known.PID], &ev, p, late)
}

// admitAll begins the instances of the processes that were there before and have done nothing yet.
func (b *Builder) admitAll(now uint64) {
	t := b.order.place(now)
	for _, known := range b.present.all() {
		b.admit(&known, t)
	}
}

// give adds the lines of what a process begins with, or had when it was found, after ev.
func (b *Builder) give(list *Inherited, ev *kernel.Event, p *process, late bool) {
	if list == nil {
		return
	}
	b.reach.inherit(list)
	for _, of := range list.Sockets {
		e := b.beside(ev, p, late)
		e.Kind, e.Value, e.Local = schema.KindInherited, of.Value, of.Local
		e.Protocol, e.Args = of.Protocol, of.Args
		b.place(e, ev, p)
		b.add(ev, e, p)
	}
}

// outside makes a line of what others did to the run, or the kernel for it. Other such events are filtered.
func (b *Builder) outside(ev *kernel.Event, late bool) {
	call, target, ofRun := b.reach.outside(ev)
	if call == "" {
		b.counter.filtered(1)
		return
	}
	var p *process
	if ofRun {
		p = b.procs.find(ev)
	}
	e := b.beside(ev, p, late)
	e.Kind, e.Call, e.Value, e.Target = schema.KindPrivileged, call, ev.Value, target
	check := b.procs.checkOf(p, ev.Task.CgroupID)
	check.write(e)
	e.Class = b.class(e, p, check)
	b.finish(ev, e, p)
}

// unmodelled notes a call that makes no line.
func (b *Builder) unmodelled(ev *kernel.Event, p *process) {
	o := b.origin(ev, p, "")
	b.claims(ev, p, o.class)
	b.counter.filtered(max(ev.Count, 1))
	if o.class == schema.ClassRunner {
		b.counter.stats.Own.Count(ev)
	}
}

// claims notes what claims are open after ev, unless assay-run itself, a check or an engine's runtime did it: what the
// run asked an engine for has lines of its own.
func (b *Builder) claims(ev *kernel.Event, p *process, class schema.Class) {
	switch class {
	case schema.ClassRunner, schema.ClassCheck, schema.ClassSetup:
		return
	}
	if p == nil || !p.own || b.reach.did.Injected {
		b.open.note(ev, p)
	}
}

// Survivors are the processes that were not seen to end so far.
func (b *Builder) Survivors() []Survivor { return b.procs.survivors() }

// Counts is the layer's account in occurrences: Seen = Written + Coalesced +
// Filtered + Dropped, where Written is lines.
func (b *Builder) Counts() schema.LayerCounts { return b.counter.counts }

// Stats returns the other counts so far.
func (b *Builder) Stats() Stats {
	s := b.counter.all()
	s.Late = b.order.late
	b.procs.count(&s)
	s.Reach = b.reach.did
	s.Reach.SharedTables = b.procs.sharedTables
	s.Resolved, s.ForgottenNames, s.Unparsed = b.names.size(), b.names.forgotten, b.names.unparsed
	s.UnnamedCgroups = b.containers.cgroups.unknown
	s.Open = b.open.list()
	return s
}
