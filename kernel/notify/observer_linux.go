//go:build amd64 || arm64

package notify

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

// How long Read waits: for more while events come, for an execution to settle, for the
// next event after that, and for the next event after sleepAfter waits without one. To
// wake Read costs as much as some notifications. An execution must be reported within
// the time that package layer holds events to order them, which is 20 ms.
const (
	gather        = 15 * time.Millisecond
	settleTime    = 5 * time.Millisecond
	pollInterval  = 20 * time.Millisecond
	sleepInterval = 500 * time.Millisecond
	sleepAfter    = 5
)

// Observer observes one command and all that it starts. New makes it, Start starts the
// command, Read delivers the events on the caller's goroutine, Stop ends the observation,
// and Close frees it. Call each of these once. Report may be called at any time from any
// goroutine.
type Observer struct {
	cfg     Config
	queue   *queue
	served  chan struct{} // closed when the listener's thread has ended; nil without a listener
	stopFD  int           // an eventfd that ends the listener's thread
	stopped chan struct{} // closed by Stop
	closed  chan struct{} // closed by Close
	reads   reads
	n       notification // what the listener's thread has received

	mu       sync.Mutex // guards what follows
	listener int        // -1 without one
	hello    hello
	refused  *kernel.Unavailable // why there is no listener
	broken   error               // why the listener ended early
	table    *table
	clock    clock
	about    *process      // that mu was locked for
	settled  chan struct{} // to be closed by who settles for Read now
	stuck    int           // goroutines that were given up

	id        uint64
	ev        kernel.Event
	paths     [2][]byte
	names     [2][]byte
	text1     []byte
	lineBuf   []byte
	linkBuf   [maxPath]byte
	foreign   map[foreignCall]bool
	bound     map[string]bound // by the name of the socket in /proc
	inherited bool             // the command was given a socket

	executedOne bool // the command was executed
	emitted     [hooks]uint64
	filtered    [hooks]uint64
	coalesced   [hooks]uint64
	kinds       [64]uint64
	carriers    uint64 // see kernel.Report
	threads     uint64
	delivered   uint64

	vanished, unreadable, nested uint64
}

// hooks bounds kernel.HookID.
const hooks = 64

// New makes an observer for one command. The error is a [*kernel.Unavailable].
func New(cfg Config) (*Observer, error) {
	if err := Probe(); err != nil {
		return nil, err
	}
	t, err := newTable()
	if err != nil {
		return nil, &kernel.Unavailable{Reasons: []kernel.Reason{{Code: CodeShim, Message: err.Error()}}, Err: err}
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, &kernel.Unavailable{Reasons: []kernel.Reason{{Code: CodeShim, Message: "eventfd: " + err.Error()}}, Err: err}
	}
	o := &Observer{
		stopFD: stop,
		queue:  newQueue(), table: t, listener: -1, stopped: make(chan struct{}), closed: make(chan struct{}),
		cfg: cfg, lineBuf: make([]byte, maxArguments), foreign: map[foreignCall]bool{}, bound: map[string]bound{},
	}
	o.clock.set()
	return o, nil
}

// refuse notes why the command runs unobserved.
func (o *Observer) refuse(u *kernel.Unavailable) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = u
}

// Unavailable is why the command is not observed. It is nil if the command is observed.
func (o *Observer) Unavailable() *kernel.Unavailable {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused
}

// event begins an event of one of p's tasks. The next event reuses its memory.
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

// emit counts an event and queues it for Read.
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
		if e.Carrier() {
			o.carriers++
		}
	}
}

// quiet calls f, and counts the notification as filtered if f emits no event of the hook.
func (o *Observer) quiet(hook kernel.HookID, f func()) {
	before := o.emitted[hook]
	f()
	if o.emitted[hook] == before {
		o.filtered[hook]++
	}
}

// Read calls fn with every event, and returns once Stop has been called and every earlier
// event was delivered, or when fn returns an error. An event is valid until fn returns.
// Whenever no event has come for a moment, Read calls idle with the time in nanoseconds of
// CLOCK_BOOTTIME.
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
	unsettled := false
	for quiet := 0; ; {
		// While events come, the listener's thread need not wake this goroutine.
		wake, interval := o.queue.wake, pollInterval
		switch {
		case quiet > sleepAfter:
			interval = sleepInterval
		case unsettled:
			interval = settleTime
		case quiet == 0:
			wake, interval = nil, gather
		}
		quiet++
		stopped := false
		select {
		case <-o.stopped:
			stopped = true
		case <-wake:
			quiet = 0
			continue
		case <-time.After(interval):
		}
		unsettled = o.settleSilent(stopped)
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
		} else {
			quiet = 0
		}
	}
}

// Present is nil: the observer sees the command from its first call on.
func (o *Observer) Present() []kernel.Present { return nil }

// Stop stops serving the listener, so the calls of a process that still runs then fail.
// Read delivers the remaining events and returns.
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
	close(o.closed)
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
	unix.Close(o.stopFD)
	return nil
}

// clock computes CLOCK_BOOTTIME without a system call. Call set first.
type clock struct {
	base time.Time
	boot uint64 // at base
}

// set reads the time. Call it often: now does not count the time that the machine was
// suspended since.
func (c *clock) set() { c.base, c.boot = time.Now(), bootTime() }

func (c *clock) now() uint64 { return c.boot + uint64(time.Since(c.base)) }

func bootTime() uint64 {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail
	return uint64(now.Nano())
}
