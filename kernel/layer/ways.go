package layer

import (
	"slices"
	"time"

	"github.com/assay-run/assay-run/kernel"
)

// ways knows when and by whom directory entries were changed. The observer looks an event's names up again after the
// call. If another task changed an entry on their way meanwhile, the names may lead to other files.
type ways struct {
	// changes has the last changes of each entry, the oldest first.
	changes map[uint32][]change
	count   int // of all of them
	// forgotten is when the last of the changes ended that were dropped for want of room.
	forgotten uint64
}

// change is one change by the task tid, or several by any tasks if tid is 0, which began after from and ended by until.
type change struct {
	from, until uint64
	tid         uint32
}

// and is both changes in one.
func (c change) and(d change) change {
	if c.tid != d.tid {
		d.tid = 0
	}
	d.from, d.until = min(c.from, d.from), max(c.until, d.until)
	return d
}

const (
	// nearly is how long a call takes at most if its begin is unknown.
	nearly = uint64(time.Second)
	// maxChanges bounds the known changes, maxOfEntry those of one entry.
	maxChanges, maxOfEntry = 1 << 16, 64
)

// during is the longest time in which the call of ev can have run.
func during(ev *kernel.Event) (from, until uint64) {
	from, until = ev.First-min(nearly, ev.First), ev.Time
	if ev.Repeat {
		until = ev.Last // not Time, which is when the repeats were reported
	}
	return max(from, ev.Begun, ev.Task.Start), until
}

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
			w.changes = make(map[uint32][]change)
		}
		c := change{tid: ev.Task.TID}
		c.from, c.until = during(ev)
		known := w.changes[entry]
		if len(known) == maxOfEntry {
			known[1] = known[0].and(known[1])
			known = slices.Delete(known, 0, 1)
			w.count--
		}
		w.changes[entry] = append(known, c)
		if w.count++; w.count > maxChanges {
			w.forget(c.until)
		}
	}
}

// forget drops the changes that ended before any call that is still to come can have begun. If too many are left, it
// drops all.
func (w *ways) forget(now uint64) {
	w.count = 0
	newest := now
	for entry, known := range w.changes {
		known = slices.DeleteFunc(known, func(c change) bool { return c.until+2*nearly < now })
		for _, c := range known {
			newest = max(newest, c.until)
		}
		if w.changes[entry] = known; len(known) == 0 {
			delete(w.changes, entry)
		}
		w.count += len(known)
	}
	if w.count > maxChanges/2 {
		w.forgotten, w.count = newest, 0
		clear(w.changes)
	}
}

// doubtful reports whether the names of ev may have led elsewhere during the call: another task changed an entry on
// their way, or others than the host's tasks could have.
func (w *ways) doubtful(ev *kernel.Event) bool {
	if len(ev.Way) == 0 {
		return false
	}
	from, until := during(ev)
	for entry, how := range ev.Ways() {
		if how != kernel.Through {
			continue
		}
		if entry == 0 || w.forgotten > from {
			return true
		}
		for _, c := range w.changes[entry] {
			if c.tid != ev.Task.TID && c.until > from && c.from < until {
				return true
			}
		}
	}
	return false
}
