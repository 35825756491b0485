package model

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/model/wire"
	"github.com/assay-run/assay-run/schema"
)

// exchange is a request and its answer as they passed.
type exchange struct {
	asked
	method, rawPath string
	remote          string // the agent's address
	connection      int    // the connection's number among those from remote
	start           int64  // when the request had arrived, in nanoseconds of the run
	first           int64  // when the answer's first byte passed; 0: it has no bytes
	end             int64
	refused         string
	failure         string // our error type, or empty
	replayed        *schema.ModelReplayed
	missed          string // why the replayed bundle has no answer

	purse    *purse   // the budget that it counts against; may be nil
	sent     *passage // the request's body
	upload   *upload  // source of sent; nil: the body was read before it was passed on
	encoding string   // of the request's content
	whole    bool     // the provider's answer is complete
	reach    reach

	mu             sync.Mutex // guards what follows until the exchange has ended
	status         int        // 0: no answer
	responseHeader http.Header
	response       *passage
	ended          bool
	length         int64        // Content-Length of the answer; 0: unknown
	passed         atomic.Int64 // when the answer's first byte was about to pass; 0: never
	ending         atomic.Bool  // the answer's last byte was about to pass

	// The recorder owns these fields.
	arrived   int64 // when all of the request had
	asks      *wire.Request
	told      *wire.Answer // nil: not decoded yet
	proposals []int        // numbers of the answer's calls, from Calls.Proposed
}

// reach knows how far a request got on its way to the provider.
type reach struct{ asked, connected atomic.Bool }

// trace watches the way of a request that is sent with the context.
func (r *reach) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { r.asked.Store(true); r.connected.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { r.connected.Store(true) },
	})
}

// free releases memory and files.
func (x *exchange) free() {
	x.sent.free()
	x.response.free()
}

// mark records that n more bytes of the answer are about to pass.
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

// completed returns when the byte before offset was about to pass.
func (x *exchange) completed(offset int64) int64 {
	marks := x.response.marks
	i := sort.Search(len(marks), func(i int) bool { return marks[i].from >= offset })
	switch {
	case len(marks) == 0:
		return x.end
	case x.responseHeader.Get("Content-Encoding") != "" || i == 0: // the offset is in the decoded answer
		i = len(marks)
	}
	return marks[i-1].at
}

// usage returns the usage that the answer has reported so far, the model, and whether the answer has ended.
func (x *exchange) usage() (u schema.ModelUsage, model string, ended bool) {
	x.mu.Lock()
	header, body, ended := x.responseHeader, *x.response, x.ended
	x.mu.Unlock()
	if header == nil {
		return u, "", ended
	}
	text, _ := decoded(&body, header.Get("Content-Encoding"))
	a := wire.Read(x.api, header.Get("Content-Type"), bytes.NewReader(text))
	return schema.ModelUsage(a.Usage), a.Model, ended
}

// charged returns the usage that counts for an answer that has ended. If it ended before it reported a usage, each
// byte counts as one token: leaving early must not extend the budget.
func (x *exchange) charged(u *schema.ModelUsage) *schema.ModelUsage {
	if x.status != http.StatusOK && (x.status != 0 || x.failure != schema.ModelErrorLeft) {
		return &schema.ModelUsage{}
	}
	c := *u
	if c.InputTokens == nil {
		c.InputTokens = new(x.sent.size)
	}
	if c.OutputTokens == nil {
		c.OutputTokens = new(x.response.size)
	}
	return &c
}

// receive reads the whole body of a request. It keeps nothing of a request without the token.
func (x *exchange) receive(body io.Reader, why *refusal) error {
	if why != nil && why.word == schema.ModelRefusedCredential {
		n, err := io.Copy(io.Discard, body)
		x.sent.size = n
		return err
	}
	_, err := io.Copy(writer(x.sent.write), body)
	return cmp.Or(err, x.sent.err)
}

// read decodes the request, and returns its body without content encoding. After an error the request is empty.
func (x *exchange) read() (q *wire.Request, body jsontext.Value, err error) {
	q = &wire.Request{}
	if body, err = decoded(x.sent, x.encoding); err == nil {
		q = wire.ReadRequest(x.api, body)
	}
	if x.model != "" {
		q.Model = x.model
	}
	q.Stream = q.Readable && (q.Stream || x.stream)
	return q, body, err
}

// digest is equal for equal requests.
func (x *exchange) digest() [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s\n", x.method, x.rawPath)
	_, _ = io.Copy(h, x.sent.reader())
	return [sha256.Size]byte(h.Sum(nil))
}

// memory limits what all passages of an endpoint hold, in bytes: in memory and in files.
type memory struct{ left, file atomic.Int64 }

// Limits on what passages hold. Bytes beyond both are not kept.
const (
	maxMemory = 32 << 20 // bytes in memory
	maxFiles  = 1 << 30  // bytes in files
)

func newMemory() *memory {
	m := &memory{}
	m.left.Store(maxMemory)
	m.file.Store(maxFiles)
	return m
}

// take reports whether n more bytes may be held, and counts them.
func take(left *atomic.Int64, n int) bool {
	if left.Add(-int64(n)) >= 0 {
		return true
	}
	left.Add(int64(n))
	return false
}

// passage stores what passed: in memory, and beyond a limit in an unnamed file. One goroutine at a time may use it. A
// copy of it keeps the bytes that were there when it was made.
type passage struct {
	memory *memory
	dir    string   // of the file
	expect int64    // how long it will be; 0: unknown
	lent   bool     // nobody but the record reads held, so that free can give it to others
	held   []byte   // the first bytes, in one piece, which the record reads in place; they are never changed
	file   *os.File // has the others; nil: everything is in held
	size   int64
	marks  []mark
	err    error // why bytes could not be kept
}

// mark says when the bytes from an offset on passed.
type mark struct{ from, at int64 }

// maxMarks limits the marks of an answer. The last mark covers all later bytes.
const maxMarks = 1 << 16

var errNoRoom = errors.New("too much passed at once to be kept")

func (t *passage) write(b []byte) {
	t.size += int64(len(b))
	if t.err != nil {
		return
	}
	if t.file == nil && t.room(len(b)) {
		t.held = append(t.held, b...)
		return
	}
	if !take(&t.memory.file, len(b)) {
		t.err = errNoRoom
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

// room reports whether n more bytes may be held, and makes room for them.
func (t *passage) room(n int) bool {
	more := n - (cap(t.held) - len(t.held))
	if more <= 0 {
		return true
	}
	if left := int(min(t.expect, maxRequest)) - cap(t.held); left > 0 {
		more = max(more, left)
	} else {
		more = max(more, cap(t.held), leastHeld)
	}
	if t.memory.left.Load() < int64(more) {
		return false // before memory is made that nobody may hold
	}
	into := t.spare(cap(t.held) + more)
	if !take(&t.memory.left, cap(into)-cap(t.held)) {
		return false
	}
	t.held = append(into, t.held...)
	return true
}

// bodies has the memory of large bodies that nobody reads any more: to get new memory costs more than to fill it.
var bodies sync.Pool // of *[]byte

// spare returns memory with room for n bytes.
func (t *passage) spare(n int) []byte {
	if t.lent && n > large {
		if b, ok := bodies.Get().(*[]byte); ok && cap(*b) >= n {
			return *b
		}
		n += n / 4 // the next request of a conversation is longer
	}
	return make([]byte, 0, n)
}

// decodedInto is memory for a decoded body of about n bytes. The caller gives it back with reuse, if nothing reads the
// body any more.
func decodedInto(n int) []byte {
	if n > large {
		if b, ok := bodies.Get().(*[]byte); ok && cap(*b) >= n {
			return *b
		}
	}
	return make([]byte, 0, n)
}

// reuse gives the memory of a body that was decoded of t to others.
func (t *passage) reuse(body []byte) {
	if own := cap(t.held) == 0 || len(body) == 0 || &body[0] != &t.held[:1][0]; own && cap(body) > large {
		bodies.Put(new(body[:0]))
	}
}

// leastHeld is the least memory of a passage whose length is not known, in bytes.
const leastHeld = 1 << 10

// reader reads the passage from the start.
func (t *passage) reader() io.Reader {
	if t.file == nil {
		return bytes.NewReader(t.held)
	}
	return io.MultiReader(bytes.NewReader(t.held), io.NewSectionReader(t.file, 0, t.size-int64(len(t.held))))
}

// free releases memory and files.
func (t *passage) free() {
	t.memory.left.Add(int64(cap(t.held)))
	if t.lent && cap(t.held) > large {
		bodies.Put(new(t.held[:0]))
	}
	t.held = nil
	if t.file != nil {
		if info, err := t.file.Stat(); err == nil {
			t.memory.file.Add(info.Size())
		}
		_ = t.file.Close()
	}
}

// upload is the body of a request on its way to the provider. It is copied as it passes.
type upload struct {
	body    io.ReadCloser
	x       *exchange
	left    int64  // bytes still to come; negative: unknown
	arrived func() // called once everything has come

	mu    sync.Mutex
	ended bool  // nothing more is copied
	err   error // of the agent's connection, or because the body is too long
}

// Read does not read beyond the last byte: by then the answer may be on its way and the body closed.
func (u *upload) Read(b []byte) (int, error) {
	if u.left == 0 {
		return 0, io.EOF
	}
	if u.left > 0 {
		b = b[:min(int64(len(b)), u.left)]
	}
	n, err := u.body.Read(b)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return n, err
	}
	u.x.sent.write(b[:n])
	if u.left > 0 {
		if u.left -= int64(n); u.left == 0 {
			err = io.EOF
		}
	}
	switch {
	case err == io.EOF:
		u.ended = true
		u.arrived()
	case err != nil:
		u.ended, u.err = true, err
	}
	return n, err
}

func (u *upload) Close() error { return u.body.Close() }

// coming reports whether part of the body is still to come. For nil it is false.
func (u *upload) coming() bool {
	if u == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.ended || u.err != nil
}

// stop ends the copying, and returns why the request did not arrive completely.
func (u *upload) stop() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	return u.err
}
