//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The name and first argument of what the own binary is started for.
const (
	roleName = "assay-run"
	roleArg  = "__observer"
)

// keeperSuffix names a directory whose holder waits until the set may go, which is
// at the directory's time of modification.
const keeperSuffix = "_keeper"

// keeperLook is how often the process that waits looks whether it still has to.
const keeperLook = 500 * time.Millisecond

func (p pinDir) keeper() string { return p.dir() + keeperSuffix }

// entered tells whether this program would play the roles when started for them.
var entered bool

// Enter plays the role that this process was started for, and then exits. It
// returns where there is none. A program that calls it first thing can keep the
// shared observer after a run (Config.Keep), and free what a killed run left
// (Afterwards).
func Enter() {
	entered = true
	if len(os.Args) < 3 || os.Args[0] != roleName || os.Args[1] != roleArg {
		return
	}
	switch {
	case os.Args[2] == "sweep" && len(os.Args) == 4:
		untilGone(os.Args[3])
		if p, err := findPinDir(); err != nil || p.nested() != nil { // its run loaded its own programs
			os.Exit(0)
		}
		_, _, err := Sweep()
		os.Exit(exitCode(err))
	case os.Args[2] == "sweeper" && len(os.Args) == 4:
		os.Exit(exitCode(sweepAfter(os.Args[3])))
	case os.Args[2] == "keep" && len(os.Args) == 5:
		keepUntilIdle(pinDir{home: os.Args[3], name: os.Args[4]})
		os.Exit(0)
	}
	os.Exit(125)
}

func exitCode(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// Afterwards is the command line that frees what a run of this process with a shared
// observer leaves when it is killed, for /proc/self/exe; nil when Enter was not called.
func Afterwards() []string {
	if !entered {
		return nil
	}
	return []string{roleName, roleArg, "sweep", strconv.Itoa(os.Getpid())}
}

// untilGone waits until the process with this id has ended: one that is killed can
// have closed its end of a pipe and not yet given up its locks. It waits a minute at
// most, should the process live on or its id be another's by now.
func untilGone(id string) {
	pid, err := strconv.Atoi(id)
	if err != nil {
		return
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for end := time.Now().Add(time.Minute); ; {
		left := max(0, time.Until(end).Milliseconds())
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left)); err != unix.EINTR {
			return
		}
	}
}

// keepFor makes the set stay for some time after its last session: a process of its
// own waits, the one that is there already if there is one. The caller holds a lock
// of the set.
func (p pinDir) keepFor(d time.Duration) error {
	until := time.Now().Add(d)
	if err := os.Mkdir(p.keeper(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if st, err := os.Stat(p.keeper()); err == nil && st.ModTime().After(until) {
		until = st.ModTime()
	}
	if err := os.Chtimes(p.keeper(), until, until); err != nil {
		return err
	}
	lock, err := lockDir(p.keeper(), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if !entered {
		return errors.New("this program cannot start a process that waits")
	}
	set, err := lockDir(p.lock(), unix.LOCK_SH|unix.LOCK_NB)
	if err != nil {
		return err
	}
	defer set.Close()
	c := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{roleName, roleArg, "keep", p.home, p.name}, Dir: "/",
		Env: []string{"GOMAXPROCS=1"}, ExtraFiles: []*os.File{lock, set}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := c.Start(); err != nil {
		return err
	}
	return c.Process.Release()
}

// keepUntilIdle is the process that waits. It has the locks of the keeper and of the
// set as descriptors 3 and 4.
func keepUntilIdle(p pinDir) {
	keeper, set := os.NewFile(3, "keeper"), os.NewFile(4, "set")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	for {
		st, err := os.Stat(p.keeper())
		if err != nil {
			break
		}
		wait := time.Until(st.ModTime())
		if wait <= 0 {
			break
		}
		time.Sleep(min(wait, keeperLook))
	}
	_ = os.Remove(p.keeper())
	keeper.Close()
	p.removeIfLast(set)
	set.Close()
}

// HostObserver is an observer that is pinned on this host.
type HostObserver struct {
	// Path is the directory that it is pinned in; Own tells whether it is this
	// build's, and Kept that it stays without a run until StopObserver.
	Path string `json:"path"`
	Own  bool   `json:"own"`
	Kept bool   `json:"kept"`
	// Sessions are how many runs it observes, -1 of another build's. Problem says
	// why no run should use it, empty if it is what this build would load.
	Sessions int    `json:"sessions"`
	Problem  string `json:"problem,omitempty"`
}

// HostObservers lists the observers that are pinned on this host. It compares this
// build's with what this build would load.
func HostObservers() ([]HostObserver, error) {
	return pinnedObservers((*set).genuine)
}

// pinnedObservers lists them. check looks into this build's.
func pinnedObservers(check func(*set) error) ([]HostObserver, error) {
	p, err := findPinDir()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(p.home)
	if err != nil {
		return nil, err
	}
	out := []HostObserver{}
	for _, e := range entries {
		if strings.Contains(e.Name(), "_") {
			continue
		}
		other := pinDir{home: p.home, name: e.Name()}
		h := HostObserver{Path: other.dir(), Own: other.name == p.name, Sessions: -1}
		_, err := os.Lstat(other.keep())
		h.Kept = err == nil
		if h.Own {
			s, err := openSet(other.dir())
			if err != nil {
				h.Problem = err.Error()
			} else {
				h.Sessions = s.taken()
				if err := check(s); err != nil {
					h.Problem = err.Error()
				}
				s.close()
			}
		}
		out = append(out, h)
	}
	return out, nil
}

// taken counts the sessions of a set.
func (s *set) taken() (n int) {
	for i := range uint32(s.slots) {
		if atomic.LoadUint64(&s.session(i).Cgroup) != 0 {
			n++
		}
	}
	return n
}

// StartObserver pins an observer for this build's runs and keeps it until
// StopObserver.
func StartObserver() error {
	p, err := findPinDir()
	if err != nil {
		return err
	}
	if err := p.nested(); err != nil {
		return err
	}
	lock, err := lockMade(p.lock(), unix.LOCK_SH)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := os.Mkdir(p.keep(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	s, err := p.open(ringSize(0))
	if err != nil {
		_ = os.Remove(p.keep())
		p.removeIfLast(lock)
		return classify(err)
	}
	return s.close()
}

// StopObserver lets the observers of all builds go: at once where no run uses them,
// else with their last run. It returns how many are still in use.
func StopObserver() (used int, err error) {
	p, err := findPinDir()
	if err != nil {
		return 0, err
	}
	for _, suffix := range []string{keepSuffix, keeperSuffix} {
		marks, err := filepath.Glob(filepath.Join(p.home, "*"+suffix))
		if err != nil {
			return 0, err
		}
		for _, mark := range marks {
			if err := os.Remove(mark); err != nil && !errors.Is(err, os.ErrNotExist) {
				return 0, err
			}
		}
	}
	for begin := time.Now(); ; time.Sleep(keeperLook / 10) {
		if _, _, err := Sweep(); err != nil {
			return 0, err
		}
		left, err := pinnedObservers(func(*set) error { return nil })
		if err != nil {
			return 0, fmt.Errorf("look for processes that are left: %w", err)
		}
		// Who waits lets go when it looks next.
		if len(left) == 0 || time.Since(begin) > 2*keeperLook {
			return len(left), nil
		}
	}
}
