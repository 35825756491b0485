package binding

import "github.com/assay-run/assay-run/schema"

// trees are the processes that execute the calls of clients such as "assay-run mcp": those that called Tree, and
// their descendants.
type trees struct {
	in    map[uint32]member
	ended []uint32 // a ring once full, since late events of these processes may come
	next  int
}

// member says which tree and command a process belongs to.
type member struct {
	root  uint32   // 0: no tree
	shell *command // the innermost shell command that it belongs to; nil: none
	since int64    // when this became known, in nanoseconds since run_started
	ended bool
}

// Limits of the trees. A process beyond them is in no tree, so no call gets its events.
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

// see follows forks and exits. A process's fork event may come after the process itself has called.
func (t *trees) see(e *schema.KernelEvent) {
	switch e.Kind {
	case schema.KindFork, schema.KindJoin:
		if old, known := t.in[e.PID]; known && e.TNS >= old.since && (old.ended || e.Kind == schema.KindFork) {
			delete(t.in, e.PID) // its number is used again
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

// forget remembers an ended process, and drops the oldest one.
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

// of returns the tree and command of an event's process.
func (t *trees) of(e *schema.KernelEvent) member { return t.in[e.PID] }
