package cgroup

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// reaper waits for the orphans of a session that come to this process, which is
// process 1 of its container, or the subreaper of mode None. Without it they
// would be zombies until the run ends: to the agent, whose init would have
// reaped them, they would look alive.
type reaper struct {
	session *Session
	died    chan os.Signal
	stopped chan struct{}
	done    chan struct{}
	once    sync.Once

	mu      sync.Mutex
	started map[int]bool // commands, whose exit status is for those who started them
}

// reapDelay is how long a zombie may have to wait: who dies together is reaped
// together.
const reapDelay = 5 * time.Millisecond

// needsReaper tells whether orphans come to this process.
func (h *Host) needsReaper() bool { return h.mode == None || os.Getpid() == 1 }

func newReaper(s *Session) *reaper {
	r := &reaper{
		session: s, died: make(chan os.Signal, 1), stopped: make(chan struct{}), done: make(chan struct{}),
		started: map[int]bool{},
	}
	signal.Notify(r.died, unix.SIGCHLD)
	go r.run()
	return r
}

func (r *reaper) run() {
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
			r.reap()
		}
	}
}

func (r *reaper) stop() {
	r.once.Do(func() {
		signal.Stop(r.died)
		close(r.stopped)
		<-r.done
	})
}

// start starts a command of the session's with f. Nobody reaps between its fork
// and its entry here.
func (r *reaper) start(cmd *exec.Cmd, f func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := f()
	if err == nil {
		r.started[cmd.Process.Pid] = true
	}
	return err
}

func (r *reaper) reap() {
	s := r.session
	if len(s.dirs) == 0 {
		s.mu.Lock()
		groups := slices.Clone(s.groups)
		s.mu.Unlock()
		for _, g := range groups {
			g.list() // which reaps
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid, st := range stats() {
		if st.ppid == os.Getpid() && st.state == 'Z' && !r.started[pid] && s.holds(pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// holds tells whether a process, dead or alive, is in the session's cgroup2.
func (s *Session) holds(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && bytes.Contains(b, []byte("/"+parentName+"/"+s.runID+"/"))
}
