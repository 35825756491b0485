package sandbox

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox/internal/auditlog"
)

// logABI is the first version of Landlock that reports refusals to the audit.
const logABI = 7

// Refusal is an access that Landlock refused, as the host's audit reports it.
type Refusal struct {
	Attempt
	// Time is when the audit first reported it, in nanoseconds of CLOCK_BOOTTIME.
	Time uint64
}

// Refusals returns what Landlock refused the command, without repeats, if Options.Audit
// is set and the host's auditing is on and can be read. lost counts the refusals without
// a record. Call it after the sandbox is closed.
func (s *Sandbox) Refusals() (list []Refusal, lost uint64) { return s.refusals, s.refusalsLost }

// listenToAudit opens the audit's log, if there is one and it is wanted.
func (s *Sandbox) listenToAudit() {
	if abi, err := LandlockABI(); !s.wantAudit || s.audit != nil || err != nil || abi < logABI {
		return
	}
	s.audit, _ = auditlog.Open() // nil if auditing is off, or this process may not listen
}

// readAudit reads what the audit reported, and closes it.
func (s *Sandbox) readAudit() {
	if s.audit == nil {
		return
	}
	got := s.audit.Close()
	for r, at := range got.Records {
		s.refusals = append(s.refusals, Refusal{refused(r), at})
	}
	slices.SortFunc(s.refusals, func(a, b Refusal) int { return cmp.Compare(a.Time, b.Time) })
	s.refusalsLost = got.Lost
}

// changes are the rights that a change of a file or a name needs.
var changes = []string{"fs.write_file", "fs.truncate", "fs.ioctl_dev", "fs.change_topology"}

// refused returns the operation that a record is about. For an operation that makes or
// removes a name, the record has the directory, whose path then ends with a slash.
func refused(r auditlog.Record) Attempt {
	blockers := strings.Split(r.Blockers, ",")
	has := func(is func(string) bool) bool { return slices.ContainsFunc(blockers, is) }
	name := func(b string) bool {
		return strings.HasPrefix(b, "fs.make_") || strings.HasPrefix(b, "fs.remove_") || b == "fs.refer"
	}
	a := Attempt{Op: OpRead, Target: r.Path, Errno: int(unix.EACCES)}
	switch {
	case has(func(b string) bool { return b == "net.bind_tcp" }):
		a.Op, a.Target = OpBind, r.Address
	case has(func(b string) bool { return b == "net.connect_tcp" }):
		a.Op, a.Target = OpConnect, r.Address
	case has(func(b string) bool { return b == "scope.abstract_unix_socket" }):
		a.Op, a.Target = OpConnect, "unix:@"+r.Abstract
	case has(func(b string) bool { return b == "scope.signal" }):
		a.Op, a.Target = OpSignal, process(r)
	case has(func(b string) bool { return b == "ptrace" }):
		a.Op, a.Target = OpPtrace, process(r)
	case has(name):
		a.Op, a.Target = OpWrite, strings.TrimSuffix(r.Path, "/")+"/"
	case has(func(b string) bool { return slices.Contains(changes, b) }):
		a.Op = OpWrite
	case has(func(b string) bool { return b == "fs.execute" }):
		a.Op = OpExec
	}
	return a
}

func process(r auditlog.Record) string { return fmt.Sprintf("process %d (%s)", r.PID, r.Comm) }

// ownDomain tells the audit log which processes may make the command's Landlock domain: the
// process that was started, which becomes the command where there is no PID namespace, and
// the command, which restricts itself.
func (s *Sandbox) ownDomain(started *os.Process, command int) {
	if s.audit == nil {
		return
	}
	if started != nil {
		s.audit.Own(started.Pid)
	}
	if command > 0 {
		s.audit.Own(command)
	}
}
