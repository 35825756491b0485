package redact

import (
	"bytes"
	"io"
)

type stream struct {
	r     *Redactor
	field string
	w     io.WriteCloser
	buf   []byte // what was not written to w yet
	held  int    // of buf, when it was last looked at
	taken int64  // bytes that Write accepted
	given int64  // bytes that w accepted
}

// Grown returns, after Close, how many more bytes were written to w than Write accepted. It is negative if they are
// fewer.
func (s *stream) Grown() int64 { return s.given - s.taken }

// maxHeld bounds what is held back beyond the longest known secret, in bytes.
const maxHeld = maxPEM + maxToken

func (s *stream) Write(b []byte) (int, error) {
	s.buf = append(s.buf, b...)
	// Where much is held back it is looked at again only when much has come, so
	// that many short writes cost no more than one long one.
	if len(s.buf)-s.held >= s.held/4 {
		known := s.r.matcher.Load()
		s.held = max(known.held(s.buf), known.heldFolded(s.buf), heldShape(s.buf), heldMarked(s.buf))
		if len(s.r.rules) > 0 {
			s.held = max(s.held, heldRules(s.buf))
		}
		s.held = min(s.held, maxFold*known.longest+maxHeld)
		clean, used := s.r.upTo(len(s.buf)-s.held, pass{field: s.field}, s.buf)
		if err := s.put(clean); err != nil {
			return 0, err
		}
		s.buf = append(s.buf[:0], s.buf[used:]...)
		s.held = len(s.buf)
	}
	s.taken += int64(len(b))
	return len(b), nil
}

func (s *stream) put(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	n, err := s.w.Write(b)
	s.given += int64(n)
	return err
}

// Close writes what was held back and closes the writer below. A stream that was
// cut may end in the first part of a secret, which is cut off.
func (s *stream) Close() error {
	last := s.r.Text(s.field, s.buf)
	part := 0
	known := s.r.matcher.Load()
	if n := max(known.held(last), known.heldFolded(last)); n >= MinSecret-2 {
		part = n
	}
	if n := heldShape(last); n >= shortestPart {
		part = max(part, n)
	}
	if v := cutPassword().FindSubmatchIndex(last); v != nil {
		part = max(part, len(last)-v[2])
	}
	if part > 0 {
		last = append(append([]byte(nil), last[:len(last)-part]...), open+ruleCut+">"...)
		s.r.count(ruleCut, s.field)
	}
	err := s.put(last)
	s.buf, s.held = nil, 0
	if cerr := s.w.Close(); err == nil {
		err = cerr
	}
	return err
}

// Pieces removes the secrets from a text that comes in pieces, and returns it in pieces. What may be the beginning
// of a secret is returned with the next piece. It is not safe
// for concurrent use.
type Pieces struct {
	in  *stream
	out held
}

// Next takes the next piece and returns the text that is certain by now.
func (p *Pieces) Next(b []byte) []byte {
	if p == nil {
		return b
	}
	p.out.Reset()
	_, _ = p.in.Write(b) // to memory: it cannot fail
	return bytes.Clone(p.out.Bytes())
}

// End returns the rest.
func (p *Pieces) End() []byte {
	if p == nil {
		return nil
	}
	p.out.Reset()
	_ = p.in.Close()
	return bytes.Clone(p.out.Bytes())
}

type held struct{ bytes.Buffer }

func (h *held) Close() error { return nil }
