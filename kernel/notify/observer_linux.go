//go:build amd64 || arm64

package notify

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

// How long Read waits: for more events once there is one, for the next one, and for
// that when nothing has come for a while.
const (
	gather        = 5 * time.Millisecond
	pollInterval  = 20 * time.Millisecond
	sleepInterval = 500 * time.Millisecond
	sleepAfter    = 5
)

// Observer observes one command and all that it starts. New makes it, Start starts
// the command, Read delivers events on a goroutine of the caller's, Stop ends it,
// Close frees it. Report may be called at any time from any goroutine, the others
// once.
type Observer struct {
	cfg     Config
	queue   *queue
	served  chan struct{} // closed when the listener's thread has ended; nil without one
	thread  int
	stopped chan struct{} // closed by Stop

	stopping atomic.Bool

	mu       sync.Mutex // guards what follows
	listener int        // -1 without one
	hello    hello
	refused  *kernel.Unavailable // why there is no listener
	broken   error               // why the listener ended early
	table    *table
	clock    clock

	id        uint64
	ev        kernel.Event
	paths     [2][]byte
	names     [2][]byte
	text1     []byte
	lineBuf   []byte
	linkBuf   [maxPath]byte
	foreign   map[foreignCall]bool
	bound     map[string]bound // by what /proc names a socket
	inherited bool             // the command was given a socket

	executedOne bool // the command
	emitted     [hooks]uint64
	filtered    [hooks]uint64
	coalesced   [hooks]uint64
	kinds       [64]uint64
	threads     uint64
	delivered   uint64

	vanished, unreadable, nested uint64
}

// hooks bounds kernel.HookID.
const hooks = 64

// New makes an observer, for one command. The error is an [*kernel.Unavailable].
func New(cfg Config) (*Observer, error) {
	if err := Probe(); err != nil {
		return nil, err
	}
	t, err := newTable()
	if err != nil {
		return nil, &kernel.Unavailable{Reasons: []kernel.Reason{{Code: CodeShim, Message: err.Error()}}, Err: err}
	}
	o := &Observer{
		queue: newQueue(), table: t, listener: -1, stopped: make(chan struct{}),
		cfg: cfg, lineBuf: make([]byte, maxArguments), foreign: map[foreignCall]bool{}, bound: map[string]bound{},
	}
	o.clock.set()
	return o, nil
}

// refuse notes that the command runs unobserved.
func (o *Observer) refuse(u *kernel.Unavailable) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = u
}

// Unavailable is why the command that was started is not observed, nil where it is.
func (o *Observer) Unavailable() *kernel.Unavailable {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused
}

// event begins an event of a task of p's, in memory that the next one reuses.
func (o *Observer) event(kind kernel.Kind, hook kernel.HookID, p *process, tid uint32) *kernel.Event {
	now := o.clock.now()
	o.id++
	o.ev = kernel.Event{
		Kind: kind, Hook: hook, ID: o.id, Time: now, First: now, Last: now, Count: 1,
		PID: p.pid, TID: tid, PPID: p.ppid, Start: p.start, CgroupID: p.cgroup,
		NoResult: true, Attempted: true, Claimed: true,
	}
	return &o.ev
}

// emit hands an event on.
func (o *Observer) emit(e *kernel.Event) {
	switch {
	case e.Kind == kernel.KindFork:
		e.NoResult, e.Attempted, e.Claimed = false, false, false
		if e.Thread {
			o.threads++
		}
	case e.Kind == kernel.KindPrivileged && e.Syscall == "seccomp" && e.Args[0] == unix.SECCOMP_SET_MODE_FILTER && e.Flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0:
		o.nested++
	}
	how := o.queue.add(e)
	if how == added {
		o.emitted[e.Hook]++
	} else {
		o.coalesced[e.Hook]++
	}
	if how == repeated {
		o.emitted[kernel.HookFlush]++
	}
	if how != counted {
		o.kinds[e.Kind]++
	}
}

// quiet counts a notification of the hook that f emits nothing for.
func (o *Observer) quiet(hook kernel.HookID, f func()) {
	before := o.emitted[hook]
	f()
	if o.emitted[hook] == before {
		o.filtered[hook]++
	}
}

// Read hands every event to fn until Stop has been called and everything before it
// was delivered. It returns early with fn's error. The event is valid until fn
// returns. Whenever nothing has come for a moment, idle is called with the time,
// nanoseconds of CLOCK_BOOTTIME.
func (o *Observer) Read(fn func(*kernel.Event) error, idle func(now uint64)) error {
	var b batch
	deliver := func() (int, error) {
		b = o.queue.take(b)
		for i := range b.events {
			o.delivered++
			if err := fn(&b.events[i]); err != nil {
				return i, err
			}
		}
		return len(b.events), nil
	}
	for quiet := 0; ; {
		interval := pollInterval
		if quiet > sleepAfter {
			interval = sleepInterval
		}
		quiet++
		stopped := false
		select {
		case <-o.stopped:
			stopped = true
		case <-o.queue.wake:
			quiet = 0
			time.Sleep(gather)
		case <-time.After(interval):
		}
		o.settleSilent(stopped)
		o.look()
		n, err := deliver()
		if err != nil {
			return err
		}
		if stopped {
			_, err := deliver()
			return err
		}
		if n == 0 {
			idle(bootTime())
		}
	}
}

// Present is nil: the command is observed from its first call on.
func (o *Observer) Present() []kernel.Present { return nil }

// Stop ends the serving of the listener, after which the calls of a process that is
// left fail, and lets Read deliver what is left and return.
func (o *Observer) Stop() error {
	o.stop()
	select {
	case <-o.stopped:
	default:
		close(o.stopped)
	}
	return nil
}

// Close frees everything. Read must have returned. Report keeps working.
func (o *Observer) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.table.byPID {
		p.close()
	}
	clear(o.table.byPID)
	if o.table.ends >= 0 {
		unix.Close(o.table.ends)
		o.table.ends = -1
	}
	if o.listener >= 0 {
		unix.Close(o.listener)
		o.listener = -1
	}
	return nil
}

// clock tells CLOCK_BOOTTIME without a system call for each look. The zero value is
// not set.
type clock struct {
	base time.Time
	boot uint64 // at base
}

// set makes up for what the clock does not see: that the machine was suspended.
func (c *clock) set() { c.base, c.boot = time.Now(), bootTime() }

func (c *clock) now() uint64 { return c.boot + uint64(time.Since(c.base)) }

func bootTime() uint64 {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail
	return uint64(now.Nano())
}
