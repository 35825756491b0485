package model

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/assay-run/assay-run/runner/model/wire"
	"github.com/assay-run/assay-run/schema"
)

// exchange is a request and its answer, as they passed.
type exchange struct {
	asked
	method, rawPath string
	remote          string // the agent's end of the connection
	connection      int    // which one from there
	start           int64  // when the request had arrived, in nanoseconds of the run
	first           int64  // the answer's first byte; 0: none came
	end             int64
	refused         string
	failure         string // an error type of ours, or empty
	replayed        *schema.ModelReplayed
	missed          string // why a replayed bundle has no answer

	purse         *purse // that pays for it; may be nil
	request       []byte
	requestHeader http.Header
	whole         bool // the provider's answer came to its end

	mu             sync.Mutex // of what follows, until the exchange has ended
	status         int        // 0: nothing was answered
	responseHeader http.Header
	response       *passage
	ended          bool
	length         int64        // of the response, as its header says; 0: it does not
	passed         atomic.Int64 // when the answer's first byte was about to pass; 0: none was
	ending         atomic.Bool  // its last byte was about to pass

	// Of the recorder.
	arrived   int64 // when all of the request had
	asks      *wire.Request
	told      *wire.Answer // nil: it was not looked at yet
	proposals []int        // the calls in the answer, as Calls numbers them
}

// mark notes that n more bytes of the answer are about to pass.
func (x *exchange) mark(at int64, n int) {
	t := x.response
	if x.length > 0 && t.size+int64(n) >= x.length {
		x.ending.Store(true)
	}
	x.passed.CompareAndSwap(0, max(at, 1))
	if n := len(t.marks); n > 0 && (n == maxMarks || t.marks[n-1].from == t.size) {
		t.marks[n-1] = mark{t.marks[n-1].from, at}
		return
	}
	t.marks = append(t.marks, mark{t.size, at})
}

// completed is when the byte before an offset of the answer was about to pass.
func (x *exchange) completed(offset int64) int64 {
	marks := x.response.marks
	i := sort.Search(len(marks), func(i int) bool { return marks[i].from >= offset })
	switch {
	case len(marks) == 0:
		return x.end
	case x.responseHeader.Get("Content-Encoding") != "" || i == 0: // the offset is of the decoded answer
		i = len(marks)
	}
	return marks[i-1].at
}

// memory bounds what all passages of an endpoint hold, in bytes.
type memory struct{ left atomic.Int64 }

// maxMemory is what passages hold in memory, in bytes. The rest is in files.
const maxMemory = 32 << 20

// take reports whether n more bytes may be held.
func (m *memory) take(n int) bool {
	if m.left.Add(-int64(n)) >= 0 {
		return true
	}
	m.left.Add(int64(n))
	return false
}

// passage holds what passed: in memory, and beyond its bound in a file without a name. It is for
// one goroutine at a time,
// but for its readers: they have what there was when they were made.
type passage struct {
	memory *memory
	dir    string // of the file
	held   []byte
	file   *os.File // nil: all is held
	size   int64
	marks  []mark
	err    error // what could not be kept
}

// mark is when the bytes from an offset on passed.
type mark struct{ from, at int64 }

// maxMarks bounds the marks of an answer. The last one stands for all behind it.
const maxMarks = 1 << 16

func (t *passage) write(b []byte) {
	t.size += int64(len(b))
	if t.err != nil {
		return
	}
	if t.file == nil && t.memory.take(len(b)) {
		t.held = append(t.held, b...)
		return
	}
	if t.file == nil {
		if t.file, t.err = os.CreateTemp(t.dir, ".model-"); t.err != nil {
			return
		}
		_ = os.Remove(t.file.Name())
	}
	_, t.err = t.file.Write(b)
}

// reader reads it from its beginning.
func (t *passage) reader() io.Reader {
	if t.file == nil {
		return bytes.NewReader(t.held)
	}
	return io.MultiReader(bytes.NewReader(t.held), io.NewSectionReader(t.file, 0, t.size-int64(len(t.held))))
}

// free lets go of what it holds.
func (t *passage) free() {
	t.memory.left.Add(int64(len(t.held)))
	t.held = nil
	if t.file != nil {
		_ = t.file.Close()
	}
}
