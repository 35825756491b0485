package notify

import (
	"testing"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// An open that a thread repeats is counted, and nothing that happens between two of
// them is passed over.
func TestRepeatedOpensAreCounted(t *testing.T) {
	q := newQueue()
	now := uint64(0)
	add := func(kind schema.KernelKind, tid uint32, path string) int {
		now++
		return q.add(&kernel.Event{
			KernelEvent: schema.KernelEvent{Kind: kind, Count: 1, PID: 1, TID: tid, Value: path}, ID: now, Time: now,
			First: now, Last: now,
		})
	}
	for i, step := range []struct {
		kind schema.KernelKind
		tid  uint32
		path string
		how  int
	}{
		{schema.KindOpen, 1, "/a", added},
		{schema.KindOpen, 1, "/a", repeated},
		{schema.KindOpen, 1, "/a", counted},
		{schema.KindOpen, 1, "/b", added},
		{schema.KindOpen, 1, "/a", added},
		{schema.KindOpen, 2, "/a", added}, // another thread
		{schema.KindUnlink, 2, "/a", added},
		{schema.KindUnlink, 2, "/a", added}, // no open
		{schema.KindOpen, 2, "/a", added},
		{schema.KindOpen, 2, "/a", repeated},
	} {
		if how := add(step.kind, step.tid, step.path); how != step.how {
			t.Errorf("step %d: %d, want %d", i, how, step.how)
		}
	}
	events := q.take(nil)
	if len(events) != 9 {
		t.Fatalf("%d events, want 9", len(events))
	}
	if r := &events[1]; !r.Repeat || r.ID != 1 || r.Count != 2 || r.First != 2 || r.Last != 3 || r.Value != "/a" {
		t.Errorf("the repeat is %+v", r)
	}
	// What was taken is not repeated: its event is another's by now.
	if how := add(schema.KindOpen, 2, "/a"); how != added {
		t.Errorf("after take: %d, want %d", how, added)
	}
}
