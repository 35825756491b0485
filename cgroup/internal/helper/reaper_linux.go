package helper

import (
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Reaper waits for the orphans of a session that become children of this process. Without it they would be zombies
// until the run ends, and would look alive to the agent. Without assay-run, init would reap them.
type Reaper struct {
	reap    func(started func(pid int) bool)
	died    chan os.Signal
	stopped chan struct{}
	done    chan struct{}
	once    sync.Once

	mu      sync.Mutex
	started map[int]bool // commands, whose exit status is for those who started them
}

// reapDelay is how long a zombie may have to wait, so that those that die together are reaped together.
const reapDelay = 5 * time.Millisecond

// NewReaper makes one that calls reap when children of this process have died.
func NewReaper(reap func(started func(pid int) bool)) *Reaper {
	r := &Reaper{
		reap: reap, died: make(chan os.Signal, 1), stopped: make(chan struct{}), done: make(chan struct{}),
		started: map[int]bool{},
	}
	signal.Notify(r.died, unix.SIGCHLD)
	go r.run()
	return r
}

func (r *Reaper) run() {
	defer close(r.done)
	for {
		select {
		case <-r.stopped:
			return
		case <-r.died:
		}
		select {
		case <-r.stopped:
			return
		case <-time.After(reapDelay):
			r.mu.Lock()
			r.reap(func(pid int) bool { return r.started[pid] })
			r.mu.Unlock()
		}
	}
}

// Stop ends the reaper. Later calls do nothing.
func (r *Reaper) Stop() {
	r.once.Do(func() {
		signal.Stop(r.died)
		close(r.stopped)
		<-r.done
	})
}

// Start starts a command of the session with f. It makes sure that the command is not reaped before it is registered.
func (r *Reaper) Start(cmd *exec.Cmd, f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := f()
	if err == nil {
		r.started[cmd.Process.Pid] = true
	}
	return err
}
