package binding

import (
	"strings"
)

// shells matches the calls whose lines name a shell command with the execs of shells, in order and each once. A line
// may come after its command has ended, so the events of a shell wait until a line had enough time to come.
type shells struct {
	execs   []*command // without a call, in order of time
	calls   []*call    // without an exec, in the order of their lines
	said    bool       // a line has named a command
	waiting []deferred // by processes of execs
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
