package facts

import (
	"iter"

	"github.com/assay-run/assay-run/schema"
)

// Sessions follows the processes that join a cgroup from outside, as each docker exec joins that of a container. Such a
// process and its descendants are a session. The zero value is ready to use.
type Sessions struct {
	of map[uint64]member // by the process instance; those that ended stay, since a repeat's line can follow
	n  int
}

// member is a process of a session.
type member struct {
	pid     uint32
	session int
	ended   bool
}

// Read takes the next line of a kernel layer, and returns the session of the process that acted: sessions count from 0,
// in the order in which they joined. It returns -1 for none.
func (s *Sessions) Read(e *schema.KernelEvent) int {
	if s.of == nil {
		s.of = map[uint64]member{}
	}
	of, known := s.of[e.ExecID]
	switch e.Kind {
	case schema.KindJoin:
		of, known = member{pid: e.PID, session: s.n}, true
		s.n++
		s.of[e.ExecID] = of
	case schema.KindFork, schema.KindExec:
		if by, is := s.of[e.ParentExecID]; is {
			of, known = member{pid: e.PID, session: by.session}, true
			s.of[e.ExecID] = of
		}
		if e.Kind == schema.KindExec {
			s.end(e.ParentExecID)
		}
	case schema.KindExit:
		s.end(e.ExecID)
	}
	if !known {
		return -1
	}
	return of.session
}

// end notes that an instance ended.
func (s *Sessions) end(exec uint64) {
	if of, known := s.of[exec]; known {
		of.ended = true
		s.of[exec] = of
	}
}

// Alive yields the processes that live, with their sessions, in no order.
func (s *Sessions) Alive() iter.Seq2[uint32, int] {
	return func(yield func(pid uint32, session int) bool) {
		for _, m := range s.of {
			if !m.ended && !yield(m.pid, m.session) {
				return
			}
		}
	}
}
