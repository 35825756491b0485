package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
	"github.com/assay-run/assay-run/runner/sandbox/internal/auditlog"
	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// Sandbox applies a profile to one command. Close frees what it holds.
type Sandbox struct {
	profile   *Profile
	proxy     *proxy // nil without an allowlist
	fail      string // an operation that must fail, for tests
	probe     bool
	end       bool // end with the command
	watch     watch
	connects  *connector // nil: nobody decides about unix sockets
	needs     []Need
	audit     *auditlog.Log
	ready     func()
	door      *Door
	without   []string   // layers to skip, for tests that show what each does
	layer     *homeLayer // of the private home; nil: the home is real
	carried   *carried   // copies of the configuration of repositories; nil: there are none
	uncarried []Uncarried

	mu     sync.Mutex // guards the rest
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

	wantAudit      bool
	refusals       []Refusal
	refusalsLost   uint64
	refusalsUnsure bool
}

// Options are what a Sandbox needs in addition to its profile.
type Options struct {
	// Decided is called for every decision of the proxy, from any goroutine. It may be nil.
	Decided func(Decision)
	// Cgroup is the command's cgroup2 directory, for BPF programs that also check addresses. Empty means none.
	Cgroup string
	// Blocked is called for each address that those BPF programs deny, and for each unix socket that the command is
	// denied, from any goroutine. It may be nil.
	Blocked func(Blocked)
	// Audit reads Landlock's refusals from the host's audit, if that is on and this process may read it
	// (CAP_AUDIT_READ and CAP_AUDIT_CONTROL, Linux 6.15). See Refusals.
	Audit bool
	// Needs are files that the command must be able to use if it runs as another user; see Unusable.
	Needs []Need
	// EndWithCommand ends the command's remaining processes as soon as the command ends, and makes its exit status
	// the shim's.
	EndWithCommand bool
	// Ready is called while the process that becomes the command builds the sandbox. The command starts after Ready
	// returns. If Start retries without namespaces, Ready is called again. Nil: the command does not wait.
	Ready func()
	// Door is a server of the runner's that the command can reach from its own network namespace, except with network
	// mode none. Nil: none.
	Door *Door
	// Layers are existing directories for the layer of a private home, tried in this order before those that every
	// host has. Inherit is called with the layer's directory before it is used, for somebody who removes it if this
	// process dies. Both may be nil.
	Layers  []string
	Inherit func(dir string)
}

// Door is a server of the runner's for the command.
type Door struct {
	// Address is the server's host and port on the host's loopback device. The command uses the same address, with or
	// without a network namespace.
	Address string
	// Serve also serves connections from the namespace, and owns the listener.
	Serve func(net.Listener)
}

// port is the door's port; 0: there is no door.
func (d *Door) port() int {
	if d == nil {
		return 0
	}
	at, err := netip.ParseAddrPort(d.Address)
	if err != nil {
		return 0
	}
	return int(at.Port())
}

// Need is a file that a command needs, with a mode of access(2).
type Need = shim.Need

// Unusable is a needed file that the command's user cannot use, with the kernel's error.
type Unusable = shim.Unusable

// IsShim reports whether argv belongs to the process between the runner and a command. Compare the executable too:
// any program can have these arguments.
func IsShim(argv []string) bool { return shim.Is(argv) }

// New makes a sandbox for one command.
func New(p *Profile, opt Options) (*Sandbox, error) {
	if err := shim.Available(); err != nil {
		return nil, err
	}
	s := &Sandbox{profile: p, end: opt.EndWithCommand, wantAudit: opt.Audit, needs: opt.Needs, ready: opt.Ready,
		door: opt.Door, watch: watch{cgroup: opt.Cgroup, blocked: opt.Blocked}, pidfd: -1,
		dials: map[uint64]chan dialed{}}
	if err := s.openHome(opt); err != nil {
		return nil, err
	}
	if err := s.openCarried(opt); err != nil {
		return nil, errors.Join(err, s.closeHome())
	}
	if p.Network.Mode == sandboxfile.NetAllowlist {
		var err error
		if s.proxy, err = newProxy(p.Network, opt.Decided, s.connectInside); err != nil {
			return nil, errors.Join(err, s.closeCarried(), s.closeHome())
		}
		p.Network.Proxy = proxyAddress()
	}
	return s, nil
}

// Profile is the profile that the sandbox enforces.
func (s *Sandbox) Profile() *Profile { return s.profile }

// Layers are the layers' reports, after Start has returned.
func (s *Sandbox) Layers() []Layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Layer{}, s.layers...)
}

// Unusable lists the files of Options.Needs that the command's user cannot use, after Start has returned.
func (s *Sandbox) Unusable() []Unusable {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Unusable{}, s.unable...)
}

// Environ returns the command's environment: its user's variables that the policy allows, and the proxy's.
func (s *Sandbox) Environ(env []string) []string {
	env = s.profile.env.Apply(s.profile.User.environ(env))
	if s.proxy != nil {
		env = append(env, s.proxy.env()...)
	}
	return env
}

// listen handles the init's messages until it is gone.
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

// States receives the changes of the command's state, as wait4(2) reports them with WUNTRACED and WCONTINUED; the
// last one is how it ended. It is nil if cmd.Process is the command itself. It is closed early if the command's end
// can no longer be learned.
func (s *Sandbox) States() <-chan unix.WaitStatus { return s.states }

// PID is the command's process id on the host, or 0 if cmd.Process has it.
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

// Close ends the command's helpers, and the command itself if it still runs in a PID namespace.
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
	s.connects.close()
	s.readAudit()
	return errors.Join(err, s.closeCarried(), s.closeHome())
}

// Start starts a copy of cmd in the sandbox by calling start, and returns that copy. cmd.Path must be absolute; apply
// Environ to cmd.Env first. With a PID namespace, the process is the shim's: see States and Signal.
//
// detached means that start ignores cmd.SysProcAttr.
//
// The error is a *LayerError if a layer is unavailable, a *PortError if a port cannot be forwarded, an *os.PathError
// like exec.Cmd.Start's if the command cannot be executed, or start's own. A command returned with an error was
// started and killed; wait for it.
func (s *Sandbox) Start(cmd *exec.Cmd, start func(*exec.Cmd) error, detached bool) (*exec.Cmd, error) {
	flags := s.cloneFlags()
	started, err := s.start(cmd, start, flags, detached)
	if flags == 0 || s.profile.OnUnavailable != sandboxfile.Degrade {
		return started, err
	}
	var missing *LayerError
	if !errors.As(err, &missing) || missing.Layer != LayerNamespaces {
		return started, err
	}
	if h := s.profile.Home; h != nil && h.State == sandboxfile.HomePrivate && h.needed {
		return started, &HomeError{"there is no mount namespace: " + missing.Reason}
	}
	// Start again without namespaces, and report the layers that are lost by this.
	if started != nil {
		_ = started.Wait()
	}
	lost := append(s.Layers(), s.withoutNamespaces(missing.Reason)...)
	s.profile.realHome("there is no mount namespace: " + missing.Reason)
	if s.proxy != nil { // its socket would be in the network namespace
		cmd.Env = slices.DeleteFunc(slices.Clone(cmd.Env), func(v string) bool {
			return slices.Contains(s.proxy.env(), v)
		})
	}
	started, err = s.start(cmd, start, 0, detached)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers = merge(lost, s.layers)
	if s.watch.guard != nil {
		for i := range s.layers {
			if l := &s.layers[i]; l.Layer == LayerNetwork {
				l.State, l.Reason = Degraded,
					l.Reason+"; programs on the cgroup allow only loopback addresses, which are the host's"
			}
		}
	}
	return started, err
}

// withoutNamespaces reports the layers that need namespaces.
func (s *Sandbox) withoutNamespaces(why string) []Layer {
	layers := []Layer{{Layer: LayerFiles, State: Unavailable, Reason: "there is no mount namespace: " + why}}
	if s.profile.asks {
		layers = append(layers, Layer{Layer: LayerSockets, State: Unavailable,
			Reason: "there is no PID namespace: " + why})
	}
	switch s.profile.Network.Mode {
	case sandboxfile.NetNone: // Landlock and seccomp know no way out
	case sandboxfile.NetHost:
	default:
		layers = append(layers, Layer{Layer: LayerNetwork, State: Unavailable,
			Reason: "there is no network namespace: " + why})
	}
	if s.profile.Mode == sandboxfile.Observe {
		layers = nil
	}
	return layers
}

func (s *Sandbox) start(
	cmd *exec.Cmd, start func(*exec.Cmd) error, flags uintptr, detached bool,
) (inner *exec.Cmd, err error) {
	plan, early, err := s.profile.plan(flags != 0)
	if err != nil {
		return nil, err
	}
	if port := s.door.port(); port != 0 && plan.Loopback {
		plan.Ports = append(plan.Ports, port)
	}
	s.mu.Lock()
	s.layers = nil
	s.mu.Unlock()
	for _, l := range early {
		if l.State == Unavailable && !plan.Degrade && (l.Layer != LayerSockets || plan.MustAsk) {
			return nil, s.missing(l)
		}
	}
	plan.Path, plan.Args, plan.Keep, plan.Fail, plan.Probe = cmd.Path, cmd.Args, len(cmd.ExtraFiles), s.fail, s.probe
	if len(plan.Args) == 0 {
		plan.Args = []string{cmd.Path}
	}
	if cmd.Dir != "" && !s.profile.moved() {
		plan.Dir = cmd.Dir
	}
	if s.listenToAudit(); s.audit != nil && plan.Landlock != nil {
		plan.Landlock.Log = unix.LANDLOCK_RESTRICT_SELF_LOG_NEW_EXEC_ON
	}
	plan.EndWithCommand, plan.OwnTerminal = s.end, detached
	if s.profile.User != nil {
		plan.Needs = s.needs
	}
	plan.Without, plan.Waits = s.without, s.ready != nil
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	if detached || flags != 0 && !steps.Linked() || flags&unix.CLONE_NEWUSER != 0 && (concealed() || steps.Refused()) {
		plan.Clone = flags
	} else {
		attr.Cloneflags |= flags
		shim.MapUser(&attr)
	}
	if plan.Init {
		if err := s.listenLocal(); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err == nil {
			return
		}
		s.closeLocal()
		if inner != nil { // otherwise it would become the command, unsupervised
			_ = inner.Process.Kill()
		}
	}()
	watched := s.watch.start(s.profile.Network.Mode, flags&unix.CLONE_NEWNET != 0)
	conn, theirs, err := shim.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if s.conn != nil { // of an attempt with namespaces
		s.conn.Close()
		s.connects.close()
		s.connects = nil
	}
	s.conn = conn
	n := 3 + len(cmd.ExtraFiles)
	program := shim.Compile(plan, n)
	file, err := program.File()
	if err != nil {
		return nil, fmt.Errorf("sandbox plan: %w", err)
	}
	defer file.Close()
	shimmed := &exec.Cmd{
		Path: "/proc/self/exe", Args: shim.Args(n + 1),
		Env: cmd.Env, Dir: cmd.Dir, Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, WaitDelay: cmd.WaitDelay,
		ExtraFiles: append(append([]*os.File{}, cmd.ExtraFiles...), theirs, file), SysProcAttr: &attr,
	}
	if err := start(shimmed); err != nil {
		return nil, s.cloneError(err, flags)
	}
	inner = shimmed
	theirs.Close()
	s.ownDomain(inner.Process, 0)
	if plan.Waits {
		s.ready()
		if err := s.conn.Go(); err != nil {
			s.conn.Close() // otherwise the shim would wait forever
			return inner, err
		}
	}
	err = s.started(plan, program)
	s.mu.Lock()
	s.layers = append(merge(early, s.layers), watched...)
	s.mu.Unlock()
	return inner, err
}

// concealed reports whether this process is not dumpable. Then root owns /proc/PID/uid_map of its children until they
// exec (task_dump_owner in fs/proc/base.c), so only a child of the shim can get a user namespace from its own user.
func concealed() bool {
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	return err == nil && dumpable != 1
}

// cloneFlags are the namespaces of the profile without those of skipped layers.
func (s *Sandbox) cloneFlags() uintptr {
	switch flags := s.profile.cloneFlags(); {
	case slices.Contains(s.without, LayerNamespaces):
		return 0
	case slices.Contains(s.without, LayerNetwork):
		return flags &^ unix.CLONE_NEWNET
	default:
		return flags
	}
}

// cloneError tells an unavailable namespace from other reasons not to start. The shim, this very binary, can always
// be executed.
func (s *Sandbox) cloneError(err error, flags uintptr) error {
	var errno syscall.Errno
	if flags == 0 || !errors.As(err, &errno) {
		return err
	}
	switch errno {
	case unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EUSERS, unix.EINVAL, unix.ENOSYS:
		return s.missing(Layer{Layer: LayerNamespaces, State: Unavailable, Reason: "clone: " + errno.Error(),
			Errno: int(errno)})
	}
	return err
}

func (s *Sandbox) missing(l Layer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers = append(s.layers, l)
	return &LayerError{Layer: l.Layer, Reason: l.Reason, Remedy: Remedy(l)}
}

func layerError(layer string, err error) Layer {
	l := Layer{Layer: layer, State: Unavailable, Reason: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		l.Errno = int(errno)
	}
	return l
}

// started handles the shim's messages until the command runs, or fails to start.
func (s *Sandbox) started(plan shim.Plan, program *shim.Program) error {
	told, command, diagnostics := false, 0, -1
	defer func() {
		if s.connects == nil && diagnostics >= 0 {
			unix.Close(diagnostics) // nobody asks
		}
	}()
	for {
		m, fd, err := s.conn.Receive()
		switch {
		case errors.Is(err, io.EOF) && told && (!plan.Init || s.probe):
			return nil // exec closed it
		case err != nil:
			return fmt.Errorf("the sandbox's own process ended before the command started: %w", err)
		}
		switch m.Kind {
		case shim.KindDiagnostics:
			diagnostics = fd
		case shim.KindAsks:
			own := s.cloneFlags()&unix.CLONE_NEWNET != 0
			if s.connects, err = newConnector(s.profile, fd, diagnostics, own, s.blockedSocket); err != nil {
				return fmt.Errorf("decide about unix sockets: %w", err)
			}
		case shim.KindListener:
			if err := s.serve(fd); err != nil {
				return err
			}
		case shim.KindLayers:
			o := program.Outcome(m.Failed)
			command = m.Sender // the pidfd does not identify it after the init has reaped it
			if told = true; plan.Init {
				o.Layers = merge([]Layer{{Layer: LayerNamespaces, State: Enforced}}, o.Layers)
			}
			if slices.Contains(o.Failed, shim.OverlayHome) {
				s.profile.realHome("the layer could not be mounted")
			}
			s.mu.Lock()
			s.layers, s.unable = merge(s.layers, o.Layers), o.Unusable
			if s.probe {
				s.ops = program.Operations()
			}
			s.mu.Unlock()
			for _, l := range o.Layers {
				if l.Layer == o.Stopped {
					return &LayerError{Layer: l.Layer, Reason: l.Reason, Remedy: Remedy(l)}
				}
			}
		case shim.KindFailed:
			return &os.PathError{Op: "fork/exec", Path: plan.Path, Err: m.Errno()}
		case shim.KindStarted:
			if !told {
				unix.Close(fd)
				return errors.New("the sandbox's own process ended before the command started")
			}
			s.mu.Lock()
			s.pidfd, s.pid = fd, command
			s.mu.Unlock()
			s.ownDomain(nil, command)
			s.states = make(chan unix.WaitStatus, 16)
			go s.listen()
			s.serveLocal()
			return nil
		}
	}
}

// blockedSocket passes on that the command may not reach a unix socket.
func (s *Sandbox) blockedSocket(path string) {
	if s.watch.blocked != nil {
		var now unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
		s.watch.blocked(Blocked{Op: OpConnect, Socket: path, Time: uint64(now.Nano())})
	}
}

// serve starts to accept from a listening socket of the network namespace.
func (s *Sandbox) serve(fd int) error {
	f := os.NewFile(uintptr(fd), "listener")
	l, err := net.FileListener(f)
	f.Close()
	switch {
	case err != nil:
		return fmt.Errorf("listener in the sandbox: %w", err)
	case l.Addr().(*net.TCPAddr).Port == s.door.port():
		s.door.Serve(l)
	case s.proxy != nil:
		s.proxy.serve(l, s.profile.Network.forwarded())
	default:
		l.Close()
	}
	return nil
}

// merge combines reports: of two for a layer it keeps the worse.
func merge(a, b []Layer) []Layer {
	out := append([]Layer{}, a...)
next:
	for _, l := range b {
		for i := range out {
			if out[i].Layer == l.Layer {
				if l.State != Enforced {
					out[i] = l
				}
				continue next
			}
		}
		out = append(out, l)
	}
	return out
}

// dialed is the init's answer to a dial.
type dialed struct {
	fd  int
	err error
}

// listenLocal listens on the host's loopback address for the ports inside that may be reached from there. With the
// host's network, nothing is needed. Connections wait until serveLocal. The error is a *PortError.
func (s *Sandbox) listenLocal() error {
	if s.profile.Network.Mode == sandboxfile.NetHost {
		return nil
	}
	for _, port := range s.profile.Network.LocalPorts {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			s.closeLocal()
			return &PortError{Port: port, Err: err}
		}
		s.mu.Lock()
		s.local = append(s.local, localPort{l, port})
		s.mu.Unlock()
	}
	return nil
}

// localPort is a port of the host that is forwarded to the same port inside.
type localPort struct {
	net.Listener
	port int
}

// serveLocal forwards connections once the command runs.
func (s *Sandbox) serveLocal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.local {
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go s.carry(c.(*net.TCPConn), l.port)
			}
		}()
	}
}

// closeLocal stops forwarding new connections.
func (s *Sandbox) closeLocal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.local {
		l.Close()
	}
	s.local = nil
}

// carry joins a connection from outside with one inside.
func (s *Sandbox) carry(outer *net.TCPConn, port int) {
	defer outer.Close()
	c, err := s.connectInside(port)
	if err != nil {
		return
	}
	defer c.Close()
	join(outer, c.(*net.TCPConn))
}

// connectInside connects to a port on the loopback device inside.
func (s *Sandbox) connectInside(port int) (net.Conn, error) {
	fd, err := s.dial(port)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "local port")
	defer f.Close()
	if err = connected(f); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// dialTimeout limits a connection inside: the loopback device is never slow.
const dialTimeout = 5 * time.Second

// connected waits until a non-blocking socket is connected, or has failed.
func connected(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if err := f.SetWriteDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	var connectErr error
	err = raw.Write(func(fd uintptr) bool {
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && errno != 0 {
			err = unix.Errno(errno)
		}
		if err == nil {
			_, err = unix.Getpeername(int(fd))
		}
		connectErr = err
		return !errors.Is(err, unix.ENOTCONN) // writable means connected or refused
	})
	return errors.Join(err, connectErr)
}

// dial asks the init for a connection to a port inside.
func (s *Sandbox) dial(port int) (int, error) {
	answer := make(chan dialed, 1)
	s.mu.Lock()
	if s.closed || s.dials == nil {
		s.mu.Unlock()
		return -1, net.ErrClosed
	}
	s.nextID++
	id := s.nextID
	s.dials[id] = answer
	s.mu.Unlock()
	if err := s.conn.Dial(id, port); err != nil {
		return -1, err
	}
	d := <-answer
	return d.fd, d.err
}

func (s *Sandbox) answer(m shim.Message, fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.dials[m.ID]
	delete(s.dials, m.ID)
	switch {
	case answer == nil:
		if fd >= 0 {
			unix.Close(fd)
		}
	case fd < 0:
		answer <- dialed{-1, m.Refused}
	default:
		answer <- dialed{fd, nil}
	}
}

// hangUp ends all waits for answers of an init that is gone.
func (s *Sandbox) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, answer := range s.dials {
		answer <- dialed{-1, net.ErrClosed}
	}
	s.dials = nil
}

// logABI is the first version of Landlock that reports refusals to the audit.
const logABI = 7

// Refusal is an access that Landlock refused, from the host's audit.
type Refusal struct {
	Attempt
	// Time is the time of its first report, in nanoseconds of CLOCK_BOOTTIME.
	Time uint64
}

// Refusals returns what Landlock refused the command, without repeats, if Options.Audit is set and the host's audit
// is on and readable. lost counts the refusals without a record. unsure means that the audit lost records, so there
// may be more of those. Call it after Close.
func (s *Sandbox) Refusals() (list []Refusal, lost uint64, unsure bool) {
	return s.refusals, s.refusalsLost, s.refusalsUnsure
}

// listenToAudit opens the audit's log, if Options.Audit asks for it and it is available.
func (s *Sandbox) listenToAudit() {
	if abi, err := LandlockABI(); !s.wantAudit || s.audit != nil || err != nil || abi < logABI {
		return
	}
	s.audit, _ = auditlog.Open() // nil if auditing is off, or this process may not listen
}

// readAudit closes the audit's log and keeps its records.
func (s *Sandbox) readAudit() {
	if s.audit == nil {
		return
	}
	got := s.audit.Close()
	for r, at := range got.Records {
		s.refusals = append(s.refusals, Refusal{refused(r), at})
	}
	slices.SortFunc(s.refusals, func(a, b Refusal) int { return cmp.Compare(a.Time, b.Time) })
	s.refusalsLost, s.refusalsUnsure = got.Lost, got.Unsure
}

// changes are the rights for changing a file or a name.
var changes = []string{"fs.write_file", "fs.truncate", "fs.ioctl_dev", "fs.change_topology"}

// refused returns the operation of a record. For an operation that creates or removes a name, the record has the
// directory; the returned path then ends with a slash.
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

// ownDomain tells the audit log which processes may make the command's Landlock domain: the started process, which
// becomes the command without a PID namespace, and the command, which restricts itself.
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

// Untold counts the denied calls that were not passed to Options.Blocked. It is valid after Close.
func (s *Sandbox) Untold() uint64 { return s.watch.untold }
