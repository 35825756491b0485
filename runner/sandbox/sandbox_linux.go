package sandbox

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox/internal/auditlog"
	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
)

// Sandbox is a profile at work for one command. Close frees what it holds.
type Sandbox struct {
	profile *Profile
	proxy   *Proxy // nil without an allowlist
	fail    string // an operation that is to fail, for tests
	probe   bool
	end     bool // with the command
	watch   watch
	needs   []Need
	audit   *auditlog.Log
	ready   func()
	without []string // layers to leave out, for tests that show what each is for

	mu     sync.Mutex // guards what follows
	layers []Layer
	unable []Unusable
	ops    []string
	conn   *shim.Conn
	pidfd  int
	pid    int
	states chan unix.WaitStatus
	dials  map[uint64]chan dialed
	nextID uint64
	local  []localPort
	closed bool

	wantAudit    bool
	refusals     []Refusal
	refusalsLost uint64
}

// Options are what a Sandbox needs besides its profile.
type Options struct {
	// Decided is told of every decision of the proxy. It is called from any
	// goroutine; nil tells nobody.
	Decided func(Decision)
	// Cgroup is a cgroup2 directory that the command runs in, where BPF programs
	// are to judge addresses too. Empty means none.
	Cgroup string
	// Blocked is told of each address that those programs denied, from one goroutine.
	// nil tells nobody.
	Blocked func(Blocked)
	// Audit reads what Landlock refuses from the host's audit, where that is on already and
	// this process may read it (CAP_AUDIT_READ and CAP_AUDIT_CONTROL, Linux 6.15). See Refusals.
	Audit bool
	// Needs are files that the command is to be able to use, where it runs as
	// another user; see Unusable.
	Needs []Need
	// EndWithCommand ends what the command leaves behind as soon as it has ended,
	// and makes the shim's exit status the command's.
	EndWithCommand bool
	// Ready is called while the process that becomes the command makes the sandbox. The command starts
	// after Ready has returned. It is called again where Start tries again without namespaces. Nil means
	// that the command waits for nothing.
	Ready func()
}

// Need is a file that a command needs, and in which ways of access(2).
type Need = shim.Need

// Unusable is a file that the command's user cannot use, with the kernel's answer.
type Unusable = shim.Unusable

// IsShim reports whether argv is that of the process between the runner and a
// command. It does not tell whose program it is: compare the executable.
func IsShim(argv []string) bool { return shim.Is(argv) }

// New makes a sandbox for one command.
func New(p *Profile, opt Options) (*Sandbox, error) {
	if err := shim.Available(); err != nil {
		return nil, err
	}
	s := &Sandbox{profile: p, end: opt.EndWithCommand, wantAudit: opt.Audit, needs: opt.Needs, ready: opt.Ready, watch: watch{cgroup: opt.Cgroup, blocked: opt.Blocked}, pidfd: -1, dials: map[uint64]chan dialed{}}
	if p.Network.Mode == NetAllowlist {
		var err error
		if s.proxy, err = newProxy(p.Network, opt.Decided, s.connectInside); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Profile is what the sandbox enforces.
func (s *Sandbox) Profile() *Profile { return s.profile }

// Layers are the layers' reports, once Start has returned.
func (s *Sandbox) Layers() []Layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Layer{}, s.layers...)
}

// Unusable is what of Options.Needs the command's user cannot use, once Start has
// returned.
func (s *Sandbox) Unusable() []Unusable {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Unusable{}, s.unable...)
}

// Environ is what the command's environment becomes: that of its user, with the
// policy's part of it and the way to the proxy.
func (s *Sandbox) Environ(env []string) []string {
	env = s.profile.env.Apply(s.profile.User.environ(env))
	if s.proxy != nil {
		env = append(env, s.proxy.env()...)
	}
	return env
}

// listen hears the init until it is gone.
func (s *Sandbox) listen() {
	defer close(s.states)
	for {
		m, fd, err := s.conn.Receive()
		if err != nil {
			s.hangUp()
			return
		}
		switch m.Kind {
		case shim.KindState:
			s.states <- unix.WaitStatus(m.Status)
		case shim.KindDialed:
			s.answer(m, fd)
			fd = -1
		}
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// States are the changes of the command's state, as wait4(2) tells them with
// WUNTRACED and WCONTINUED; the last one tells how it ended. It is nil where
// cmd.Process is the command itself, and closed when the command's end could
// not be told any more.
func (s *Sandbox) States() <-chan unix.WaitStatus { return s.states }

// PID is the command's process id here, or 0 where cmd.Process has it.
func (s *Sandbox) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// Signal sends a signal to the command alone.
func (s *Sandbox) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pidfd < 0 {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(s.pidfd, sig, nil, 0)
}

// Close ends what serves the command, and the command itself where it still
// runs in a PID namespace.
func (s *Sandbox) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	pidfd := s.pidfd
	s.pidfd = -1
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.closeLocal()
	if pidfd >= 0 {
		unix.Close(pidfd)
	}
	if s.proxy != nil {
		s.proxy.close()
	}
	s.watch.stop()
	var err error
	if s.conn != nil {
		err = s.conn.Close()
	}
	s.readAudit()
	return err
}
