package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group is one set of processes of a session.
type Group struct {
	session *Session
	name    string
	dirs    []dir // the primary first; nil in mode None
	tree    *tree // mode None only

	mu sync.Mutex
	l  *launcher // a thread of ours in the v1 hierarchies; nil when there is none
}

// Name is the name that the group was created with.
func (g *Group) Name() string { return g.name }

// Path is the group's directory on the primary hierarchy, "" in mode None.
func (g *Group) Path() string {
	if len(g.dirs) == 0 {
		return ""
	}
	return g.dirs[0].path
}

// ID is the group's cgroup2 id as BPF programs see it, which is the inode
// number of its directory; 0 without cgroup2.
func (g *Group) ID() uint64 {
	if len(g.dirs) == 0 || !g.dirs[0].v2 {
		return 0
	}
	var st unix.Stat_t
	if err := unix.Stat(g.dirs[0].path, &st); err != nil {
		return 0
	}
	return st.Ino
}

// list returns the pids of the live members.
func (g *Group) list() []int {
	if g.tree != nil {
		return g.tree.list()
	}
	return pids(g.dirs)
}

// Procs lists the live processes of the group, also those in cgroups that they
// made themselves. Zombies are not live.
func (g *Group) Procs() ([]Proc, error) {
	if len(g.dirs) > 0 && !exists(g.dirs[0].path) {
		return nil, fmt.Errorf("list processes of cgroup %s: %w", g.dirs[0].path, os.ErrNotExist)
	}
	ps := []Proc{}
	for _, pid := range g.list() {
		comm, _ := readFile("/proc/" + strconv.Itoa(pid) + "/comm")
		ps = append(ps, Proc{PID: pid, Name: string(bytes.TrimSuffix(comm, []byte("\n")))})
	}
	return ps, nil
}

// Signal sends a signal to every member, also to those forked meanwhile, once
// each. A group without members is no error.
func (g *Group) Signal(sig syscall.Signal) error {
	if sig == unix.SIGKILL {
		return g.Kill()
	}
	if err := signalRounds(g.list, sig); err != nil {
		return fmt.Errorf("group %s: %w", g.name, err)
	}
	return nil
}

// Freeze stops every member where it is, Thaw lets them go on. With cgroup2 or
// a v1 freezer the members cannot tell; in mode None it is SIGSTOP and
// SIGCONT, which their parents see. Freeze does not wait until all stand.
func (g *Group) Freeze() error { return g.freeze(true) }

// Thaw undoes Freeze.
func (g *Group) Thaw() error { return g.freeze(false) }

func (g *Group) freeze(on bool) error {
	if len(g.dirs) > 0 && freeze(g.dirs, on) {
		return nil
	}
	if on {
		return g.Signal(unix.SIGSTOP)
	}
	return g.Signal(unix.SIGCONT)
}

// Kill ends every member with SIGKILL, whatever state it is in. It does not
// wait until they are gone (Wait does), but none of them can fork any more.
func (g *Group) Kill() error {
	var err error
	if g.tree != nil {
		err = signalRounds(g.list, unix.SIGKILL)
	} else {
		err = kill(g.dirs)
	}
	if err != nil {
		return fmt.Errorf("kill group %s: %w", g.name, err)
	}
	return nil
}

// Wait returns when the group has no live member, or with ctx's error. It
// sleeps on the members' exits and does not poll.
func (g *Group) Wait(ctx context.Context) error {
	return waitEmpty(ctx, func() []int {
		if g.tree == nil && empty(g.dirs) {
			return nil
		}
		return g.list()
	})
}

// waitEmpty waits until list returns nothing, by waiting for what it returned
// to exit and asking again.
func waitEmpty(ctx context.Context, list func() []int) error {
	cancel, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("wait for processes: %w", err)
	}
	var once sync.Mutex
	open := true
	stop := context.AfterFunc(ctx, func() {
		once.Lock()
		defer once.Unlock()
		if open {
			_, _ = unix.Write(cancel, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		}
	})
	defer func() {
		stop()
		once.Lock()
		defer once.Unlock()
		open = false
		unix.Close(cancel)
	}()
	pause := 100 * time.Microsecond
	for {
		members := list()
		if len(members) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		start := time.Now()
		if !waitExits(cancel, members) || time.Since(start) < pause {
			// No pidfds here, or dead processes that are still listed.
			fds := []unix.PollFd{{Fd: int32(cancel), Events: unix.POLLIN}}
			ts := unix.NsecToTimespec(int64(pause))
			_, _ = unix.Ppoll(fds, &ts, nil)
			pause = min(2*pause, 20*time.Millisecond)
		} else {
			pause = 100 * time.Microsecond
		}
	}
}

// waitExits waits until the processes (the first few of many) have exited, or
// cancel is readable. False: it cannot tell.
func waitExits(cancel int, pids []int) bool {
	fds := []unix.PollFd{{Fd: int32(cancel), Events: unix.POLLIN}}
	defer func() {
		for _, fd := range fds[1:] {
			if fd.Fd >= 0 {
				unix.Close(int(fd.Fd))
			}
		}
	}()
	for _, pid := range pids[:min(len(pids), 64)] {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		} else if err != nil {
			break
		}
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if len(fds) == 1 {
		return false
	}
	poll := slices.Clone(fds)
	for left := len(fds) - 1; left > 0; {
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return false
		}
		if poll[0].Revents != 0 {
			return true
		}
		for i := 1; i < len(poll); i++ {
			if poll[i].Fd >= 0 && poll[i].Revents != 0 {
				poll[i].Fd = -1 // poll(2) ignores it
				left--
			}
		}
	}
	return true
}

// joinFiles are the v1 files that a thread joins the group by.
func (g *Group) joinFiles(name string) []string {
	var files []string
	for _, d := range g.dirs {
		if !d.v2 {
			files = append(files, filepath.Join(d.path, name))
		}
	}
	return files
}
