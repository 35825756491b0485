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

// A name is doubtful where another task may have changed an entry on its way during the call.
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
	begun := func(e kernel.Event, t uint64) kernel.Event {
		e.Begun = t
		return e
	}
	process := func(e kernel.Event, t uint64) kernel.Event {
		e.Task.Start = t
		return e
	}
	before := []kernel.Event{renamed(ms(1990), 2, entry|changed)}
	failed := before[0]
	failed.Errno = 2
	ev := named(ms(2000), 1, entry)
	repeat := begun(named(ms(2000), 1, entry), ms(400))
	repeat.Repeat, repeat.First, repeat.Last = true, ms(500), ms(600)
	for name, c := range map[string]struct {
		changes []kernel.Event
		ev      kernel.Event
		want    bool
	}{
		"before, and nothing is known of when the call began": {before, ev, true},
		"before, in the call":         {before, begun(ev, ms(1985)), true},
		"before the call":             {before, begun(ev, ms(1995)), false},
		"two seconds before":          {[]kernel.Event{renamed(ms(900), 2, entry|changed)}, ev, false},
		"after, begun who knows when": {[]kernel.Event{renamed(ms(2010), 2, entry|changed)}, ev, true},
		"after, begun in the call": {[]kernel.Event{
			begun(renamed(ms(2010), 2, entry|changed), ms(1999))}, ev, true},
		"after the call": {[]kernel.Event{begun(renamed(ms(2010), 2, entry|changed), ms(2005))},
			ev, false},
		"by another, and then by itself": {[]kernel.Event{renamed(ms(1980), 2, entry|changed),
			renamed(ms(1990), 1, entry|changed)}, ev, true},
		"in the call, and again after it": {[]kernel.Event{begun(renamed(ms(1999), 2, entry|changed), ms(1998)),
			begun(renamed(ms(2010), 2, entry|changed), ms(2005))}, begun(ev, ms(1990)), true},
		"in the call, and by two others after it": {[]kernel.Event{begun(renamed(ms(1999), 2, entry|changed), ms(1998)),
			begun(renamed(ms(2010), 3, entry|changed), ms(2005)), begun(renamed(ms(2011), 4, entry|changed), ms(2006)),
			begun(renamed(ms(2012), 5, entry|changed), ms(2007))}, begun(ev, ms(1990)), true},
		"long before by another, and then by itself": {[]kernel.Event{renamed(ms(100), 2, entry|changed),
			renamed(ms(1999), 1, entry|changed)}, ev, false},
		"by itself":            {[]kernel.Event{renamed(ms(1990), 1, entry|changed)}, ev, false},
		"another entry":        {[]kernel.Event{renamed(ms(1990), 2, other|changed)}, ev, false},
		"a change that failed": {[]kernel.Event{failed}, ev, false},
		"by a process that began later": {[]kernel.Event{
			process(renamed(ms(2010), 2, entry|changed), ms(2005))}, ev, false},
		"before the process began": {before, process(ev, ms(1995)), false},
		"a file system of others":  {nil, named(ms(2000), 1, entry, 0), true},
		"between repeats":          {[]kernel.Event{renamed(ms(550), 2, entry|changed)}, repeat, true},
		"after the last repeat, before the repeats were reported": {[]kernel.Event{
			begun(renamed(ms(1500), 2, entry|changed), ms(1400))}, repeat, false},
		"no names":                       {before, named(ms(2000), 1), false},
		"what it changes is not its way": {before, renamed(ms(2000), 1, entry|changed), false},
	} {
		var w ways
		for i := range c.changes {
			w.note(&c.changes[i])
		}
		if got := w.doubtful(&c.ev); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	var many []kernel.Event // the first of them in the call
	for i := range uint64(3 * maxOfEntry) {
		many = append(many, begun(renamed(ms(1999+4*i), 2, entry|changed), ms(1998+4*i)))
	}
	var w ways
	for i := range many {
		w.note(&many[i])
	}
	if ev := begun(ev, ms(1990)); !w.doubtful(&ev) {
		t.Error("many changes, the first in the call, are no doubt")
	}
	if ev := begun(named(ms(1995), 1, entry), ms(1990)); w.doubtful(&ev) {
		t.Error("many changes, all after the call, are a doubt")
	}
	if ev := begun(named(ms(1999), 2, entry), ms(1990)); w.doubtful(&ev) {
		t.Error("many changes by itself are a doubt")
	}
	w = ways{}
	for i := range uint32(maxChanges + 1) {
		e := renamed(ms(1990), 2, i<<1|changed)
		w.note(&e)
	}
	if !w.doubtful(&ev) {
		t.Error("too many changes are no doubt")
	}
	if ev := named(ms(4000), 1, entry); w.doubtful(&ev) {
		t.Error("too many changes are a doubt two seconds later")
	}
	w = ways{}
	for i := range uint32(3 * maxChanges) { // the last of them in the call
		e := renamed(ms(1000+uint64(i)), 2, i<<1|changed)
		w.note(&e)
	}
	last := ms(1000 + 3*maxChanges)
	if ev := begun(named(last, 1, entry), last-1); w.doubtful(&ev) || len(w.changes) > maxChanges {
		t.Errorf("many changes over a long time are a doubt; %d entries", len(w.changes))
	}
	if ev := named(last, 1, (3*maxChanges-1)<<1); !w.doubtful(&ev) {
		t.Error("the last of many changes is no doubt")
	}
}
