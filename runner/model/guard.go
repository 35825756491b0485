package model

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// errKey tells of an answer with the key in it.
var errKey = errors.New("the answer has the key in it")

// guard keeps the provider's key out of an answer, and notes how the answer ends.
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

// guarded is a body that ends before a key. Bytes that may be the beginning of the key wait for those behind them.
type guarded struct {
	body    io.ReadCloser
	trailer func() http.Header
	key     []byte // empty: nothing is looked for
	x       *exchange
	held    []byte // read, and not given
	ready   int    // so many of them may be given
	err     error  // after them
}

func (g *guarded) Read(b []byte) (int, error) {
	if len(g.key) == 0 {
		n, err := g.body.Read(b)
		g.ended(err)
		return n, err
	}
	for g.ready == 0 && g.err == nil {
		g.fill(len(b))
	}
	if g.ready == 0 {
		return 0, g.err
	}
	n := copy(b, g.held[:g.ready])
	g.held, g.ready = g.held[n:], g.ready-n
	return n, nil
}

// fill reads once, and sees what may be given.
func (g *guarded) fill(most int) {
	buf := make([]byte, len(g.held), len(g.held)+most)
	copy(buf, g.held)
	n, err := g.body.Read(buf[len(buf):cap(buf)])
	g.held = buf[:len(buf)+n]
	if at := bytes.Index(g.held, g.key); at >= 0 {
		g.held, g.ready, g.err = g.held[:at], at, errKey
		g.x.failure = schema.ModelErrorKey
		return
	}
	if g.err = err; err == nil {
		g.ready = len(g.held) - beginning(g.held, g.key)
		return
	}
	if err == io.EOF && inHeader(g.trailer(), string(g.key)) {
		g.err = errKey
		g.x.failure = schema.ModelErrorKey
	}
	g.ready = len(g.held) // no more comes
	g.ended(err)
}

// beginning is how many bytes at the end of b are the beginning of key.
func beginning(b, key []byte) int {
	for n := min(len(b), len(key)-1); n > 0; n-- {
		if bytes.HasSuffix(b, key[:n]) {
			return n
		}
	}
	return 0
}

// ended notes how the provider's answer ended.
func (g *guarded) ended(err error) {
	g.x.whole = g.x.whole || err == io.EOF
	if err != nil && err != io.EOF && g.x.failure == "" {
		g.x.failure = schema.ModelErrorBroken
	}
}

func (g *guarded) Close() error { return g.body.Close() }
