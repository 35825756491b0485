package notify

import (
	"bytes"
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
	text   []byte // the events' bytes; older events may point into its earlier, smaller array
	bytes  int
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
	c := &q.events[q.base]
	for _, p := range []*[]byte{&c.Path, &c.Path2, &c.Given, &c.Given2, &c.Name, &c.Exe, &c.Cwd, &c.Filename, &c.Interp,
		&c.ToolCallID, &c.Traceparent} {
		q.keep(p)
	}
	c.Argv, c.EnvKeys = q.keepAll(c.Argv), q.keepAll(c.EnvKeys)
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
		e.Start == base.Start &&
		e.Syscall == base.Syscall && e.Flags == base.Flags && e.Mode == base.Mode && e.Resolve == base.Resolve &&
		e.PathSource == base.PathSource && e.Truncated == base.Truncated && e.RelativePath == base.RelativePath &&
		e.Unresolved == base.Unresolved && e.Unreadable == base.Unreadable && e.Deleted == base.Deleted &&
		bytes.Equal(e.Path, base.Path) && bytes.Equal(e.Given, base.Given)
}

func (q *queue) keep(p *[]byte) {
	if len(*p) == 0 {
		*p = nil
		return
	}
	n := len(q.text)
	q.text = append(q.text, *p...)
	*p = q.text[n:len(q.text):len(q.text)]
	q.bytes += len(*p)
}

func (q *queue) keepAll(list [][]byte) [][]byte {
	if list == nil {
		return nil
	}
	kept := make([][]byte, len(list))
	for i, b := range list {
		kept[i] = b
		q.keep(&kept[i])
	}
	return kept
}

// batch is what take returns. The next take reuses its memory.
type batch struct {
	events []kernel.Event
	text   []byte
}

// take returns what is queued. The queue then uses the memory of empty.
func (q *queue) take(empty batch) batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := batch{q.events, q.text}
	q.events, q.text, q.bytes = empty.events[:0], empty.text[:0], 0
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
