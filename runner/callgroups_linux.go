package runner

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/binding"
)

// callGroups gives tool calls cgroups of their own. Whoever reaches the
// gateway's socket can ask, but only a process of the run is moved, only below
// the agent's cgroup, and only by itself: the kernel tells who connected. Where
// a sandbox cuts it off, the environment must do.
type callGroups struct {
	nest       func(name string) (*cgroup.Nested, error) // makes one below the agent's
	correlator *binding.Correlator

	mu     sync.Mutex
	groups map[string]*cgroup.Nested // by call; those that may still be in use
	made   int
}

// Bounds of the cgroups of calls.
const (
	maxCallGroups  = 512 // that exist at a time; further calls are told by their environment
	tidyCallGroups = 64  // how many there are before unused ones are removed
)

func newCallGroups(nest func(name string) (*cgroup.Nested, error), c *binding.Correlator) *callGroups {
	return &callGroups{nest: nest, correlator: c, groups: map[string]*cgroup.Nested{}}
}

// join moves the process that connected. The cgroups go with the session.
func (s *callGroups) join(conn *net.UnixConn, id string) error {
	if err := CheckCallID(id); err != nil {
		return err
	}
	pid, pidfd, err := peer(conn)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.group(id)
	if err != nil {
		return err
	}
	if err := g.Adopt(pid, pidfd); err != nil {
		if g.Remove() == nil {
			delete(s.groups, id)
		}
		return err
	}
	return nil
}

// group finds or makes the cgroup of a call.
func (s *callGroups) group(id string) (*cgroup.Nested, error) {
	if g := s.groups[id]; g != nil {
		return g, nil
	}
	if len(s.groups) >= tidyCallGroups {
		for id, g := range s.groups {
			if g.Remove() == nil { // nobody is in it
				delete(s.groups, id)
			}
		}
	}
	if len(s.groups) >= maxCallGroups {
		return nil, fmt.Errorf("%d tool calls have cgroups already", len(s.groups))
	}
	s.made++
	g, err := s.nest(fmt.Sprintf("tool-%d", s.made))
	if err != nil {
		return nil, err
	}
	if !s.correlator.Cgroup(id, g.ID()) {
		return nil, errors.Join(errors.New("there are too many tool calls"), g.Remove())
	}
	s.groups[id] = g
	return g, nil
}

// peer is the process that connected, and a descriptor that tells it from
// others that get its number. The descriptor is the caller's.
func peer(conn *net.UnixConn) (pid, pidfd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, -1, err
	}
	const soPeerPIDFD = 77 // since Linux 6.5, asm-generic/socket.h
	pidfd = -1
	cerr := raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		pid = int(cred.Pid)
		if pidfd, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, soPeerPIDFD); err != nil {
			pidfd, err = unix.PidfdOpen(pid, 0)
		}
	})
	if err = errors.Join(err, cerr); err == nil && pid <= 0 {
		unix.Close(pidfd)
		err = errors.New("the process is not in our pid namespace")
	}
	if err != nil {
		return 0, -1, fmt.Errorf("tell who connected: %w", err)
	}
	return pid, pidfd, nil
}
