package redact

import "bytes"

// Pieces takes the secrets out of a text that comes in pieces, and gives it out in
// pieces: what may be the beginning of a secret comes with the next one. It is not safe
// for concurrent use.
type Pieces struct {
	in  *stream
	out held
}

type held struct{ bytes.Buffer }

func (h *held) Close() error { return nil }

// Pieces begins a text. Of a nil Redactor it is nil, and leaves everything.
func (r *Redactor) Pieces(field string) *Pieces {
	if r == nil {
		return nil
	}
	p := &Pieces{}
	p.in = &stream{r: r, field: field, w: &p.out}
	return p
}

// Next takes the next piece and returns what is certain now.
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
