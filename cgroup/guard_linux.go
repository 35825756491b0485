package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Guard is the runner's handle of a session's guard process.
type Guard struct {
	pid  int
	once sync.Once
	pipe *os.File
	post post
	done chan struct{} // closed when the guard is gone
}

// guardLook is how often the guard of a session in mode None looks for new
// descendants. Most are found without, by their marks; one that removed all of
// them, and lost its parent, within that time just before the runner is killed
// is not.
const guardLook = 50 * time.Millisecond

// Guard starts the session's guard: a process in a session of its own, in the
// runner's cgroup or one of its own (see post), with /dev/null for stdio, that
// holds nothing of the runner's but the read end of a pipe, a terminal, if that is
// not nil, and the session's locks: until it is done, the run id is in use. When the
// pipe closes because the runner is gone, it restores the terminal (see
// TerminalChanged), kills the session, waits until it is empty and removes it. Start it
// before the command: once Guard returns, the session cannot outlive the runner.
//
// SIGINT, SIGTERM, SIGHUP and the terminal's other signals do not touch it.
func (s *Session) Guard(terminal *os.File) (_ *Guard, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	defer r.Close()
	self, ok := readStat(os.Getpid())
	if !ok && len(s.dirs) == 0 {
		return nil, errors.New("start guard: /proc does not tell of this process")
	}
	args := []string{reexecName, guardArg, s.runID, fmt.Sprintf("%d/%d/%d", self.pid, self.sid, self.start)}
	for _, d := range s.dirs {
		kind := "v1"
		switch {
		case d.v2:
			kind = "v2"
		case d.freezer:
			kind = "freezer"
		}
		args = append(args, kind+":"+d.path)
	}
	post, err := s.post()
	defer func() {
		if err != nil {
			w.Close()
			post.remove()
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	if post.path != "" {
		args = append(args, "post:"+post.path)
	}
	for _, home := range post.homes {
		args = append(args, "home:"+home)
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: args, Dir: "/",
		// One thread's worth of Go is enough, and nothing of the runner's
		// environment is its business.
		Env:         []string{"GOMAXPROCS=1", "GOTRACEBACK=none"},
		ExtraFiles:  []*os.File{r, terminal},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	for _, lock := range s.locks {
		lock, err := unix.FcntlInt(uintptr(lock), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("start guard: %w", err)
		}
		f := os.NewFile(uintptr(lock), "lock")
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	if post.lock != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, post.lock)
	}
	err = post.start(cmd, s.host.clone == nil)
	g := &Guard{pipe: w, post: post, done: make(chan struct{})}
	if cmd.Process != nil {
		g.pid = cmd.Process.Pid
		go func() { waitNative(cmd); close(g.done) }()
	}
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, group := range s.groups {
		if group.tree != nil {
			group.tree.report(w)
		}
	}
	s.guard = g
	return g, nil
}

// PID is the guard's process id.
func (g *Guard) PID() int { return g.pid }

// Release tells the guard to go, after Remove. It waits for it only where the
// guard has a cgroup of its own, which goes after it.
func (g *Guard) Release() error {
	var err error
	g.once.Do(func() {
		_, err = g.pipe.Write([]byte("q\n"))
		err = errors.Join(err, g.pipe.Close())
		if g.post.path != "" {
			select {
			case <-g.done:
			case <-time.After(time.Second): // it is stopped: a sweep finds the cgroup
			}
			g.post.remove()
		}
	})
	if err != nil {
		return fmt.Errorf("release guard %d: %w", g.pid, err)
	}
	return nil
}

// guardMain is the guard process; see Session.Guard.
func guardMain(args []string) int {
	ignoreSignals()
	if len(args) < 4 {
		return 125
	}
	var runner stat
	if n, _ := fmt.Sscanf(args[3], "%d/%d/%d", &runner.pid, &runner.sid, &runner.start); n != 3 {
		return 125
	}
	var dirs []dir
	var own post
	for _, a := range args[4:] {
		switch kind, path, _ := strings.Cut(a, ":"); kind {
		case "post":
			own.path = path
		case "home":
			own.homes = append(own.homes, path)
		default:
			dirs = append(dirs, dir{path: path, v2: kind == "v2", freezer: kind == "freezer"})
		}
	}
	const pipe = 3
	left := estate{tty: terminal{fd: 4}}
	if len(dirs) > 0 {
		if released(pipe, -1, left.hear) {
			return 0
		}
		left.tty.restore() // before a shell, which has just been told as well, looks at it
		_ = kill(dirs)     // if that failed, remove tries again
		defer own.leave()
		defer left.remove() // once nobody is there who could put something in its place
		return guardCgroups(dirs)
	}
	t := bareTree(args[2], runner)
	hear := func(line []byte) {
		var pid int
		var start uint64
		if n, _ := fmt.Sscanf(string(line), "p %d %d", &pid, &start); n == 2 {
			t.known[pid] = start
		}
		left.hear(line)
		t.scan(func(st stat) bool { return st.ppid == runner.pid && !isHelper(st.pid) })
	}
	if released(pipe, guardLook, hear) {
		return 0
	}
	list := func() []int { return t.scan(func(stat) bool { return false }) }
	left.tty.restore()
	defer left.remove()
	// Looking and killing go on together until nobody is found.
	if err := waitEmpty(context.Background(), func() []int {
		_ = signalRounds(list, unix.SIGKILL)
		return list()
	}); err != nil {
		return 1
	}
	return 0
}

// guardCgroups waits until what was killed is gone, and removes the cgroups.
func guardCgroups(dirs []dir) int {
	if err := waitEmpty(context.Background(), func() []int {
		if empty(dirs) {
			return nil
		}
		return pids(dirs)
	}); err != nil {
		return 1
	}
	if err := remove(dirs); err != nil {
		return 1
	}
	for _, d := range dirs {
		_ = unix.Rmdir(filepath.Dir(d.path))
	}
	return 0
}

// released reads the pipe until the runner says to go (true) or is gone
// (false). What else it says goes to hear, line by line; with an interval, so
// does nothing, that often.
func released(pipe int, every time.Duration, hear func(line []byte)) bool {
	buf := make([]byte, 4096)
	var said []byte // and not whole yet
	for {
		if every > 0 {
			fds := []unix.PollFd{{Fd: int32(pipe), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, int(every/time.Millisecond))
			if n == 0 || errors.Is(err, unix.EINTR) {
				hear(nil)
				continue
			}
		}
		n, err := unix.Read(pipe, buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n == 0:
			return false
		}
		said = append(said, buf[:n]...)
		for {
			line, rest, whole := bytes.Cut(said, []byte{'\n'})
			if !whole {
				break
			}
			if string(line) == "q" {
				return true
			}
			hear(line)
			said = rest
		}
	}
}

// isHelper: another session's guard is a child of the runner in a session of
// its own as well, and so is the leader of a job.
func isHelper(pid int) bool {
	b, err := readFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && (bytes.HasPrefix(b, []byte(reexecName+"\x00"+guardArg+"\x00")) || bytes.HasPrefix(b, []byte(reexecName+"\x00"+leaderArg+"\x00")))
}
