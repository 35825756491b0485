//go:build linux

package cgroup_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/cgroup"
)

// guardNamed is the guard of a run, 0 when there is none.
func guardNamed(id string) int {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range names {
		if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte("\x00__guard\x00"+id+"\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			return pid
		}
	}
	return 0
}

// halted reports whether each thread of a process is stopped. It has settled once each is,
// or none is left but for who reaps them: one thread may still end the process while others
// are stopped.
func halted(pid int) (stopped, settled bool) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	halts, ended := 0, 0
	for _, f := range threads {
		b, _ := os.ReadFile(f)
		switch {
		case bytes.Contains(b, []byte(") T ")):
			halts++
		case len(b) == 0, bytes.Contains(b, []byte(") Z ")), bytes.Contains(b, []byte(") X ")):
			ended++
		}
	}
	return halts > 0 && halts == len(threads), halts == len(threads) || ended == len(threads)
}

// An agent of the runner's user can stop the guard and kill the runner. The guard
// goes on once the runner is gone; where it is stopped again and again, the next run
// continues it, and tells.
func TestAStoppedGuardEndsTheRunAllTheSame(t *testing.T) {
	for name, again := range map[string]bool{"once": false, "again and again": true} {
		t.Run(name, func(t *testing.T) {
			id := fmt.Sprintf("%s-stopped-%t", testID(), again)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cmd := exec.Command("/proc/self/exe", "role=runner", id)
			cmd.Stdout = w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			if _, err := r.Read(make([]byte, 1)); err != nil { // its command is up
				t.Fatal(err)
			}
			guard := guardNamed(id)
			if guard == 0 {
				t.Fatal("there is no guard")
			}
			stop := func() { _ = syscall.Kill(guard, syscall.SIGSTOP) }
			stop()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			ended := func() bool {
				_ = r.SetReadDeadline(time.Now().Add(time.Millisecond))
				_, err := io.ReadAll(r)
				return err == nil
			}
			if again {
				for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
					stop()
				}
				var stopped bool
				if !leaktest.Within(30*time.Second, func() (settled bool) {
					stopped, settled = halted(guard)
					return settled
				}) {
					t.Error("the guard is neither stopped nor gone")
				}
				swept, err := cgroup.Probe().Sweep(nil)
				told := slices.Contains(swept, cgroup.Swept{RunID: id, Stopped: true})
				// Another run on this host may have continued it, and told; there is none in a virtual machine.
				alone := os.Getenv("CGROUP_TEST_INNER") == "vm"
				if err != nil || told && !stopped || alone && !told && stopped {
					t.Errorf("stopped %t, swept %+v, %v", stopped, swept, err)
				}
			}
			if !leaktest.Within(30*time.Second, ended) {
				_ = syscall.Kill(guard, syscall.SIGCONT)
				t.Error("what the runner left lives on")
			}
			if !leaktest.Within(30*time.Second, func() bool { return len(dirsOf(id)) == 0 && guardNamed(id) == 0 }) {
				t.Errorf("cgroups are left: %v", dirsOf(id))
			}
		})
	}
}
