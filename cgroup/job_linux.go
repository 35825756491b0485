package cgroup

import (
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/helper"
	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

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
