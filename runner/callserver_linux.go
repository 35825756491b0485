package runner

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/binding"
)

// callServer gives tool calls cgroups of their own. Its socket has an abstract
// name, so that nothing of it is left when we are killed. Whoever knows the
// name can connect, but only a process of the run is moved, only below the
// agent's cgroup, and only by itself: the kernel tells who connected. Where a
// sandbox cuts it off, the environment must do.
type callServer struct {
	agent      *cgroup.Group
	correlator *binding.Correlator
	ln         *net.UnixListener
	work       sync.WaitGroup

	mu     sync.Mutex
	groups map[string]*cgroup.Nested // by call; those that may still be in use
	made   int
}

// Bounds of the server.
const (
	maxCallGroups  = 512 // that exist at a time; further calls are told by their environment
	maxJoins       = 32  // served at a time; the others wait in the backlog
	tidyCallGroups = 64  // how many there are before unused ones are removed
)

// callSocket makes up a name that nobody can have taken.
func callSocket() string {
	var name [16]byte
	_, _ = rand.Read(name[:]) // never fails
	return "@assay-run-call-" + hex.EncodeToString(name[:])
}

func newCallServer(name string, agent *cgroup.Group, c *binding.Correlator) (*callServer, error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for tool calls: %w", err)
	}
	s := &callServer{agent: agent, correlator: c, ln: ln, groups: map[string]*cgroup.Nested{}}
	s.work.Go(s.accept)
	return s, nil
}

func (s *callServer) addr() string { return s.ln.Addr().String() }

// close ends it; the cgroups go with the session.
func (s *callServer) close() {
	s.ln.Close()
	s.work.Wait()
}

func (s *callServer) accept() {
	places := make(chan struct{}, maxJoins)
	for {
		places <- struct{}{}
		conn, err := s.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // no descriptors for a moment
			<-places
			continue
		}
		s.work.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			s.serve(conn)
		})
	}
}

func (s *callServer) serve(conn *net.UnixConn) {
	_ = conn.SetDeadline(time.Now().Add(callTimeout))
	var reply joinReply
	line, err := bufio.NewReaderSize(conn, maxJoinMessage).ReadSlice('\n')
	if err == nil {
		err = s.join(conn, line)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	if msg, err := json.Marshal(reply); err == nil {
		_, _ = conn.Write(append(msg, '\n'))
	}
}

func (s *callServer) join(conn *net.UnixConn, line []byte) error {
	var r joinRequest
	if err := json.Unmarshal(line, &r, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("not a request: %w", err)
	}
	if err := CheckCallID(r.ToolCallID); err != nil {
		return err
	}
	pid, pidfd, err := peer(conn)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	s.mu.Lock()
	defer s.mu.Unlock()
	g, err := s.group(r.ToolCallID)
	if err != nil {
		return err
	}
	if err := g.Adopt(pid, pidfd); err != nil {
		if g.Remove() == nil {
			delete(s.groups, r.ToolCallID)
		}
		return err
	}
	return nil
}

// group finds or makes the cgroup of a call.
func (s *callServer) group(id string) (*cgroup.Nested, error) {
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
	g, err := s.agent.Nest(fmt.Sprintf("tool-%d", s.made))
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
