package facts

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// A process belongs to the session of its parent, also in lines that follow its end.
func TestSessionsAreDescent(t *testing.T) {
	s := &Sessions{}
	for i, c := range []struct {
		kind         schema.KernelKind
		pid          uint32
		exec, parent uint64
		want         int
	}{
		{schema.KindJoin, 10, 1, 0, 0},
		{schema.KindExec, 10, 2, 1, 0},
		{schema.KindJoin, 20, 3, 0, 1},
		{schema.KindFork, 21, 4, 3, 1},
		{schema.KindExec, 21, 5, 4, 1},
		{schema.KindExit, 20, 3, 0, 1},
		{schema.KindFork, 22, 6, 5, 1},
		{schema.KindExit, 22, 6, 0, 1},
		{schema.KindWrite, 22, 6, 0, 1}, // a repeat
		{schema.KindOpen, 30, 9, 0, -1},
	} {
		got := s.Read(&schema.KernelEvent{Kind: c.kind, PID: c.pid, ExecID: c.exec, ParentExecID: c.parent})
		if got != c.want {
			t.Errorf("line %d is of session %d, want %d", i, got, c.want)
		}
	}
	if d := cmp.Diff(map[uint32]int{10: 0, 21: 1}, maps.Collect(s.Alive())); d != "" {
		t.Error(d)
	}
}
