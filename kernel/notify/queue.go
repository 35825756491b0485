package notify

import (
	"sync"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Bounds of a queue. At a bound the calls of the run wait, and nothing is dropped.
const (
	maxQueued      = 8192
	maxQueuedBytes = 4 << 20
)

// queue holds events from the listener's thread until Read takes them. Read takes many at
// a time: to wake a goroutine for each would cost more than the event.
type queue struct {
	mu     sync.Mutex
	room   sync.Cond
	events []kernel.Event
	bytes  int // of what the events refer to
	base   int // the index of the newest event that is not a Repeat
	closed bool
	wake   chan struct{} // gets an element with the first event after a take
}

func newQueue() *queue {
	q := &queue{wake: make(chan struct{}, 1)}
	q.room.L = &q.mu
	return q
}

// waitForRoom waits while a bound is reached.
func (q *queue) waitForRoom() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed && (len(q.events) >= maxQueued || q.bytes >= maxQueuedBytes) {
		q.room.Wait()
	}
}

// What add did with an event.
const (
	added    = iota // queued it
	repeated        // queued a Repeat of the event before it
	counted         // counted it in the Repeat before it
)

// add queues a copy of e, or counts e if it repeats the newest event.
func (q *queue) add(e *kernel.Event) (how int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.events); n > 0 && repeats(e, &q.events[q.base]) {
		r := &q.events[n-1]
		if how = counted; !r.Repeat {
			q.events = append(q.events, *r)
			r = &q.events[n]
			r.Repeat, r.Count, r.First, how = true, 0, e.Time, repeated
		}
		r.Time, r.Last, r.Count = e.Time, e.Time, r.Count+1
		return how
	}
	q.base = len(q.events)
	q.events = append(q.events, *e)
	q.bytes += len(e.Value) + len(e.Target) + len(e.Given) + len(e.TargetGiven) + len(e.Cwd)
	for _, list := range [][]string{e.Argv, e.EnvKeys} {
		for _, s := range list {
			q.bytes += len(s)
		}
	}
	if len(q.events) == 1 {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return added
}

// repeats reports whether e and base are the same: the same thread opens the same file in
// the same way.
func repeats(e, base *kernel.Event) bool {
	return e.Kind == schema.KindOpen && base.Kind == schema.KindOpen && e.TID == base.TID && e.PID == base.PID &&
		e.Task.Start == base.Task.Start && e.Syscall == base.Syscall && e.Flags == base.Flags && e.Mode == base.Mode &&
		e.Resolve == base.Resolve && e.UserMemory == base.UserMemory && e.Truncated == base.Truncated &&
		e.Marks == base.Marks && e.Value == base.Value && e.Given == base.Given
}

// take returns what is queued. The queue then uses the memory of empty.
func (q *queue) take(empty []kernel.Event) []kernel.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := q.events
	clear(empty)
	q.events, q.bytes = empty[:0], 0
	q.room.Broadcast()
	return full
}

// close ends the waiting for room: Read is about to end.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.room.Broadcast()
}
