package binding

import "github.com/assay-run/assay-run/schema"

// trees are the processes that do the calls of a client with processes of its own,
// as "assay-run mcp" has them: those that called Tree, and what descends from them.
type trees struct {
	in    map[uint32]member
	ended []uint32 // a ring, once full: their repeats may still come
	next  int
}

// member is a process of a tree.
type member struct {
	root  uint32   // 0: none
	shell *command // the innermost shell command that it is part of; nil: none
	since int64    // when it was known, in nanoseconds since run_started
	ended bool
}

// Bounds of the trees. A process that has no room is in none, so that no call gets
// what it does.
const (
	maxMembers  = 1 << 16
	maxTreeEnds = 4096
)

func (t *trees) put(pid uint32, m member) {
	if t.in == nil {
		t.in = map[uint32]member{}
	}
	if len(t.in) < maxMembers {
		t.in[pid] = m
	}
}

// see follows who forks and who ends. The fork of a process may come after what the
// process itself has told.
func (t *trees) see(e *schema.KernelEvent) {
	switch e.Kind {
	case schema.KindFork, schema.KindJoin:
		if old, known := t.in[e.PID]; known && e.TNS >= old.since && (old.ended || e.Kind == schema.KindFork) {
			delete(t.in, e.PID) // another has its number now
		}
		parent, known := t.in[e.PPID]
		if _, root := t.in[e.PID]; known && !root {
			t.put(e.PID, member{root: parent.root, shell: parent.shell, since: e.TNS})
		}
	case schema.KindExit:
		if m, known := t.in[e.PID]; known {
			m.ended = true
			t.in[e.PID] = m
			t.forget(e.PID)
		}
	}
}

// forget makes room for an ended process by the oldest of them.
func (t *trees) forget(pid uint32) {
	if len(t.ended) < maxTreeEnds {
		t.ended = append(t.ended, pid)
		return
	}
	if t.in[t.ended[t.next]].ended {
		delete(t.in, t.ended[t.next])
	}
	t.ended[t.next] = pid
	t.next = (t.next + 1) % maxTreeEnds
}

// of is what trees an event's process is in.
func (t *trees) of(e *schema.KernelEvent) member { return t.in[e.PID] }
