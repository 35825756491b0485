package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/assay-run/assay-run/schema"
)

// Sink gets every call event, in addition to the run's audit layer. A gateway may have several.
type Sink interface {
	// Name is the sink's name in Metrics.Drops.
	Name() string
	// OnCall gets an event. Several goroutines call it at the same time, and it must not block: it drops and counts
	// what it cannot accept now.
	OnCall(e schema.CallEvent)
	// Drops counts the events that were dropped.
	Drops() uint64
}

// sinkQueue is how many call events can wait for a slow writer.
const sinkQueue = 1024

// WriterSink is a [Sink] that writes events as lines. It drops events if its queue is full or they cannot be written.
type WriterSink struct {
	name  string
	w     io.Writer
	queue chan schema.CallEvent
	done  chan struct{}

	mu      sync.RWMutex // guards sending against closing
	closed  bool
	offered atomic.Uint64
	written atomic.Uint64
	dropped atomic.Uint64
	failed  atomic.Pointer[error] // the last write error
}

// NewSink starts a sink that writes lines to w. Its queue holds 1,024 events.
func NewSink(name string, w io.Writer) *WriterSink { return newSinkOf(name, w, sinkQueue) }

// newSinkOf starts a sink whose queue holds capacity events.
func newSinkOf(name string, w io.Writer, capacity int) *WriterSink {
	s := &WriterSink{name: name, w: w, queue: make(chan schema.CallEvent, max(capacity, 1)), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *WriterSink) run() {
	defer close(s.done)
	for e := range s.queue {
		line, err := schema.Line(&e)
		if err == nil {
			_, err = s.w.Write(line)
		}
		if err != nil { // the next one may succeed: a disk may have room again
			s.failed.Store(&err)
			s.dropped.Add(1)
			continue
		}
		s.written.Add(1)
	}
}

// Name is the sink's name in Metrics.Drops.
func (s *WriterSink) Name() string { return s.name }

// OnCall queues an event, or drops it.
func (s *WriterSink) OnCall(e schema.CallEvent) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.offered.Add(1)
	if !s.closed {
		select {
		case s.queue <- e:
			return
		default:
		}
	}
	s.dropped.Add(1)
}

// Drops is how many events were not written.
func (s *WriterSink) Drops() uint64 { return s.dropped.Load() }

// Counts returns how many events were written and dropped.
func (s *WriterSink) Counts() (written, dropped uint64) { return s.written.Load(), s.dropped.Load() }

// Close accepts no more events and waits until the queued ones are written or ctx ends; a write in progress then
// continues. The error says how many events are missing, and why.
func (s *WriterSink) Close(ctx context.Context) error {
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
