package model

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// errKey means that the answer contains the key.
var errKey = errors.New("the answer has the key in it")

// guard keeps the provider's key out of an answer, and records how the answer ends.
func guard(r *http.Response, key string) error {
	x := r.Request.Context().Value(exchangeKey{}).(*exchange)
	if key != "" && inHeader(r.Header, key) {
		return errKey
	}
	r.Body = &guarded{body: r.Body, trailer: func() http.Header { return r.Trailer }, key: []byte(key), x: x}
	return nil
}

func inHeader(h http.Header, key string) bool {
	for name, values := range h {
		if strings.Contains(name, key) {
			return true
		}
		for _, v := range values {
			if strings.Contains(v, key) {
				return true
			}
		}
	}
	return false
}

// guarded is a body that ends before a key. Bytes that may start the key are held back until more bytes come.
type guarded struct {
	body    io.ReadCloser
	trailer func() http.Header
	key     []byte // empty: no key to look for
	x       *exchange
	held    []byte // read but not passed on, since the key may start here
	err     error  // returned after held
}

// Read needs a buffer larger than the key.
func (g *guarded) Read(b []byte) (n int, err error) {
	if len(b) <= len(g.key) {
		return 0, io.ErrShortBuffer
	}
	for n == 0 && g.err == nil {
		n = g.read(b)
	}
	if n > 0 {
		return n, nil
	}
	return 0, g.err
}

// read reads once, and returns how many bytes may be passed on.
func (g *guarded) read(b []byte) (ready int) {
	n := copy(b, g.held)
	m, err := g.body.Read(b[n:])
	b = b[:n+m]
	if at := bytes.Index(b, g.key); at >= 0 && len(g.key) > 0 {
		g.held, g.err, g.x.failure = nil, errKey, schema.ModelErrorKey
		return at
	}
	if g.err = err; err == nil {
		ready = len(b) - beginning(b, g.key)
		g.held = append(g.held[:0], b[ready:]...)
		return ready
	}
	if err == io.EOF && len(g.key) > 0 && inHeader(g.trailer(), string(g.key)) {
		g.err, g.x.failure = errKey, schema.ModelErrorKey
	}
	g.held = nil // no more bytes come
	g.x.whole = g.x.whole || err == io.EOF
	if err != io.EOF && g.x.failure == "" {
		g.x.failure = schema.ModelErrorBroken
	}
	return len(b)
}

// beginning returns how many bytes at the end of b may start key.
func beginning(b, key []byte) int {
	for n := min(len(b), len(key)-1); n > 0; n-- {
		if bytes.HasSuffix(b, key[:n]) {
			return n
		}
	}
	return 0
}

func (g *guarded) Close() error { return g.body.Close() }
