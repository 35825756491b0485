package binding

import (
	"slices"
	"strings"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
)

// shells matches the calls whose lines name a shell command with the execs of shells, in order and each once. A line
// may come after its command has ended, so the events of a shell wait until a line had enough time to come.
type shells struct {
	execs   []*command // without a call, in order of time
	calls   []*call    // without an exec, in the order of their lines
	said    bool       // a line has named a command
	waiting waiting    // by processes of execs
	windows *windows
}

func newShells(windows *windows, judge *judge) *shells {
	return &shells{waiting: waiting{judge: judge}, windows: windows}
}

// executed handles an exec without a call.
func (s *shells) executed(e *schema.KernelEvent, trees *trees) {
	argv := joined(e.Argv)
	by := trees.of(e)
	if argv == "" || facts.ArgumentsOf(e) == facts.Cut || by.shell.claimed() {
		return
	}
	if len(argv) > agentlog.MaxArgv {
		argv = "" // no line can name it; the process may become another shell
	}
	now := &command{argv: argv, pid: e.PID, at: e.TNS, parent: by.shell}
	by.shell = now
	if by.since == 0 {
		by.since = e.TNS
	}
	trees.put(e.PID, by)
	if trees.of(e).shell != now {
		return // no room, so nothing could be attributed to it
	}
	s.calls = slices.DeleteFunc(s.calls, func(k *call) bool { return k.ended && k.end.At < e.TNS })
	for i, k := range s.calls {
		if k.argv == argv && argv != "" && e.TNS >= k.start.At-patience {
			s.calls = slices.Delete(s.calls, i, i+1)
			s.claim(k, now)
			return
		}
	}
	if len(s.execs) == maxShells {
		s.execs[0].argv = "" // its processes may refer to it for a long time
		s.execs = slices.Delete(s.execs, 0, 1)
	}
	s.execs = append(s.execs, now)
}

// runs handles the command of a call that has begun.
func (s *shells) runs(k *call, args []string) {
	argv := joined(args)
	if argv == "" || k.argv != "" || k.ended || !k.started {
		return
	}
	k.argv, s.said = argv, true
	s.execs = slices.DeleteFunc(s.execs, func(x *command) bool {
		return x.claimed() || x.at < k.start.At-patience
	})
	for i, x := range s.execs {
		if x.argv == argv && x.at <= k.start.At {
			s.execs = slices.Delete(s.execs, i, i+1)
			s.claim(k, x)
			return
		}
	}
	if len(s.calls) == maxShells {
		s.calls = slices.Delete(s.calls, 0, 1)
	}
	s.calls = append(s.calls, k)
}

// claim assigns a command to a call. The call began with the command, or with the shell that the same process was
// before.
func (s *shells) claim(k *call, x *command) {
	for x.parent != nil && x.parent.pid == x.pid {
		x = x.parent
	}
	k.shell, x.call = x, k
	if x.at < k.start.At {
		k.start = agentlog.Arrival{After: x.at - 1, At: x.at} // the exec itself is inside
	}
	s.waiting.release(func(d *deferred) bool { return d.by.shell.claimed() })
}

// hold keeps an event back while a line may still say whose it is, and reports whether it did. sure means that
// everything is known about its time.
func (s *shells) hold(e *schema.KernelEvent, by member, sure bool) bool {
	if !by.shell.waits(e.TNS) {
		return false
	}
	if !s.said { // the agent may never name commands
		var room [maxFound]*call
		if len(s.windows.candidates(room[:0], by, e.TNS, e.TNS, &sure)) > 0 {
			return false
		}
	}
	if len(s.waiting.events) == maxWaiting {
		oldest := 0
		s.waiting.release(func(*deferred) bool { oldest++; return oldest <= maxWaiting/2 })
	}
	s.waiting.events = append(s.waiting.events, later(e, by, sure))
	return true
}

// command is an exec of a shell with a command line.
type command struct {
	argv   string
	pid    uint32
	at     int64    // nanoseconds since run_started
	parent *command // the command that started it; nil: none
	call   *call    // the call that runs it; nil: not known
}

// patience is how much later than its command the line of a call may come, in nanoseconds.
const patience = 10e9

// Limits of the matching. The oldest are dropped.
const (
	maxShells  = 256
	maxWaiting = 10_000
)

// within reports whether the command is other, or was started inside it.
func (s *command) within(other *command) bool {
	for ; s != nil; s = s.parent {
		if s == other {
			return true
		}
	}
	return false
}

// claimed reports whether a call is known to have run the command, or one that it was started in.
func (s *command) claimed() bool {
	for ; s != nil; s = s.parent {
		if s.call != nil {
			return true
		}
	}
	return false
}

// waits reports whether a line may still come that says whose command this is.
func (s *command) waits(t int64) bool {
	if s.claimed() {
		return false
	}
	for ; s != nil; s = s.parent {
		if t <= s.at+patience {
			return true
		}
	}
	return false
}

// joined returns a shell's arguments as one string; empty if they are not those of a shell with a command line. A
// login shell counts as any other: Codex may report one and start another, with the settings of a login shell that it
// ran before.
func joined(argv []string) string {
	if len(argv) < 3 || argv[1] != "-c" && argv[1] != "-lc" {
		return ""
	}
	return argv[0] + "\x00" + strings.Join(argv[2:], "\x00")
}
