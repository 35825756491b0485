package layer

import (
	"time"

	"github.com/assay-run/assay-run/kernel"
)

// ways knows which entries of directories were made to lead elsewhere, when and by whom.
// An event's names are looked up again when its call has returned: where another task
// changed an entry on the way meanwhile, they may be those of other files.
type ways struct {
	// changes has the last change of each entry, and the last by another task than that.
	changes map[uint32][2]change
	// forgotten is the time of the last change that is not known any more.
	forgotten uint64
}

// change is one at a time, by a task of a process that began at start.
type change struct {
	at, start uint64
	tid       uint32
}

const (
	// nearly is how long before a call a change counts: no call takes as long on its way.
	nearly = uint64(time.Second)
	// maxChanges bounds the changes that are known.
	maxChanges = 1 << 16
)

// note keeps what ev changed.
func (w *ways) note(ev *kernel.Event) {
	if len(ev.Way) == 0 || ev.Errno != 0 || ev.Attempted {
		return
	}
	for entry, how := range ev.Ways() {
		if how != kernel.Changed {
			continue
		}
		if w.changes == nil {
			w.changes = make(map[uint32][2]change)
		}
		known := w.changes[entry]
		if known[0].tid != ev.Task.TID {
			known[1] = known[0]
		}
		known[0] = change{max(ev.Time, known[0].at), ev.Task.Start, ev.Task.TID}
		w.changes[entry] = known
		if len(w.changes) > maxChanges {
			w.forgotten = w.newest()
			clear(w.changes)
		}
	}
}

func (w *ways) newest() (t uint64) {
	for _, c := range w.changes {
		t = max(t, c[0].at)
	}
	return t
}

// doubtful reports whether the names of ev may have led elsewhere while the kernel used
// them: another task changed an entry on their way since a second before it, or others
// than the host's tasks could. The call is known to have begun after the time begun.
func (w *ways) doubtful(ev *kernel.Event, begun uint64) bool {
	if len(ev.Way) == 0 {
		return false
	}
	// The time of the last of several can be too early, by up to a tick of the kernel's timer.
	since, until := ev.First-min(nearly, ev.First), ev.Last+uint64(10*time.Millisecond)
	if !ev.Repeat {
		until = ev.Time
	}
	// A process that began after the call changed it after that.
	since = max(since, begun, ev.Task.Start)
	after := func(t uint64) bool { return t > since }
	for entry, how := range ev.Ways() {
		if how != kernel.Through {
			continue
		}
		if entry == 0 || after(w.forgotten) {
			return true
		}
		for _, c := range w.changes[entry] {
			if c.tid != ev.Task.TID && after(c.at) && c.start < until {
				return true
			}
		}
	}
	return false
}
