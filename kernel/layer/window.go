package layer

import (
	"sort"
	"time"

	"github.com/assay-run/assay-run/kernel"
)

// held is an event that waits for its place in time.
type held struct {
	ev   kernel.Event
	size int // of what ev refers to, in bytes
}

// maxHeldBytes bounds what held events refer to: paths, long argvs.
const maxHeldBytes = 4 << 20

// size is how many bytes an event refers to.
func size(ev *kernel.Event) int {
	n := len(ev.Value) + len(ev.Target) + len(ev.Given) + len(ev.TargetGiven) + len(ev.Way) + len(ev.Payload)
	for _, list := range [][]string{ev.Argv, ev.EnvKeys} {
		for _, s := range list {
			n += len(s) + 16
		}
	}
	return n
}

// window holds events, ordered by time, until no earlier one is to be
// expected. Events come nearly in order, so a new one finds its place near the
// end.
type window struct {
	wait uint64 // how long an event is held, in nanoseconds
	most int    // how many are held

	newest   uint64 // latest time seen
	released uint64 // latest time handed out
	late     uint64 // how many came after their place was handed out

	held []*held // from first on, by ev.Time, equal times in order of arrival
	// first is where the held ones begin; the room before it is reused.
	first int
	bytes int // of all sizes
	free  []*held
}

func newWindow(wait time.Duration, most int) *window { return &window{wait: uint64(wait), most: most} }

func (w *window) len() int { return len(w.held) - w.first }

// advance notes that it is now at least that time.
func (w *window) advance(now uint64) { w.newest = max(w.newest, now) }

// passed reports whether later events than one of time t have been handed out.
func (w *window) passed(t uint64) bool { return t < w.released }

// place is the time at which what is found now takes its place: after what was handed out, and after no later event.
func (w *window) place(now uint64) uint64 { return max(w.released, min(now, w.newest)) }

// due reports whether the oldest one is to be handed out now.
func (w *window) due(now uint64) bool {
	return w.len() > 0 && (w.len() > w.most || w.bytes > maxHeldBytes || w.held[w.first].ev.Time+w.wait <= now)
}

// add takes a copy of an event, and reports whether it did: it does not if later ones have been handed out. A repeat
// takes its place where its count is given out.
func (w *window) add(src *kernel.Event) bool {
	t := src.Time
	if src.Repeat {
		t = max(t, w.newest)
	}
	w.advance(t)
	if w.passed(t) {
		w.late++
		return false
	}
	w.insert(src, t)
	return true
}

// insert takes a copy of src in, as of time t.
func (w *window) insert(src *kernel.Event, t uint64) {
	var h *held
	if n := len(w.free); n > 0 {
		h = w.free[n-1]
		w.free = w.free[:n-1]
	} else {
		h = new(held)
	}
	h.ev, h.size = *src, size(src)
	h.ev.Time = t
	w.bytes += h.size
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
	w.bytes -= h.size
	w.released = max(w.released, h.ev.Time)
	return h
}

// done takes a popped one back for the next event.
func (w *window) done(h *held) {
	h.ev = kernel.Event{} // so that a long argv is not kept
	w.free = append(w.free, h)
}
