package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
)

// sinkQueue is how many call events wait for a slow sink.
const sinkQueue = 1024

// Sink writes call events somewhere beside the bundle: a file, stdout, stderr.
// It never makes a call wait: what finds its queue full is dropped and counted.
type Sink struct {
	name  string
	w     io.Writer
	queue chan []byte
	done  chan struct{}

	mu      sync.RWMutex // offering against closing
	closed  bool
	offered atomic.Uint64
	written atomic.Uint64
	dropped atomic.Uint64
	failed  atomic.Pointer[error]
}

// NewSink starts a sink that writes lines to w. The name is used in metrics.
func NewSink(name string, w io.Writer) *Sink {
	s := &Sink{name: name, w: w, queue: make(chan []byte, sinkQueue), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *Sink) run() {
	defer close(s.done)
	for line := range s.queue {
		if s.failed.Load() != nil {
			s.dropped.Add(1)
			continue
		}
		if _, err := s.w.Write(line); err != nil {
			s.failed.Store(&err)
			s.dropped.Add(1)
			continue
		}
		s.written.Add(1)
	}
}

// offer queues a line that ends in a newline, or drops it.
func (s *Sink) offer(line []byte) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.offered.Add(1)
	if !s.closed {
		select {
		case s.queue <- line:
			return
		default:
		}
	}
	s.dropped.Add(1)
}

// Counts tells how many lines were written and dropped.
func (s *Sink) Counts() (written, dropped uint64) { return s.written.Load(), s.dropped.Load() }

// Close takes no more lines and waits until those queued are written, or ctx
// ends; what is still being written then goes on. The error tells how many lines
// are missing, and why.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.queue)
	}
	s.mu.Unlock()
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	offered := s.offered.Load()
	missing := offered - s.written.Load() // dropped, waiting, or being written
	if missing == 0 {
		return nil
	}
	why := errTooSlowSink
	if err := s.failed.Load(); err != nil {
		why = *err
	}
	return fmt.Errorf("audit sink %s: %d of %d call events were not written: %w", s.name, missing, offered, why)
}

var errTooSlowSink = errors.New("the sink is too slow")
