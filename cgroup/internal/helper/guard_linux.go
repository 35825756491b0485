package helper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/dirs"
	"github.com/assay-run/assay-run/cgroup/internal/proctree"
)

// Guard is the runner's handle of a session's guard process.
type Guard struct {
	pid   int
	ready *os.File // its end is that the guard has concealed itself
	hide  sync.Once
	// exposed is set by hide.
	exposed bool
	once    sync.Once
	pipe    *os.File    // nil without a guard
	waiter  *os.Process // nil where the guard itself reads the pipe
	room    int         // what a waiter's pipe still takes for certain, in bytes
	dir     dirs.GuardDir
	done    chan struct{} // closed when the guard is gone; nil when nobody can wait for it
}

// StartGuard starts the guard of a session. It holds nothing of the runner's but
// the read end of a pipe, terminal, if that is not nil, and locks. The ward is the
// arguments that the session's backend made. dir is the guard's from here on.
func StartGuard(runID string, ward []string, terminal *os.File, locks []int, dir dirs.GuardDir) (_ *Guard, err error) {
	defer func() {
		if err != nil {
			dir.Remove()
		}
	}()
	if err := available(); err != nil {
		return nil, err
	}
	if proctree.IsWard(ward) && os.Getpid() == 1 {
		return &Guard{}, nil // nothing here outlives process 1, a guard included
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	ready, up, err := os.Pipe()
	if err != nil {
		w.Close()
		return nil, err
	}
	defer up.Close()
	defer func() {
		if err != nil {
			w.Close()
			ready.Close()
		}
	}()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	socket := shownSocket()
	defer socket.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{name, guardArg, runID}, ward...), Dir: "/",
		// One thread's worth of Go is enough, and nothing of the runner's
		// environment is its business.
		Env:   []string{"GOMAXPROCS=1", "GOTRACEBACK=none"},
		Stdin: null, Stdout: null, Stderr: null, // os/exec would open it for each
		ExtraFiles:  []*os.File{r, terminal, up, nil, nil, socket},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	for _, lock := range locks {
		lock, err := unix.FcntlInt(uintptr(lock), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(lock), "lock")
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	if dir.Lock != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, dir.Lock)
	}
	g := &Guard{pipe: w, ready: ready, dir: dir}
	defer func() {
		if err == nil {
			wakeful(int(r.Fd()), g.pid)
			_ = show(socket, g.pid)
		}
	}()
	if proctree.IsWard(ward) {
		if g.pid, err = startElsewhere(cmd, ready); g.pid != 0 || err != nil {
			return g, err
		}
	}
	var waits []*os.File
	if terminal == nil { // else the guard has to be quick: see terminal.restore
		waits = await(cmd, ward)
	}
	g.done = make(chan struct{})
	err = dir.Start(cmd, proctree.StartHelper)
	for _, f := range waits {
		f.Close()
	}
	if cmd.Process != nil {
		if g.pid = cmd.Process.Pid; waits != nil {
			g.waiter, g.room = cmd.Process, roomIn(w)
		}
		go func() { proctree.WaitHelper(cmd); close(g.done) }()
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

// wakeful makes the kernel continue a guard, should somebody have stopped it, when
// something comes through its pipe and when the runner, at the other end, is gone:
// F_SETSIG of fcntl(2).
func wakeful(pipe, guard int) {
	_, _ = unix.FcntlInt(uintptr(pipe), unix.F_SETOWN, guard)
	_, _ = unix.FcntlInt(uintptr(pipe), unix.F_SETSIG, int(unix.SIGCONT))
	if flags, err := unix.FcntlInt(uintptr(pipe), unix.F_GETFL, 0); err == nil {
		_, _ = unix.FcntlInt(uintptr(pipe), unix.F_SETFL, flags|unix.O_ASYNC)
	}
}

// startElsewhere starts a guard that is no child of this process: it would be in
// the way of telling that no child is left. The pid is 0 where that is impossible.
func startElsewhere(cmd *exec.Cmd, ready *os.File) (pid int, err error) {
	between := *cmd
	between.Args = append([]string{name, elsewhereArg, strconv.Itoa(3 + len(cmd.ExtraFiles))}, cmd.Args...)
	done, err := proctree.Elsewhere((*exec.Cmd).Run, &between)
	if !done || err != nil {
		return 0, err
	}
	var b [4]byte
	if _, err := io.ReadFull(ready, b[:]); err != nil {
		return 0, fmt.Errorf("read the guard's process id: %w", err)
	}
	return int(binary.NativeEndian.Uint32(b[:])), nil
}

// elsewhereMain starts a guard, tells its pid, and goes. Its arguments are name,
// elsewhereArg, how many descriptors the guard gets, and the guard's own.
func elsewhereMain(args []string) int {
	if len(args) < 4 {
		return 125
	}
	n, _ := strconv.Atoi(args[2])
	files := []uintptr{0, 1, 2}
	for fd := 3; fd < n; fd++ {
		// The Go runtime's own are closed on exec, what we were given is not.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			files = append(files, ^uintptr(0))
			continue
		}
		files = append(files, uintptr(fd))
	}
	pid, err := syscall.ForkExec("/proc/self/exe", args[3:], &syscall.ProcAttr{Dir: "/", Env: exactEnviron(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return 125
	}
	_, err = unix.Write(guardUp, binary.NativeEndian.AppendUint32(nil, uint32(pid)))
	if err != nil {
		return 125
	}
	return 0
}

// Concealed returns once nobody of the same user can look into the guard. Later
// calls do nothing. A guard that does not come up holds nobody up for long.
func (g *Guard) Concealed() {
	g.hide.Do(func() {
		if g.ready == nil {
			return
		}
		_ = g.ready.SetReadDeadline(time.Now().Add(concealWait))
		_, err := g.ready.Read(make([]byte, 1))
		g.exposed = !errors.Is(err, io.EOF)
		g.ready.Close()
	})
}

// Exposed tells whether the wait of Concealed was in vain.
func (g *Guard) Exposed() bool {
	g.hide.Do(func() { g.ready.Close() })
	return g.exposed
}

// concealWait bounds the wait for a guard to come up: somebody may have stopped it.
const concealWait = 5 * time.Second

// PID is the guard's process id.
func (g *Guard) PID() int { return g.pid }

// Write sends the guard a line. Nobody reads the pipe of a waiter: what it may not
// take is not sent.
func (g *Guard) Write(line []byte) (int, error) {
	if g.waiter != nil {
		if g.room -= len(line); g.room < 0 {
			return 0, errPipeFull
		}
	}
	return g.pipe.Write(line)
}

var errPipeFull = errors.New("the guard's pipe is full")

// Leave leaves the session to the guard: it ends what is alive, as it does when
// the runner is gone, and takes the time that it needs.
func (g *Guard) Leave() {
	g.once.Do(func() {
		g.hide.Do(func() { g.ready.Close() })
		g.pipe.Close()
		if g.dir.Lock != nil {
			g.dir.Lock.Close()
		}
	})
}

// Release tells the guard to go. It waits for it only where the guard has a
// cgroup of its own, which goes after it.
func (g *Guard) Release() error {
	var err error
	g.once.Do(func() {
		if g.pipe == nil {
			return
		}
		g.hide.Do(func() { g.ready.Close() })
		_, err = g.pipe.Write([]byte("q\n"))
		if g.waiter != nil { // it would have to start Go to read that
			if killed := g.waiter.Kill(); !errors.Is(killed, os.ErrProcessDone) {
				err = errors.Join(err, killed)
			}
		}
		err = errors.Join(err, g.pipe.Close())
		if g.dir.Path != "" {
			select {
			case <-g.done:
			case <-time.After(time.Second): // it is stopped: a sweep finds the cgroup
			}
			g.dir.Remove()
		}
	})
	if err != nil {
		return fmt.Errorf("release guard %d: %w", g.pid, err)
	}
	return nil
}
