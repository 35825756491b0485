package binding

import (
	"slices"
	"strings"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/schema"
)

// shells match the calls whose lines say which shell command they run with the execs of
// shells, in order and each once. A line may come when its command has ended already, so what
// a shell does waits until a line has had the time to come.
type shells struct {
	execs   []*command // that no call has, in the order of time
	calls   []*call    // that have no exec, in the order of their lines
	said    bool       // a line has said a command
	waiting []deferred // by processes of execs
}

// command is an exec of a shell with a command line.
type command struct {
	argv   string
	pid    uint32
	at     int64    // nanoseconds since run_started
	parent *command // in which it was started; nil: none
	call   *call    // which it is done for; nil: not known
}

// patience is how much later than its command the line of a call may come, in nanoseconds.
const patience = 10e9

// Bounds of what is matched. The oldest make room.
const (
	maxShells  = 256
	maxWaiting = 10_000
)

// within reports whether the command is another, or was started in it.
func (s *command) within(other *command) bool {
	for ; s != nil; s = s.parent {
		if s == other {
			return true
		}
	}
	return false
}

// claimed reports whether a call is known to have run the command, or one in which it was
// started.
func (s *command) claimed() bool {
	for ; s != nil; s = s.parent {
		if s.call != nil {
			return true
		}
	}
	return false
}

// waits reports whether a line may still come that says whose the command is.
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

// joined is a shell's arguments as one string; empty if they are not those of a shell
// with a command line. A login shell counts as any other: Codex may say that it runs one
// and start another, with the settings of one that it ran before.
func joined(argv []string) string {
	if len(argv) < 3 || argv[1] != "-c" && argv[1] != "-lc" {
		return ""
	}
	return argv[0] + "\x00" + strings.Join(argv[2:], "\x00")
}

// executed takes in an exec that no call has. c.mu is held.
func (c *Correlator) executed(e *schema.KernelEvent) {
	argv := joined(e.Argv)
	by := c.trees.of(e)
	if argv == "" || e.Truncated&schema.FieldArgv != 0 || by.shell.claimed() {
		return
	}
	if len(argv) > agentlog.MaxArgv {
		argv = "" // no line can say it; the process may become another shell
	}
	s := &command{argv: argv, pid: e.PID, at: e.TNS, parent: by.shell}
	by.shell = s
	if by.since == 0 {
		by.since = e.TNS
	}
	c.trees.put(e.PID, by)
	if c.trees.of(e).shell != s {
		return // no room: nothing would be known to be of it
	}
	c.shells.calls = slices.DeleteFunc(c.shells.calls, func(k *call) bool { return k.ended && k.end.At < e.TNS })
	for i, k := range c.shells.calls {
		if k.argv == argv && argv != "" && e.TNS >= k.start.At-patience {
			c.shells.calls = slices.Delete(c.shells.calls, i, i+1)
			c.claim(k, s)
			return
		}
	}
	if len(c.shells.execs) == maxShells {
		c.shells.execs[0].argv = "" // its processes may refer to it for long
		c.shells.execs = slices.Delete(c.shells.execs, 0, 1)
	}
	c.shells.execs = append(c.shells.execs, s)
}

// runs takes in what command a call runs that has begun. c.mu is held.
func (c *Correlator) runs(k *call, args []string) {
	argv := joined(args)
	if argv == "" || k.argv != "" || k.ended || !k.started {
		return
	}
	k.argv, c.shells.said = argv, true
	c.shells.execs = slices.DeleteFunc(c.shells.execs, func(s *command) bool {
		return s.claimed() || s.at < k.start.At-patience
	})
	for i, s := range c.shells.execs {
		if s.argv == argv && s.at <= k.start.At {
			c.shells.execs = slices.Delete(c.shells.execs, i, i+1)
			c.claim(k, s)
			return
		}
	}
	if len(c.shells.calls) == maxShells {
		c.shells.calls = slices.Delete(c.shells.calls, 0, 1)
	}
	c.shells.calls = append(c.shells.calls, k)
}

// claim makes a command a call's, which began with it, or with the shell that the same
// process was before.
func (c *Correlator) claim(k *call, s *command) {
	for s.parent != nil && s.parent.pid == s.pid {
		s = s.parent
	}
	k.shell, s.call = s, k
	if s.at < k.start.At {
		k.start = agentlog.Arrival{After: s.at - 1, At: s.at} // the exec itself is within
	}
	c.release(func(d *deferred) bool { return d.by.shell.claimed() })
}

// hold keeps an event back while a line may still say whose it is, and reports whether it does. c.mu is held.
func (c *Correlator) hold(e *schema.KernelEvent, by member, sure bool) bool {
	if !by.shell.waits(e.TNS) || e.Kind == schema.KindExec && !c.began {
		return false
	}
	if !c.shells.said { // perhaps the agent never says it
		var room [maxFound]*call
		if len(c.candidates(room[:0], by, e.TNS, e.TNS, &sure)) > 0 {
			return false
		}
	}
	if len(c.shells.waiting) == maxWaiting {
		oldest := 0
		c.release(func(*deferred) bool { oldest++; return oldest <= maxWaiting/2 })
	}
	c.shells.waiting = append(c.shells.waiting, later(e, by, sure))
	return true
}

// release judges the events that wait no longer; nil: all of them.
func (c *Correlator) release(which func(*deferred) bool) {
	c.shells.waiting = slices.DeleteFunc(c.shells.waiting, func(d deferred) bool {
		if which != nil && !which(&d) {
			return false
		}
		c.judge(&d.e, d.by, d.sure)
		return true
	})
}
