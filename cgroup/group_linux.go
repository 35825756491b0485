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
// made themselves. Zombies are not live.
func (g *Group) Procs() ([]Proc, error) {
	pids, err := g.members.List()
	if err != nil {
		return nil, err
	}
	ps := []Proc{}
	for _, pid := range pids {
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

// Empty tells that the group has no live member: with it, Wait would return at once.
// Where one look cannot tell, as in mode None, it is false.
func (g *Group) Empty() bool { return g.members.Empty() }

// Wait returns when the group has no live member, or with ctx's error. It
// sleeps on the members' exits and does not poll.
func (g *Group) Wait(ctx context.Context) error { return g.members.Wait(ctx) }
