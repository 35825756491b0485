package recording

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxPage is about how many bytes of turns one page has. A longer trace comes in
// pages.
const maxPage = 1 << 20

// Errors of [Run.Read], returned wrapped.
var (
	ErrNoTrace = errors.New("the run has no trace that can be read")
	ErrNoTurn  = errors.New("no such turn")
)

// Reader reads a run's turns from its file, from one index on. What is not yet a
// whole line is not yet there, so a reader beside the writer sees every turn
// exactly once. It is for one goroutine.
type Reader struct {
	Next uint64 // index of the turn that comes next

	run *Run
	f   *os.File // nil before the first turn
	at  int64    // of the turn that comes next

	last  uint64 // turns of the last page
	news  chan struct{}
	ended bool // the run, when the last page was read
}

// Page returns the next turns as a JSON array: up to limit of them, about a
// mebibyte together and at least one if there is one, and how many they are.
func (t *Reader) Page(limit uint64) (array []byte, n uint64, err error) {
	// The order matters: a turn after this moment closes the channel.
	t.run.mu.Lock()
	t.news = t.run.appended
	t.ended = t.run.state == Completed || t.run.state == Incomplete && t.run.once
	t.run.mu.Unlock()
	array, t.last, err = t.page(maxPage, limit)
	if err != nil {
		err = fmt.Errorf("read the trace of run %s: %w", t.run.ID, err)
	}
	return array, t.last, err
}

// More waits until there is more than the last page had, and reports whether there is: not once the run has
// ended and all of it was read, or ctx ended.
func (t *Reader) More(ctx context.Context) bool {
	switch {
	case t.last > 0:
		return true
	case t.ended:
		return false
	}
	select {
	case <-t.news:
		return true
	case <-ctx.Done():
		return false
	}
}

// Behind reports whether the run has turns that have not been read.
func (t *Reader) Behind() bool {
	t.run.mu.Lock()
	defer t.run.mu.Unlock()
	return t.Next < t.run.turns
}

// Close ends the reading.
func (t *Reader) Close() {
	if t.f != nil {
		t.f.Close()
	}
}

// open opens the file once there is one.
func (t *Reader) open() (there bool, err error) {
	if t.f == nil {
		behind := t.Behind() // before: the first turn may make the file between the two
		f, err := os.Open(t.run.To.TurnsFile)
		if errors.Is(err, os.ErrNotExist) && !behind {
			return false, nil
		} else if err != nil {
			return false, err
		}
		t.f = f
	}
	return true, nil
}

// page reads up to limit whole lines, of about most bytes together.
func (t *Reader) page(most int, limit uint64) (array []byte, n uint64, err error) {
	array = []byte{'['}
	if there, err := t.open(); err != nil || !there {
		return append(array, ']'), 0, err
	}
	info, err := t.f.Stat()
	if err != nil {
		return nil, 0, err
	}
	buf := make([]byte, min(int64(most), info.Size()-t.at))
	got, err := t.f.ReadAt(buf, t.at)
	if err != nil && err != io.EOF {
		return nil, 0, err
	}
	buf = buf[:got]
	for got == most && bytes.IndexByte(buf, '\n') < 0 {
		// One line is longer than a page.
		most *= 2
		buf = make([]byte, most)
		if got, err = t.f.ReadAt(buf, t.at); err != nil && err != io.EOF {
			return nil, 0, err
		}
		buf = buf[:got]
	}
	for n < limit {
		line, rest, whole := bytes.Cut(buf, []byte{'\n'})
		if !whole {
			break
		}
		if n > 0 {
			array = append(array, ',')
		}
		array = append(array, line...)
		t.at += int64(len(line)) + 1
		t.Next++
		n++
		buf = rest
	}
	return append(array, ']'), n, nil
}
