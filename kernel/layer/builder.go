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
	// Starter tells which process had asked an engine to start the container with that
	// id when a process from outside of the session came into it at t, and when it had:
	// both in nanoseconds of CLOCK_BOOTTIME. 0 is not known; nil: nothing is.
	Starter func(container string, t uint64) (pid uint32, at uint64)
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
