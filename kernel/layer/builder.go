package layer

import (
	"strings"
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
	// CompatV0 hands to Sink only what the closed v0 form has a line for; the
	// rest is counted as filtered (classes, attempts) or coalesced (repeats).
	CompatV0 bool
	// Bind may set ToolCallID and BoundBy of an event before it goes to Sink;
	// where the environment or the lineage of the process has told, they are
	// set already. What it sets on a fork, an exec or a join holds for the
	// process and its descendants from there on, unless it is bound by window.
	// Nil changes nothing.
	Bind func(ev *kernel.Event, e *schema.KernelEvent)
	// Shim tells by its arguments whether a program is the runner's own, executed
	// through /proc/self/exe on the way to a command; nil for none.
	Shim func(argv []string) bool
	// Hook tells of an exec whether it is of the runner's own program, to report a
	// call of an agent's; nil for none.
	Hook func(ev *kernel.Event) bool
	// MovedV1 tells of a move in a v1 hierarchy by its number, and of the cgroup by its
	// id and path, whether it leads out of the run's cgroup there, and then which
	// controllers account for the run no longer. Nil: there is nothing to leave.
	MovedV1 func(hierarchy, cgroup uint64, path string) (controllers string, left bool)
	// Checks are told from the agent by it; nil for a run without a contract.
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
	// CgroupDir is the session's directory in the cgroup2 hierarchy, by which events
	// are told to be of a container; empty for none. Container is the id of the
	// container that all of them are of, if they are.
	CgroupDir, Container string
	// Window is how long an event is held for earlier ones from other CPUs;
	// 0 means 20 ms. MaxHeld bounds their number; 0 means 4096. Whatever
	// reaches its limit first lets the oldest go.
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

	cgroups cgroups
	paths   stringCache

	present map[uint32]kernel.Present // of Options.Present: who has done nothing yet

	newest   uint64 // latest time seen
	released uint64 // latest time handed out
	out      schema.KernelEvent
	ownNS    uint32 // the mount namespace that the runner made for the command
	args     [6]uint64
	texts    []string

	counts schema.LayerCounts
	stats  Stats
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
	b := &Builder{o: o, procs: newTable(), names: newNameTable(), present: byPID(o.Present)}
	b.procs.foreign = o.Foreign
	b.cgroups.dir = o.CgroupDir
	return b
}

// Push takes one event, which may be reused when Push returns, and hands out
// those whose time has come. The error is the sink's or the surface's first
// one; it comes back from every later call as well, while counting goes on.
func (b *Builder) Push(ev *kernel.Event) error {
	b.stats.Received++
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
	for b.win.len() > 0 && (b.win.len() > b.o.MaxHeld || b.win.bytes > maxHeldBytes || b.win.oldest().ev.Time+w <= now) {
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

// line makes the line of ev, and before it one for its process if that is new.
func (b *Builder) line(ev *kernel.Event, late bool) {
	b.expect(ev)
	if ev.Kind == kernel.KindMovedV1 || ev.Kind == kernel.KindKernelExec {
		b.beside(ev, late)
		return
	}
	p, parent, joined := b.process(ev)
	if joined && ev.Kind != kernel.KindJoinedCgroup {
		b.begin(ev, p, late)
		b.out.Kind, b.out.PPID, b.out.CgroupID = schema.KindJoin, ev.PPID, ev.CgroupID
		b.check(p, ev.CgroupID)
		b.contain(ev, p)
		b.stats.Added++
		b.finish(ev, p)
	}
	b.begin(ev, p, late)
	b.out.ParentExecID = parent
	b.convert(ev, p)
	b.check(p, ev.CgroupID)
	b.contain(ev, p)
	b.mounts(ev, p)
	b.class(ev, p)
	helper := b.reach(ev)
	b.finish(ev, p)
	if helper {
		b.helperLine(ev, p, late)
	}
	if ev.Kind == kernel.KindExit && p != nil {
		b.procs.exit(p)
	}
}

// process finds or makes the instance that ev belongs to, and tells which one
// forked it. It is nil only for what comes after a process was forgotten.
func (b *Builder) process(ev *kernel.Event) (p *process, parent uint64, joined bool) {
	p = b.procs.find(ev)
	switch {
	case ev.Kind == kernel.KindFork && !ev.Thread:
		if p != nil { // the first process is forked by the runner
			parent = p.execID
		}
		child := b.procs.fork(ev, p)
		if p == nil {
			child.check = b.o.Checks.of(ev.ChildCgroupID, ev.Time)
		}
		if child.check != nil {
			b.stats.CheckForks++
		}
		return child, parent, false
	case p != nil, ev.Repeat, ev.Kind == kernel.KindTraffic:
		return p, 0, false
	}
	p = b.procs.join(ev)
	p.check = b.o.Checks.of(ev.CgroupID, ev.Time)
	return p, 0, true
}

// begin sets what all events have.
func (b *Builder) begin(ev *kernel.Event, p *process, late bool) {
	b.out = schema.KernelEvent{RunID: b.o.RunID, TNS: b.rel(ev.Time), PID: ev.PID, TID: ev.TID, Late: late}
	if b.out.TID == 0 {
		b.out.TID = ev.PID
	}
	if p != nil {
		b.out.ExecID, b.out.ToolCallID, b.out.BoundBy = p.execID, p.toolCall, p.boundBy
	}
	if ev.Repeat {
		b.out.Repeat, b.out.Count, b.out.TFirstNS, b.out.TLastNS = true, max(ev.Count, 1), b.rel(ev.First), b.rel(ev.Last)
	}
}

func (b *Builder) rel(t uint64) int64 { return int64(t - b.o.Start) }

// class classifies b.out. A repeat has the class, the instance and the tool
// call of the event it repeats.
func (b *Builder) class(ev *kernel.Event, p *process) {
	if ev.Repeat {
		if f := b.procs.first[ev.Slot]; f.id == ev.ID {
			b.out.ExecID, b.out.Class = f.execID, f.class
			b.out.ToolCallID, b.out.BoundBy = f.toolCall, f.boundBy
			b.mark(f.elsewhere)
			return
		}
	}
	switch {
	case p == nil || b.out.Class == schema.ClassCheck:
	case p.starting && b.out.Kind != schema.KindFork && b.out.Kind != schema.KindExecFailed && b.out.Kind != schema.KindExit:
		b.out.Class = schema.ClassRunner
	case p.hook && b.out.Kind != schema.KindFork && ofHook(&b.out):
		b.out.Class = schema.ClassRunner
	case p.setup:
		b.out.Class = schema.ClassSetup
	default:
		b.out.Class = surface.Classify(&b.out, p.exe)
	}
	if ev.Slot != 0 && !ev.Repeat {
		b.procs.first[ev.Slot] = eventID{ev.ID, b.out.ExecID, b.out.Class, b.out.ToolCallID, b.out.BoundBy, b.elsewhere(p), b.out.ContainerID}
	}
}

// ofHook tells whether an event of a hook's process is what every hook does: that it
// is executed, looks at itself, and ends. All else stays the agent's, who chose the
// hook's environment.
func ofHook(e *schema.KernelEvent) bool {
	switch e.Kind {
	case schema.KindExec, schema.KindExit:
		return true
	case schema.KindOpen:
		return !e.Failed() && !e.Creates() && !e.Writes() && (strings.HasPrefix(e.Value, "/proc/") || strings.HasPrefix(e.Value, "/sys/"))
	}
	return false
}

// finish counts b.out, adds it to the surface and hands it out.
func (b *Builder) finish(ev *kernel.Event, p *process) {
	e := &b.out
	if b.o.Bind != nil {
		b.o.Bind(ev, e)
		if p != nil && (e.Kind == schema.KindFork || e.Kind == schema.KindExec || e.Kind == schema.KindJoin) && e.BoundBy != schema.BoundByWindow {
			p.toolCall, p.boundBy = e.ToolCallID, e.BoundBy
		}
	}
	n := e.Times()
	b.counts.Seen += n
	b.stats.ByClass[e.Class] += n
	b.kinds[e.Kind&255] += n
	const process = schema.FieldArgv | schema.FieldEnvKeys
	if e.Truncated&^process != 0 {
		b.stats.Cut++
	}
	if e.Truncated&process != 0 {
		b.stats.CutArguments++
	}
	if e.UserMemory && e.Kind == schema.KindOpen && e.Result >= 0 && !e.Attempted {
		b.stats.UserPaths++
	}
	if b.o.Surface != nil {
		if err := b.o.Surface.Add(e); err != nil && b.err == nil {
			b.err = err
		}
	}
	switch {
	case b.err != nil:
		b.counts.Dropped += n
		b.stats.Dropped++
	case b.o.CompatV0 && (e.Class != schema.ClassAgent || e.Attempted):
		b.counts.Filtered += n
		b.stats.Filtered++
	case b.o.CompatV0 && e.Repeat:
		b.counts.Coalesced += n
		b.stats.Coalesced++
	default:
		if b.err = b.o.Sink(e); b.err != nil {
			b.counts.Dropped += n
			b.stats.Dropped++
			return
		}
		b.counts.Written++
		b.stats.Written++
		b.counts.Coalesced += n - 1
	}
}
