package runner

import (
	"sync"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// lifecycle writes events.ndjson. Its clock starts with the first event. It is
// safe for concurrent use: the copying of stdio reports from goroutines of its
// own.
type lifecycle struct {
	runID string
	rec   Recorder

	mu      sync.Mutex
	zero    time.Duration // boot time of run_started
	started bool
	err     error // the first failure to record
}

func newLifecycle(runID string, rec Recorder) *lifecycle {
	return &lifecycle{runID: runID, rec: rec}
}

// event stamps e with the run, the time and a sequence number and appends it.
func (l *lifecycle) event(e schema.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := bootTime()
	if !l.started {
		l.started, l.zero = true, now
	}
	e.Schema, e.RunID, e.TNS = schema.EventV0, l.runID, int64(now-l.zero)
	err := l.rec.Append(schema.EventsPath, func(dst []byte, seq uint64) []byte {
		e.Seq = seq
		line, err := schema.Line(&e)
		if err != nil {
			panic("encode lifecycle event: " + err.Error()) // plain data always encodes
		}
		return append(dst, line[:len(line)-1]...)
	})
	if err != nil && l.err == nil {
		l.err = err
	}
}

// start is run_started on the boot clock.
func (l *lifecycle) start() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.zero
}

// elapsed is the time since run_started.
func (l *lifecycle) elapsed() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bootTime() - l.zero
}

// failed is the first error that recording an event met.
func (l *lifecycle) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
