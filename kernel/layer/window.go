package layer

import (
	"sort"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// held is a copy of an event that waits for its place in time.
type held struct {
	ev  kernel.Event
	buf []byte   // what ev's slices point into
	ptr [][]byte // what ev.Argv and ev.EnvKeys are
}

// keep copies src with all it refers to.
func (h *held) keep(src *kernel.Event) {
	h.ev = *src
	n := len(src.Path) + len(src.Path2) + len(src.Given) + len(src.Given2) + len(src.Name) + len(src.Exe) +
		len(src.Cwd) + len(src.Filename) +
		len(src.Interp) + len(src.Place) + len(src.ToolCallID) + len(src.Traceparent) + len(src.Payload)
	for _, a := range src.Argv {
		n += len(a)
	}
	for _, a := range src.EnvKeys {
		n += len(a)
	}
	if cap(h.buf) < n {
		h.buf = make([]byte, 0, n+64)
	}
	b := h.buf[:0] // never grows below: every slice stays where it is
	one := func(p *[]byte) {
		if len(*p) == 0 {
			*p = nil
			return
		}
		i := len(b)
		b = append(b, *p...)
		*p = b[i:len(b):len(b)]
	}
	e := &h.ev
	one(&e.Path)
	one(&e.Given)
	one(&e.Place)
	if src.Kind != schema.KindOpen {
		for _, p := range []*[]byte{&e.Path2, &e.Given2, &e.Name, &e.Exe, &e.Cwd, &e.Filename, &e.Interp, &e.ToolCallID,
			&e.Traceparent, &e.Payload} {
			one(p)
		}
	}
	h.ptr = h.ptr[:0]
	for _, a := range src.Argv {
		one(&a)
		h.ptr = append(h.ptr, a)
	}
	for _, a := range src.EnvKeys {
		one(&a)
		h.ptr = append(h.ptr, a)
	}
	if src.Argv != nil {
		e.Argv = h.ptr[:len(src.Argv):len(src.Argv)]
	}
	if src.EnvKeys != nil {
		e.EnvKeys = h.ptr[len(src.Argv):]
	}
	h.buf = b
}

// window holds events, ordered by time, until no earlier one is to be
// expected. Events come nearly in order, so a new one finds its place near the
// end.
type window struct {
	held []*held // from first on, by ev.Time, equal times in order of arrival
	// first is where the held ones begin; the room before it is reused.
	first int
	bytes int // of all held buf
	free  []*held
}

func (w *window) len() int { return len(w.held) - w.first }

func (w *window) oldest() *held { return w.held[w.first] }

// add takes a copy of src in, as of time t.
func (w *window) add(src *kernel.Event, t uint64) {
	var h *held
	if n := len(w.free); n > 0 {
		h = w.free[n-1]
		w.free = w.free[:n-1]
	} else {
		h = new(held)
	}
	h.keep(src)
	h.ev.Time = t
	w.bytes += cap(h.buf)
	if w.first > 0 && len(w.held) == cap(w.held) {
		n := copy(w.held, w.held[w.first:])
		clear(w.held[n:])
		w.held, w.first = w.held[:n], 0
	}
	w.held = append(w.held, h)
	live := w.held[w.first:]
	n := len(live) - 1
	if n == 0 || live[n-1].ev.Time <= t {
		return
	}
	i := sort.Search(n, func(i int) bool { return live[i].ev.Time > t })
	copy(live[i+1:], live[i:n])
	live[i] = h
}

// pop takes the oldest out; give it back with done.
func (w *window) pop() *held {
	h := w.held[w.first]
	w.held[w.first] = nil
	w.first++
	if w.first == len(w.held) {
		w.held, w.first = w.held[:0], 0
	}
	w.bytes -= cap(h.buf)
	return h
}

// done takes a popped one back for the next event. Large buffers (a long argv)
// are let go, so that they don't add up over the slots.
func (w *window) done(h *held) {
	if cap(h.buf) > 4<<10 {
		h.buf = nil
	}
	if cap(h.ptr) > 256 {
		h.ptr = nil
	}
	w.free = append(w.free, h)
}
