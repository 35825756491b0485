package binding

import (
	"strings"
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
