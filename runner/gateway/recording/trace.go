package recording

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxPage is the approximate size of a page of turns, in bytes. A longer trace has several pages.
const maxPage = 1 << 20

// Errors of [Run.Read], returned wrapped.
var (
	ErrNoTrace = errors.New("the run has no trace that can be read")
	ErrNoTurn  = errors.New("no such turn")
)

// Reader reads a run's turns from its file, from an index on. It ignores an incomplete line at the end, so it sees
// every turn exactly once while the run writes. It is for one goroutine.
type Reader struct {
	Next uint64 // index of the next turn

	run *Run
	f   *os.File // nil before the first turn
	at  int64    // offset of the next turn

	last  uint64 // turns in the last page
	news  chan struct{}
	ended bool // whether the run had ended at the last page
}

// Page returns the next turns as a JSON array, and their number: at most limit, about a mebibyte, and at least one if
// there is one.
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

// More waits for turns after the last page, and reports whether there are any. It returns false once the run has
// ended and everything was read, or ctx has ended.
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

// Behind reports whether the run has unread turns.
func (t *Reader) Behind() bool {
	t.run.mu.Lock()
	defer t.run.mu.Unlock()
	return t.Next < t.run.turns
}

// Close closes the file.
func (t *Reader) Close() {
	if t.f != nil {
		t.f.Close()
	}
}

// open opens the file if it exists.
func (t *Reader) open() (there bool, err error) {
	if t.f == nil {
		behind := t.Behind() // before opening: the first turn may create the file in between
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

// page reads at most limit whole lines, of about most bytes in total.
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
