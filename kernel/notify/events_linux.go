//go:build amd64 || arm64

package notify

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// events makes the events, numbers and counts them, and queues them for Read.
type events struct {
	queue *queue
	tally *tally
	clock clock
	id    uint64
	ev    kernel.Event // that is made
}

func newEvents(queue *queue, tally *tally) *events {
	s := &events{queue: queue, tally: tally}
	s.clock.set()
	return s
}

// begin begins an event of one of p's tasks. The next event reuses its memory.
func (s *events) begin(kind schema.KernelKind, hook kernel.HookID, p *process, tid uint32) *kernel.Event {
	now := s.clock.now()
	s.id++
	s.ev = kernel.Event{
		KernelEvent: schema.KernelEvent{Kind: kind, Count: 1, PID: p.pid, TID: tid, Attempted: true, Claimed: true},
		Task:        kernel.Task{PID: p.pid, TID: tid, PPID: p.ppid, Start: p.start, CgroupID: p.cgroup},
		Hook:        hook, ID: s.id, Time: now, First: now, Last: now,
	}
	return &s.ev
}

// emit counts an event and queues it for Read.
func (s *events) emit(e *kernel.Event) {
	if e.Kind == schema.KindFork {
		e.Attempted, e.Claimed = false, false
	}
	s.tally.count(e, s.queue.add(e))
}

// quiet calls f, and counts the notification as filtered if f emits no event of the hook.
func (s *events) quiet(hook kernel.HookID, f func()) {
	before := s.tally.emitted[hook]
	f()
	if s.tally.emitted[hook] == before {
		s.tally.filtered[hook]++
	}
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
