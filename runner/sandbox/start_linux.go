package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
)

// Start starts cmd inside, by start, and returns the command that it gave to
// start: cmd itself is not started. cmd.Path must be absolute; its Env and Dir
// are taken as they are: apply Environ before. The process is the shim's where
// there is a PID namespace: see States and Signal.
//
// Detached says that start does not honour cmd.SysProcAttr.
//
// The error is a *LayerError where a layer cannot be had, a *PortError where a port
// cannot be forwarded, an *os.PathError as of exec.Cmd.Start where the command cannot be
// executed, or start's own. The command that is returned with it, if any, was started and
// killed, and is to be waited for.
func (s *Sandbox) Start(cmd *exec.Cmd, start func(*exec.Cmd) error, detached bool) (*exec.Cmd, error) {
	flags := s.cloneFlags()
	started, err := s.start(cmd, start, flags, detached)
	if flags == 0 || s.profile.OnUnavailable != Degrade {
		return started, err
	}
	var missing *LayerError
	if !errors.As(err, &missing) || missing.Layer != LayerNamespaces {
		return started, err
	}
	// Once more, without; what that leaves is told.
	if started != nil {
		_ = started.Wait()
	}
	lost := append(s.Layers(), s.withoutNamespaces(missing.Reason)...)
	if s.proxy != nil { // its door would be in the network namespace
		cmd.Env = slices.DeleteFunc(slices.Clone(cmd.Env), func(v string) bool { return slices.Contains(s.proxy.env(), v) })
	}
	started, err = s.start(cmd, start, 0, detached)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers = merge(lost, s.layers)
	if s.watch.guard != nil {
		for i := range s.layers {
			if l := &s.layers[i]; l.Layer == LayerNetwork {
				l.State, l.Reason = Degraded, l.Reason+"; programs on the cgroup allow only loopback addresses, which are the host's"
			}
		}
	}
	return started, err
}

// withoutNamespaces are the reports of the layers that namespaces carry.
func (s *Sandbox) withoutNamespaces(why string) []Layer {
	layers := []Layer{{Layer: LayerFiles, State: Unavailable, Reason: "there is no mount namespace: " + why}}
	switch s.profile.Network.Mode {
	case NetNone: // Landlock and seccomp know no way out
	case NetHost:
	default:
		layers = append(layers, Layer{Layer: LayerNetwork, State: Unavailable, Reason: "there is no network namespace: " + why})
	}
	if s.profile.Mode == Observe {
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
	s.mu.Lock()
	s.layers = nil
	s.mu.Unlock()
	for _, l := range early {
		if l.State == Unavailable && !plan.Degrade {
			return nil, s.missing(l)
		}
	}
	plan.Path, plan.Args, plan.Keep, plan.Fail, plan.Probe = cmd.Path, cmd.Args, len(cmd.ExtraFiles), s.fail, s.probe
	if len(plan.Args) == 0 {
		plan.Args = []string{cmd.Path}
	}
	if cmd.Dir != "" {
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
		if inner != nil { // or it would become the command, which nobody would supervise
			_ = inner.Process.Kill()
		}
	}()
	watched := s.watch.start(s.profile.Network.Mode, flags&unix.CLONE_NEWNET != 0)
	conn, theirs, err := shim.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if s.conn != nil {
		s.conn.Close() // of an attempt with namespaces
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
			s.conn.Close() // or the shim would wait for ever
			return inner, err
		}
	}
	err = s.started(plan, program)
	s.mu.Lock()
	s.layers = append(merge(early, s.layers), watched...)
	s.mu.Unlock()
	return inner, err
}

// concealed tells whether this process is not dumpable. /proc/PID/uid_map of what
// it forks is then root's (task_dump_owner in fs/proc/base.c), until exec: only a
// process that the shim forks can be given a user namespace by its own user.
func concealed() bool {
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	return err == nil && dumpable != 1
}

// cloneFlags are the namespaces of the profile, but for those of layers left out.
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

// cloneError tells a namespace that cannot be had from another reason not to
// start: the shim itself, our own binary, can be executed.
func (s *Sandbox) cloneError(err error, flags uintptr) error {
	var errno syscall.Errno
	if flags == 0 || !errors.As(err, &errno) {
		return err
	}
	switch errno {
	case unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EUSERS, unix.EINVAL, unix.ENOSYS:
		return s.missing(Layer{Layer: LayerNamespaces, State: Unavailable, Reason: "clone: " + errno.Error(), Errno: int(errno)})
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

// started takes the shim's word until the command runs, or does not.
func (s *Sandbox) started(plan shim.Plan, program *shim.Program) error {
	told := false
	for {
		m, fd, err := s.conn.Receive()
		switch {
		case errors.Is(err, io.EOF) && told && (!plan.Init || s.probe):
			return nil // closed by exec
		case err != nil:
			return fmt.Errorf("the sandbox's own process ended before the command started: %w", err)
		}
		switch m.Kind {
		case shim.KindListener:
			if s.proxy == nil {
				unix.Close(fd)
			} else if err := s.proxy.serve(fd, s.profile.Network.forwarded()); err != nil {
				return err
			}
		case shim.KindLayers:
			o := program.Outcome(m.Failed)
			if told = true; plan.Init {
				o.Layers = merge([]Layer{{Layer: LayerNamespaces, State: Enforced}}, o.Layers)
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
			s.pidfd, s.pid = fd, pidOf(fd)
			s.mu.Unlock()
			s.ownDomain(nil, s.pid)
			s.states = make(chan unix.WaitStatus, 16)
			go s.listen()
			s.serveLocal()
			return nil
		}
	}
}

// pidOf is the process that a pidfd stands for (fs/pidfs.c, "Pid:"), or 0.
func pidOf(pidfd int) int {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(info)) {
		if v, ok := strings.CutPrefix(line, "Pid:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return max(n, 0)
		}
	}
	return 0
}

// merge puts reports together, the worse of two for each layer.
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
