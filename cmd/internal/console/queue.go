package console

import (
	"io"
	"sync"
)

// Queue writes to a file in the background, in order. Write never waits, even if the file is a pipe
// that nobody reads. Make one with NewQueue. It is safe for concurrent use.
type Queue struct {
	w io.Writer

	mu      sync.Mutex
	written sync.Cond // signalled when writing becomes false
	waiting []byte
	writing bool
}

// maxWaiting bounds the bytes that wait to be written. Write drops what is beyond.
const maxWaiting = 1 << 20

// NewQueue makes a Queue that writes to w.
func NewQueue(w io.Writer) *Queue {
	q := &Queue{w: w}
	q.written.L = &q.mu
	return q
}

// Write queues p. It never fails.
func (q *Queue) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting)+len(p) > maxWaiting {
		return len(p), nil
	}
	q.waiting = append(q.waiting, p...)
	if !q.writing {
		q.writing = true
		go q.write()
	}
	return len(p), nil
}

// write writes all that waits.
func (q *Queue) write() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.waiting) > 0 {
		p := q.waiting
		q.waiting = nil
		q.mu.Unlock()
		_, _ = q.w.Write(p)
		q.mu.Lock()
	}
	q.writing = false
	q.written.Broadcast()
}

// Flush waits until everything is written, or writing has failed.
func (q *Queue) Flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.writing {
		q.written.Wait()
	}
}
