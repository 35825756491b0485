// Package backlog is a queue of records between the goroutine that empties a ring buffer, which must not wait, and the
// one that handles them, which may be slow. It is in memory up to a bound, and beyond that in a file.
package backlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Records wait in chunks of chunkSize bytes. At most maxHeld chunks are in memory. The file takes at most maxFile
// bytes, and at most a quarter of what its file system had free.
const (
	chunkSize = 64 << 10
	maxHeld   = 32
	maxFile   = 1 << 30
)

// Queue is first in, first out. One goroutine calls Put, Mark, Flush and Close; another one calls Each, once.
type Queue struct {
	dir string

	mu      sync.Mutex
	changed sync.Cond // Flush or Close was called, Each has taken a chunk or has returned
	last    []byte    // the newest records, not in chunks yet
	chunks  []chunk   // the oldest first
	held    int       // chunks in memory, with the one that Each works with
	free    [][]byte  // empty buffers of chunkSize, at most maxHeld
	file    *os.File  // has no name; nil while no chunk is in it
	filed   int       // chunks in the file, with those that are being written or read
	size    int64     // of the file
	room    int64     // the bound of size
	closed  bool
	err     error // of Close
	left    bool  // Each has returned
}

// chunk holds whole records, each after its length, in b or in n bytes of the file at off.
type chunk struct {
	b      []byte
	off, n int64
}

// mark is in place of the length for a number of Mark.
const mark = 1<<32 - 1

// New returns an empty queue. Beyond its bound in memory it uses an unnamed file in dir, which is freed when it is
// empty. If dir is "", or the file is full too, Put waits for Each.
func New(dir string) *Queue {
	q := &Queue{dir: dir}
	q.changed.L = &q.mu
	return q
}

// Put adds a copy of a record. Each is sure to get it once Flush has been called.
func (q *Queue) Put(record []byte) { q.add(uint32(len(record)), record) }

// Mark adds a number between the records.
func (q *Queue) Mark(n uint64) { q.add(mark, binary.LittleEndian.AppendUint64(nil, n)) }

func (q *Queue) add(length uint32, b []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 4 + len(b)
	full := len(q.last)+n > cap(q.last)
	if full {
		q.handOver()
	}
	if q.left {
		return
	}
	if full {
		q.last = q.buffer(n)
	}
	q.last = append(binary.LittleEndian.AppendUint32(q.last, length), b...)
}

// buffer returns an empty buffer with room for n bytes. q.mu is held.
func (q *Queue) buffer(n int) []byte {
	if end := len(q.free) - 1; end >= 0 && n <= chunkSize {
		b := q.free[end]
		q.free = q.free[:end]
		return b
	}
	return make([]byte, 0, max(n, chunkSize))
}

// handOver makes a chunk of q.last, and waits for room if there is none. q.mu is held, but not while it waits or
// writes.
func (q *Queue) handOver() {
	for len(q.last) > 0 && !q.left {
		switch b := q.last; {
		case q.held < maxHeld:
			q.chunks = append(q.chunks, chunk{b: b})
			q.held++
			q.last = nil
		case q.spill():
			q.recycle(b)
		default:
			q.changed.Broadcast() // Each must not wait for Flush now
			q.changed.Wait()
		}
	}
}

// spill moves q.last into the file, and reports whether it could. q.mu is held, but not while it writes.
func (q *Queue) spill() bool {
	if q.file == nil && q.create() != nil || q.size+int64(len(q.last)) > q.room {
		return false
	}
	b, file, at := q.last, q.file, chunk{off: q.size, n: int64(len(q.last))}
	q.last = nil // so that Each does not take it
	q.filed++    // so that Each keeps the file
	q.mu.Unlock()
	_, err := file.WriteAt(b, at.off)
	q.mu.Lock()
	if err != nil {
		q.last = b
		q.unfile()
		return false
	}
	if q.left {
		q.unfile()
		return true
	}
	q.size += at.n
	q.chunks = append(q.chunks, at)
	return true
}

func (q *Queue) create() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(q.dir, &fs); err != nil {
		return err
	}
	f, err := os.CreateTemp(q.dir, "backlog-*")
	if err != nil {
		return err
	}
	if err := os.Remove(f.Name()); err != nil {
		return errors.Join(err, f.Close())
	}
	q.file, q.size, q.room = f, 0, min(maxFile, int64(fs.Bavail)*int64(fs.Bsize)/4)
	return nil
}

// unfile notes that the file holds one chunk fewer, and frees an empty file. q.mu is held.
func (q *Queue) unfile() {
	if q.filed--; q.filed == 0 {
		_ = q.file.Close()
		q.file = nil
	}
}

// recycle keeps a buffer for later. q.mu is held.
func (q *Queue) recycle(b []byte) {
	if cap(b) == chunkSize && len(q.free) < maxHeld {
		q.free = append(q.free, b[:0])
	}
}

// Flush wakes Each if that waits for records.
func (q *Queue) Flush() { q.changed.Broadcast() }

// Close ends the queue: Each returns err once it has handed over everything.
func (q *Queue) Close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.err = true, err
	q.changed.Broadcast()
}

// Each hands over what was put into the queue, in order, until Close, or until record fails. It returns that error,
// or that of Close. A record is valid until the function returns. Once Each has returned, Put does nothing.
func (q *Queue) Each(record func([]byte) error, marked func(uint64)) error {
	var read []byte // of the file
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.leave()
	for {
		c, ok := q.next()
		if !ok {
			return q.err
		}
		file := q.file
		q.mu.Unlock()
		b, err := c.b, error(nil)
		if b == nil {
			read = slices.Grow(read[:0], int(c.n))[:c.n]
			b = read
			if _, err = file.ReadAt(b, c.off); err != nil {
				err = fmt.Errorf("read the kernel's records from the spool directory: %w", err)
			}
		}
		if err == nil {
			err = each(b, record, marked)
		}
		q.mu.Lock()
		if c.b == nil {
			q.unfile()
		} else {
			q.held--
			q.recycle(c.b)
		}
		q.changed.Broadcast()
		if err != nil {
			return err
		}
	}
}

// next takes the oldest chunk. It reports false at the end. q.mu is held, but not while it waits.
func (q *Queue) next() (chunk, bool) {
	for len(q.chunks) == 0 && len(q.last) == 0 {
		if q.closed {
			return chunk{}, false
		}
		q.changed.Wait()
	}
	if len(q.chunks) == 0 {
		c := chunk{b: q.last}
		q.last = nil
		q.held++
		return c, true
	}
	c := q.chunks[0]
	q.chunks = q.chunks[1:]
	return c, true
}

// leave frees what nobody reads any more. q.mu is held.
func (q *Queue) leave() {
	for _, c := range q.chunks {
		if c.b == nil {
			q.unfile()
		}
	}
	q.left, q.chunks, q.free, q.last = true, nil, nil, nil
	q.changed.Broadcast()
}

// each hands over what is in a chunk.
func each(b []byte, record func([]byte) error, marked func(uint64)) error {
	for len(b) > 0 {
		n := binary.LittleEndian.Uint32(b)
		if b = b[4:]; n == mark {
			marked(binary.LittleEndian.Uint64(b))
			b = b[8:]
			continue
		}
		if err := record(b[:n:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
