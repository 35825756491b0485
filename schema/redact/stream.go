package redact

import (
	"io"
)

// Writer takes the secrets out of what is written on its way to w, also those
// that are split over several writes. It holds back only what may be the
// beginning of a secret, and gives that out when the next bytes or Close show
// what it is. It is not safe for concurrent use.
func (r *Redactor) Writer(field string, w io.WriteCloser) io.WriteCloser {
	if r == nil {
		return w
	}
	return &stream{r: r, field: field, w: w}
}

type stream struct {
	r     *Redactor
	field string
	w     io.WriteCloser
	held  []byte
	taken int64 // bytes that Write accepted
	given int64 // bytes that w accepted
}

// Grown is by how many bytes what came out is longer than what Write accepted,
// after Close. It is negative where it is shorter.
func (s *stream) Grown() int64 { return s.given - s.taken }

// maxHeld bounds what is held back beyond the longest known secret, in bytes.
const maxHeld = maxPEM + maxToken

func (s *stream) Write(b []byte) (int, error) {
	whole := b
	if len(s.held) > 0 {
		whole = append(s.held, b...)
		s.held = nil
	}
	forms := s.r.matcher.Load().text
	held := max(forms.held(whole), heldShape(whole), heldMarked(whole))
	held = min(held, forms.longest+maxHeld)
	clean, used := s.r.upTo(len(whole)-held, s.field, whole, false)
	s.held = append([]byte(nil), whole[used:]...)
	if err := s.put(clean); err != nil {
		return 0, err
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

// Close gives out what was held back and closes the writer below.
func (s *stream) Close() error {
	last := s.r.Text(s.field, s.held)
	// A stream that was cut may end in the first part of a secret.
	if n := s.r.matcher.Load().text.held(last); n >= MinSecret-2 {
		last = append(append([]byte(nil), last[:len(last)-n]...), "<redacted:cut>"...)
		s.r.count("cut", s.field)
	}
	err := s.put(last)
	s.held = nil
	if cerr := s.w.Close(); err == nil {
		err = cerr
	}
	return err
}
