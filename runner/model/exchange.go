package model

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
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

	purse         *purse // that pays for it; may be nil
	request       []byte
	requestHeader http.Header
	whole         bool // the provider's answer came to its end

	mu             sync.Mutex // of what follows, until the exchange has ended
	status         int        // 0: nothing was answered
	responseHeader http.Header
	response       *tape
	ended          bool
}

// memory bounds what all tapes of an endpoint hold, in bytes.
type memory struct{ left atomic.Int64 }

// maxMemory is what tapes hold in memory, in bytes. The rest is in files.
const maxMemory = 32 << 20

// take reports whether n more bytes may be held.
func (m *memory) take(n int) bool {
	if m.left.Add(-int64(n)) >= 0 {
		return true
	}
	m.left.Add(int64(n))
	return false
}

// tape holds what passed: in memory, and beyond its bound in a file without a name. It is for one goroutine at a time,
// but for its readers: they have what there was when they were made.
type tape struct {
	memory *memory
	dir    string // of the file
	held   []byte
	file   *os.File // nil: all is held
	size   int64
	err    error // what could not be kept
}

func (t *tape) write(b []byte) {
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
func (t *tape) reader() io.Reader {
	if t.file == nil {
		return bytes.NewReader(t.held)
	}
	return io.MultiReader(bytes.NewReader(t.held), io.NewSectionReader(t.file, 0, t.size-int64(len(t.held))))
}

// free lets go of what it holds.
func (t *tape) free() {
	t.memory.left.Add(int64(len(t.held)))
	t.held = nil
	if t.file != nil {
		_ = t.file.Close()
	}
}
