package helper

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	once  sync.Once
	pipe  *os.File
	dir   dirs.GuardDir
	done  chan struct{} // closed when the guard is gone
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
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{name, guardArg, runID}, ward...), Dir: "/",
		// One thread's worth of Go is enough, and nothing of the runner's
		// environment is its business.
		Env:         []string{"GOMAXPROCS=1", "GOTRACEBACK=none"},
		ExtraFiles:  []*os.File{r, terminal, up},
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
	err = dir.Start(cmd, proctree.StartHelper)
	g := &Guard{pipe: w, ready: ready, dir: dir, done: make(chan struct{})}
	if cmd.Process != nil {
		g.pid = cmd.Process.Pid
		go func() { proctree.WaitHelper(cmd); close(g.done) }()
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

// Concealed returns once nobody of the same user can look into the guard. Later
// calls do nothing. A guard that does not come up holds nobody up for long.
func (g *Guard) Concealed() {
	g.hide.Do(func() {
		_ = g.ready.SetReadDeadline(time.Now().Add(concealWait))
		_, _ = g.ready.Read(make([]byte, 1))
		g.ready.Close()
	})
}

// concealWait bounds the wait for a guard to come up: somebody may have stopped it.
const concealWait = 5 * time.Second

// PID is the guard's process id.
func (g *Guard) PID() int { return g.pid }

// Write sends the guard a line.
func (g *Guard) Write(line []byte) (int, error) { return g.pipe.Write(line) }

// Release tells the guard to go. It waits for it only where the guard has a
// cgroup of its own, which goes after it.
func (g *Guard) Release() error {
	var err error
	g.once.Do(func() {
		g.hide.Do(func() { g.ready.Close() })
		_, err = g.pipe.Write([]byte("q\n"))
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
