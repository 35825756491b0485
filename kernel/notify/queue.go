package notify

import (
	"sync"

	"github.com/assay-run/assay-run/kernel"
)

// Bounds of a queue. At a bound the calls of the run wait: nothing is dropped.
const (
	maxQueued      = 8192
	maxQueuedBytes = 4 << 20
)

// queue holds events from the listener's thread until Read takes them, many at a
// time: waking a goroutine for each would cost more than the event.
type queue struct {
	mu     sync.Mutex
	room   sync.Cond
	events []kernel.Event
	text   []byte // what the events point into, or did when it was smaller
	bytes  int
	closed bool
	wake   chan struct{} // has an element when there is something to take
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

// add takes a copy of e in.
func (q *queue) add(e *kernel.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events = append(q.events, *e)
	c := &q.events[len(q.events)-1]
	for _, p := range []*[]byte{&c.Path, &c.Path2, &c.Given, &c.Given2, &c.Name, &c.Exe, &c.Cwd, &c.Filename, &c.Interp, &c.ToolCallID, &c.Traceparent} {
		q.keep(p)
	}
	c.Argv, c.EnvKeys = q.keepAll(c.Argv), q.keepAll(c.EnvKeys)
	if len(q.events) == 1 {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
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

// batch is what take returns, to be given back for reuse.
type batch struct {
	events []kernel.Event
	text   []byte
}

// take swaps what is queued for an empty batch, whose memory it uses.
func (q *queue) take(empty batch) batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	full := batch{q.events, q.text}
	q.events, q.text, q.bytes = empty.events[:0], empty.text[:0], 0
	q.room.Broadcast()
	return full
}

// close ends the waiting: the reader is about to end.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.room.Broadcast()
}
