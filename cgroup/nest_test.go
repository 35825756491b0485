//go:build linux

package cgroup_test

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
)

func TestNestedTakesProcessesOfItsGroupAlone(t *testing.T) {
	host := cgroup.Probe()
	if host.Mode() != cgroup.Unified && host.Mode() != cgroup.Hybrid {
		t.Skipf("no writable cgroup2: the host's mode is %s", host.Mode())
	}
	s, err := host.NewSession(testID()+"-nest", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Remove()
	n, err := s.Agent().Nest("tool-1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Agent().Nest("../escape"); err == nil {
		t.Error("a name with a slash was accepted")
	}
	member := exec.Command("sleep", "60")
	if err := s.Agent().Start(member); err != nil {
		t.Fatal(err)
	}
	defer member.Wait()
	fd := pidfd(t, member.Process.Pid)
	if err := n.Adopt(member.Process.Pid, fd); err != nil {
		t.Fatal(err)
	}
	procs, err := s.Agent().Procs()
	if err != nil || len(procs) != 1 || procs[0].PID != member.Process.Pid {
		t.Errorf("the group has %v, %v; want the process, which stays a member", procs, err)
	}
	if err := n.Remove(); err == nil {
		t.Error("removed with a process in it")
	}
	if err := n.Adopt(os.Getpid(), pidfd(t, os.Getpid())); !errors.Is(err, cgroup.ErrNotMember) {
		t.Errorf("a process from outside: %v, want ErrNotMember", err)
	}
	if err := s.Agent().Kill(); err != nil {
		t.Fatal(err)
	}
	_ = member.Wait()
	if err := n.Adopt(member.Process.Pid, fd); !errors.Is(err, cgroup.ErrNotMember) {
		t.Errorf("a process that has ended: %v, want ErrNotMember", err)
	}
	if err := n.Remove(); err != nil {
		t.Error(err)
	}
}

func pidfd(t *testing.T, pid int) int {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestMoveTakesProcessesOfTheGroupAlone moves a process to another group of its session.
func TestMoveTakesProcessesOfTheGroupAlone(t *testing.T) {
	host := cgroup.Probe()
	s, err := host.NewSession(testID()+"-move", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Remove()
	other, err := s.NewGroup("servers")
	if err != nil {
		t.Fatal(err)
	}
	member := exec.Command("sleep", "60")
	if err := s.Agent().Start(member); err != nil {
		t.Fatal(err)
	}
	defer func() {
		member.Process.Kill()
		member.Wait()
	}()
	fd := pidfd(t, member.Process.Pid)
	if err := s.Agent().Move(other, os.Getpid(), pidfd(t, os.Getpid())); !errors.Is(err, cgroup.ErrNotMember) &&
		!errors.Is(err, cgroup.ErrNotSupported) {
		t.Errorf("a process from outside: %v, want ErrNotMember", err)
	}
	if err = s.Agent().Move(other, member.Process.Pid, fd); host.Mode() == cgroup.None {
		if !errors.Is(err, cgroup.ErrNotSupported) {
			t.Errorf("without a writable cgroup: %v, want ErrNotSupported", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	procs, err := other.Procs()
	if err != nil || len(procs) != 1 || procs[0].PID != member.Process.Pid || !s.Agent().Empty() {
		t.Errorf("the other group has %v, %v; want the process alone", procs, err)
	}
	if err := other.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = member.Wait()
	if err := s.Agent().Move(other, member.Process.Pid, fd); !errors.Is(err, cgroup.ErrNotMember) {
		t.Errorf("a process that has ended: %v, want ErrNotMember", err)
	}
}
