package proctree

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

const (
	// killTime bounds how long Kill goes after what forks faster than it is found.
	killTime = time.Second
	// huntTime is how long each round of Wait does so after a Kill.
	huntTime = 100 * time.Millisecond
	// ahead is how many process ids after that of a dead one are looked at.
	ahead = 16
)

// Kill ends every member that it finds, for a second at the most. What it does
// not find by then, Wait goes on to end.
func (g *Group) Kill() error {
	forest.Lock()
	g.condemned = map[int]uint64{}
	forest.Unlock()
	g.hunt(killTime)
	return nil
}

// Wait returns when the group has no live member, or with ctx's error.
func (g *Group) Wait(ctx context.Context) error {
	err := procs.Wait(ctx, g.remaining)
	if err == nil {
		forest.Lock()
		g.open, g.condemned = false, nil
		forest.Unlock()
	}
	return err
}

// nobodyKnown stands for members that are there but were not found.
const nobodyKnown = -1

// remaining lists the live members. It is empty only if there is none for certain.
func (g *Group) remaining() []int {
	forest.Lock()
	condemned := g.condemned != nil
	forest.Unlock()
	if condemned {
		g.hunt(huntTime)
	}
	if live := g.list(); len(live) > 0 {
		return live
	}
	if !g.settled() {
		return []int{nobodyKnown}
	}
	return nil
}

// hunt kills until two looks in a row find nobody who was not killed yet, or the
// time is up. A process that forks and exits at once is gone before a look through
// /proc comes to its child. But its end is told at once, and its child is near: it
// has one of the next process ids, and is a child of ours.
func (g *Group) hunt(limit time.Duration) {
	end := time.Now().Add(limit)
	for quiet := 0; quiet < 2 && time.Now().Before(end); {
		forest.Lock()
		found, any := g.strike()
		forest.Unlock()
		switch {
		case !any:
			return
		case found:
			quiet = 0
		default:
			quiet++
		}
	}
}

// strike kills what it finds next. found tells whether that was somebody new, or
// whether somebody has died; any is false when nobody is left.
func (g *Group) strike() (found, any bool) {
	if g.runner.PID == os.Getpid() {
		dead, any := children()
		if !any {
			return false, false
		}
		if dead != 0 && g.follow(dead) {
			return true, true
		}
	}
	for _, pid := range g.look() {
		if st, ok := procs.Read(pid); ok && g.known[pid] == st.Start {
			found = g.execute(st) || found
		}
	}
	return found, true
}

// follow kills the children of ours that began just after one that has died, and
// reaps that. False: it is not ours to reap.
func (g *Group) follow(dead int) bool {
	helpers.Lock()
	defer helpers.Unlock()
	for pid := dead + 1; pid <= dead+ahead && g.heir(); pid++ {
		if st, ok := procs.Read(pid); ok && g.ours(st) && !g.anothers(st) && leads(pid) {
			g.execute(st)
		}
	}
	return g.reap(dead)
}

// execute kills a process, once. The descriptor makes sure that it is still the
// one that was looked at.
func (g *Group) execute(st procs.Stat) (first bool) {
	if g.condemned[st.PID] == st.Start || st.Dead() {
		return false
	}
	switch fd, err := unix.PidfdOpen(st.PID, 0); {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // an old kernel, a filter
		_ = unix.Kill(st.PID, unix.SIGKILL)
	case err != nil:
		return false
	default:
		defer unix.Close(fd)
		if now, ok := procs.Read(st.PID); !ok || now.Start != st.Start || unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != nil {
			return false
		}
	}
	g.condemned[st.PID] = st.Start
	return true
}

// anothers tells whether another group knows a process.
func (g *Group) anothers(st procs.Stat) bool {
	for other := range forest.groups {
		if start, known := other.known[st.PID]; other != g && (known && start == st.Start || other.sids[st.SID]) {
			return true
		}
	}
	return false
}

// leads tells whether pid is a process and not one of its threads, which /proc
// shows by their numbers as well, without listing them.
func leads(pid int) bool {
	b, err := procs.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err == nil && bytes.Contains(b, []byte("\nTgid:\t"+strconv.Itoa(pid)+"\n"))
}
