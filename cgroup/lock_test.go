//go:build linux

package cgroup_test

import (
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/assay-run/assay-run/cgroup"
)

// A guard that has not come to its work yet would end whatever there is under its
// run's id by then: the id is in use until it is done.
func TestRunIDIsInUseUntilTheGuardIsDone(t *testing.T) {
	id := testID() + "-again"
	cmd := exec.Command("/proc/self/exe", "role=homely runner", id)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var command int
	if _, err := fmt.Fscan(out, &command); err != nil {
		t.Fatal(err)
	}
	guard := guardOf(t, id)
	if err := syscall.Kill(guard, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	// The runner's end continues the guard: it is slowed down until we have looked.
	stopped, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stopped:
				return
			default:
				_ = syscall.Kill(guard, syscall.SIGSTOP)
			}
		}
	}()
	if s, err := cgroup.Probe().NewSession(id, cgroup.Limits{}); err == nil {
		if running(command) {
			t.Error("a session while the guard is there")
		}
		_ = s.Remove()
	} else if !errors.Is(err, cgroup.ErrInUse) {
		t.Error(err)
	}
	close(stopped)
	<-done
	_ = syscall.Kill(guard, syscall.SIGCONT)
	s, err := cgroup.Probe().NewSession(id, cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if running(command) {
		t.Error("the command of the run before lives on")
	}
	if err := s.Remove(); err != nil {
		t.Error(err)
	}
}

// guardOf is the process id of the guard of a run.
func guardOf(t *testing.T, id string) int {
	t.Helper()
	found := guards(id)
	if len(found) != 1 {
		t.Fatalf("guards of %s: %v", id, found)
	}
	return found[0]
}
