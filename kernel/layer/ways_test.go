package layer

import (
	"encoding/binary"
	"testing"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// way is what an event of those words has.
func way(words ...uint32) string {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return string(b)
}

// A name is doubtful where another task that may have run at that time changed an entry on
// its way since a second before.
func TestDirectoriesAreClaimed(t *testing.T) {
	const entry, other, changed = 8, 10, 1
	ms := func(n uint64) uint64 { return at(0) + n*1_000_000 }
	named := func(t uint64, tid uint32, words ...uint32) kernel.Event {
		e := kernel.Event{Time: t, First: t, Last: t, Task: kernel.Task{TID: tid}, Way: way(words...)}
		e.Kind = schema.KindMkdir
		return e
	}
	renamed := func(t uint64, tid uint32, words ...uint32) kernel.Event {
		e := named(t, tid, words...)
		e.Kind = schema.KindRename
		return e
	}
	before := renamed(ms(1990), 2, entry|changed)
	failed := before
	failed.Errno = 2
	twice := []kernel.Event{renamed(ms(1980), 2, entry|changed), renamed(ms(1990), 1, entry|changed)}
	ev := named(ms(2000), 1, entry)
	long := []kernel.Event{renamed(ms(900), 2, entry|changed)}
	younger := renamed(ms(2010), 2, entry|changed)
	younger.Task.Start = ms(2005)
	older := named(ms(2000), 1, entry)
	older.Task.Start = ms(1995)
	repeat := named(ms(2000), 1, entry)
	repeat.Repeat, repeat.First, repeat.Last = true, ms(500), ms(600)
	for name, c := range map[string]struct {
		changes []kernel.Event
		ev      kernel.Event
		begun   uint64
		want    bool
	}{
		"changed before":                 {[]kernel.Event{before}, ev, 0, true},
		"changed after":                  {[]kernel.Event{renamed(ms(2010), 2, entry|changed)}, ev, 0, true},
		"by another, and then by itself": {twice, ev, 0, true},
		"two seconds before":             {long, ev, 0, false},
		"by itself":                      {[]kernel.Event{renamed(ms(1990), 1, entry|changed)}, ev, 0, false},
		"another entry":                  {[]kernel.Event{renamed(ms(1990), 2, other|changed)}, ev, 0, false},
		"a change that failed":           {[]kernel.Event{failed}, ev, 0, false},
		"by a process that began later":  {[]kernel.Event{younger}, ev, 0, false},
		"before the process began":       {[]kernel.Event{before}, older, 0, false},
		"before another call of it":      {[]kernel.Event{before}, ev, ms(1995), false},
		"a file system of others":        {nil, named(ms(2000), 1, entry, 0), 0, true},
		"between repeats":                {[]kernel.Event{renamed(ms(550), 2, entry|changed)}, repeat, 0, true},
		"no names":                       {[]kernel.Event{before}, named(ms(2000), 1), 0, false},
		"what it changes is not its way": {[]kernel.Event{before}, renamed(ms(2000), 1, entry|changed), 0, false},
	} {
		var w ways
		for i := range c.changes {
			w.note(&c.changes[i])
		}
		if got := w.doubtful(&c.ev, c.begun); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	var w ways
	for i := range uint32(maxChanges + 1) {
		e := renamed(ms(1990), 2, i<<1|changed)
		w.note(&e)
	}
	if !w.doubtful(&ev, 0) {
		t.Error("too many changes are no doubt")
	}
	if ev := named(ms(4000), 1, entry); w.doubtful(&ev, 0) {
		t.Error("too many changes are a doubt two seconds later")
	}
}
