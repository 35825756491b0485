package archive

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// reserveBytes is set aside on the spool's disk while the run lives and given
// back when the disk is full, so that the end of the run can still be written.
const reserveBytes = 512 << 10

const (
	batchBytes    = 64 << 10               // a kernel batch is written when this full
	batchInterval = 200 * time.Millisecond // or this old: an event is, with what it waits before, 250 ms at most
	syncInterval  = time.Second            // dirty files reach the disk this often
)

// Names inside the spool's state that are no members: they start with a dot.
const (
	newPrefix   = ".new-"    // a spool being created
	donePrefix  = ".sealed-" // a sealed spool being removed
	reserveName = ".reserve"
)

// Spool is the directory of a live run. It satisfies the runner's Recorder and
// is safe for concurrent use. Whoever creates it ends it with exactly one of
// [Spool.Seal] and [Spool.Close]; when the process dies first, [Recover] seals
// what is there.
type Spool struct {
	dir  string // <spool dir>/<run id>
	run  schema.Run
	lock *os.File // run.json, locked while this process lives
	out  *Output  // where to seal to; nil: by the run's output

	redactor  *redact.Redactor // nil: nothing is secret
	scratch   *scratch         // of a sweep that found something
	projected *scratch         // of the form that the run asked for

	layers map[string]*layer

	mu         sync.Mutex // guards what follows
	members    map[string]*memberFile
	documents  map[string]*document
	journal    journal
	heldFiles  int  // of documents
	reserve    bool // the reserve is still held
	closed     bool
	checkpoint func(schema.Checkpoint)

	foundMu sync.Mutex
	found   []Tampered // so far

	full  atomic.Bool // the disk was full: only the end of the run is written
	lossy sync.Once   // marks run.json once lines were dropped

	disk    sync.WaitGroup // for OnDisk
	diskErr error

	wake chan struct{} // something is buffered or dirty
	stop chan struct{}
	done sync.WaitGroup
}

// Dir is the spool's directory.
func (s *Spool) Dir() string { return s.dir }

// Append adds one line to a layer; see the runner's Recorder. Lines of the
// kernel layer are written in batches, all others at once. An encode that
// yields nothing, a newline, or more than [MaxLine] loses its line: it is
// counted as dropped, takes no sequence number, and does not break the layer.
// Append allocates nothing once the layer's buffer has grown.
func (s *Spool) Append(path string, encode func(dst []byte, seq uint64) []byte) error {
	l := s.layers[path]
	if l == nil {
		return fmt.Errorf("append to %s: not a layer", path)
	}
	return l.append(encode)
}

// Begin makes the file of a layer that has no line yet, so that it can be read
// or linked while the run lives.
func (s *Spool) Begin(path string) error {
	l := s.layers[path]
	if l == nil {
		return fmt.Errorf("begin %s: not a layer", path)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.begin()
}

// Counts tells what a layer has written and dropped so far, batched lines
// included: it writes them first, so that what it calls written is.
func (s *Spool) Counts(path string) schema.LayerCounts {
	l := s.layers[path]
	if l == nil {
		return schema.LayerCounts{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	return schema.LayerCounts{Seen: l.written + l.dropped, Written: l.written, Dropped: l.dropped}
}

// Create opens a member for bytes that are written piece by piece: captured
// streams, and of the documents the capability surface, which may be large.
// The path must be new. The writer is not safe for concurrent use; after a write error
// it stays broken.
func (s *Spool) Create(path string) (io.WriteCloser, error) {
	document := isDocument(path) && path != schema.SurfacePath
	if !safePath(path) || isLayer(path) || document || path == schema.ManifestPath {
		return nil, fmt.Errorf("create member %q: not a path for a stream of bytes", path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("create member %s: %w", path, os.ErrClosed)
	}
	if s.members[path] != nil || len(s.members) >= maxMembers-32 {
		return nil, fmt.Errorf("create member %s: %w", path, os.ErrExist)
	}
	f, err := s.openFile(path, os.O_EXCL)
	if err != nil {
		return nil, err
	}
	m := &memberFile{spool: s, path: path, file: f, ledger: newLedger()}
	s.members[path] = m
	return m, nil
}

// Sync writes what is batched and puts everything appended so far on disk.
func (s *Spool) Sync() error {
	var errs []error
	for _, p := range schema.Layers {
		errs = append(errs, s.layers[p].sync())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		errs = append(errs, m.sync())
	}
	return errors.Join(errs...)
}

// Close ends the spool without sealing it and leaves it for [Recover].
// It does nothing after Seal or another Close.
func (s *Spool) Close() error {
	err := s.finish()
	if errors.Is(err, errEnded) {
		return nil
	}
	s.release()
	return errors.Join(err, s.lock.Close())
}

var errEnded = fmt.Errorf("the spool was sealed or closed before: %w", os.ErrClosed)

// finish stops the flusher, writes what is batched and closes the files. The
// lock stays held. The second time it does nothing and returns errEnded.
func (s *Spool) finish() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errEnded
	}
	s.closed = true
	s.mu.Unlock()
	close(s.stop)
	s.done.Wait()
	s.disk.Wait()
	var errs []error
	for _, p := range schema.Layers {
		errs = append(errs, s.layers[p].close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		m.Close()
	}
	return errors.Join(errs...)
}

// release closes the files that are held for sealing.
func (s *Spool) release() {
	for _, l := range s.layers {
		if l.file != nil {
			l.file.Close()
		}
	}
	for _, m := range s.members {
		m.file.Close()
	}
	for _, d := range s.documents {
		d.close()
	}
	s.journal.close()
}

// flusher writes batches when they are old, and syncs dirty files and makes a
// checkpoint every second.
// It sleeps while there is nothing to do.
func (s *Spool) flusher() {
	tick := time.NewTicker(batchInterval)
	defer tick.Stop()
	told := map[string]uint64{}
	for {
		tick.Stop()
		select {
		case <-s.stop:
			return
		case <-s.wake:
		}
		tick.Reset(batchInterval)
		for range int(syncInterval / batchInterval) {
			select {
			case <-s.stop:
				return
			case <-tick.C:
				l := s.layers[schema.KernelPath]
				l.mu.Lock()
				l.flush()
				l.mu.Unlock()
			}
		}
		// A failed sync breaks its layer, which then reports it.
		s.Sync()
		s.makeCheckpoint(told)
	}
}

// touched tells the flusher that there is something to write or sync.
func (s *Spool) touched() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// giveReserve frees the reserved space once, and from then on keeps the disk
// for the end of the run: it reports whether there is new space. s.mu is held.
func (s *Spool) giveReserve() bool {
	s.full.Store(true)
	if !s.reserve {
		return false
	}
	s.reserve = false
	return os.Remove(filepath.Join(s.dir, reserveName)) == nil
}

// useReserve is giveReserve for a caller without s.mu.
func (s *Spool) useReserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.giveReserve()
}
