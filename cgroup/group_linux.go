package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/dirs"
	"github.com/assay-run/assay-run/cgroup/internal/helper"
	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Group is one set of processes of a session.
type Group struct {
	session *Session
	name    string
	members members
}

// Name is the name that the group was created with.
func (g *Group) Name() string { return g.name }

// Path is the group's directory on the primary hierarchy, "" in mode None.
func (g *Group) Path() string { return g.members.Path() }

// ID is the group's cgroup2 id as BPF programs see it, which is the inode
// number of its directory; 0 without cgroup2.
func (g *Group) ID() uint64 { return g.members.ID() }

// Start starts a command inside the group: it is a member before its first
// instruction. Everything in cmd means what it means to exec.Cmd.Start, and
// the errors are the same, or wrap ErrNoHelper; cmd.Wait is the caller's. Only, in
// mode None, the command gets a session of its own unless cmd.SysProcAttr asks for
// Setsid or Setpgid itself.
func (g *Group) Start(cmd *exec.Cmd) error {
	fork := (*exec.Cmd).Start
	return g.start(cmd, procs.Starter{
		Fork: fork,
		Join: func(cmd *exec.Cmd, files []string) error { return helper.Join(cmd, files, fork) },
	})
}

func (g *Group) start(cmd *exec.Cmd, by procs.Starter) error {
	if cmd.Process != nil {
		return errors.New("exec: already started")
	}
	g.session.concealed()
	start := func() error { return g.members.Start(cmd, by) }
	if r := g.session.reaper; r != nil {
		return r.Start(cmd, start)
	}
	return start()
}

// Procs lists the live processes of the group, also those in cgroups that they
// made themselves. Zombies are not live, nor are exiting processes.
func (g *Group) Procs() ([]Proc, error) {
	pids, err := g.members.List()
	if err != nil {
		return nil, err
	}
	ps := []Proc{}
	for _, pid := range pids {
		if st, ok := procs.Read(pid); ok && st.Ending() {
			continue
		}
		comm, _ := procs.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
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
	if err := g.members.Signal(sig); err != nil {
		return fmt.Errorf("group %s: %w", g.name, err)
	}
	return nil
}

// Freeze stops every member where it is, Thaw lets them go on. With cgroup2 or
// a v1 freezer the members cannot tell; in mode None it is SIGSTOP and
// SIGCONT, which their parents see. Freeze does not wait until all stand.
func (g *Group) Freeze() error { return g.members.Freeze(true) }

// Thaw undoes Freeze.
func (g *Group) Thaw() error { return g.members.Freeze(false) }

// Kill ends every member with SIGKILL, whatever state it is in. It does not
// wait until they are gone (Wait does), but none of them can fork any more.
func (g *Group) Kill() error {
	if err := g.members.Kill(); err != nil {
		return fmt.Errorf("kill group %s: %w", g.name, err)
	}
	return nil
}

// Empty reports whether the group has no live member, so that Wait would return at once. Where one
// look cannot show that, as in mode None, it is false.
func (g *Group) Empty() bool { return g.members.Empty() }

// Wait returns when the group has no live member, or with ctx's error. It
// sleeps on the members' exits and does not poll.
func (g *Group) Wait(ctx context.Context) error { return g.members.Wait(ctx) }

// Job is a command that runs the way a shell runs one: in a process group of
// its own, in the foreground of its terminal, with a parent in the same session.
//
// The parent is a re-exec of this binary, the leader. It leads the terminal's
// session in place of a shell, and is in none of the run's cgroups. POSIX needs
// it: a group whose members all have their parents in another session is
// orphaned, and the kernel then ignores SIGTSTP, SIGTTIN and SIGTTOU in it
// (is_current_pgrp_orphaned, kernel/exit.c), so that no program could suspend.
type Job struct {
	leader *helper.Leader
}

// ErrLeaderGone is returned by Job.Wait when the leader was killed: how the
// command fares cannot be told any more.
var ErrLeaderGone = helper.ErrLeaderGone

// StartJob starts a command as Start does, as the foreground job of a new
// session on the terminal that is cmd.Stdin. cmd.SysProcAttr is the caller's to
// leave alone, and cmd.Process is set, but is no child of ours: Job.Wait tells
// how it fares, not cmd.Wait. Close the job when nothing of the run is left.
func (g *Group) StartJob(cmd *exec.Cmd) (*Job, error) {
	j := &Job{&helper.Leader{}}
	fork := func(cmd *exec.Cmd) error { return j.leader.Fork(cmd, nil, nil) }
	err := g.start(cmd, procs.Starter{
		Fork:   fork,
		Join:   func(cmd *exec.Cmd, files []string) error { return helper.Join(cmd, files, fork) },
		Thread: j.leader.Fork,
	})
	if err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

// Wait returns the next change of the command's state, as wait4(2) with
// WUNTRACED and WCONTINUED; the last one tells how it ended. The error is
// ErrLeaderGone. One goroutine at a time may wait.
func (j *Job) Wait() (unix.WaitStatus, error) { return j.leader.Wait() }

// Close lets the leader go, which hangs up the terminal on whatever of the
// session is left, and waits for it. Later calls do nothing.
func (j *Job) Close() { j.leader.Close() }

// Nested is a cgroup2 below a group's, which only tells its processes from the
// others of the group: they stay members of the group, under the same limits.
// It goes with its session, or before that with Remove.
type Nested = dirs.Nested

// Nest makes a cgroup below the group's. The error wraps ErrNotSupported where
// the session has no cgroup2 directory of its own. The name becomes a
// directory name.
func (g *Group) Nest(name string) (*Nested, error) {
	if !validName(name) {
		return nil, fmt.Errorf("create nested group: invalid name %q", name)
	}
	n, err := g.members.Nest(name)
	if err != nil {
		return nil, fmt.Errorf("create nested group %s: %w", name, err)
	}
	return n, nil
}
