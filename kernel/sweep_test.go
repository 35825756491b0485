//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/cgroup/role"
)

func init() { children["role"] = func([]string) { Enter() } }

// Who is killed has closed its end of a guard's pipe before it has given up its locks,
// and a busy machine makes that time long: what sweeps then waits for its end.
func TestSweepingWaitsForTheEndOfWhoIsKilled(t *testing.T) {
	withoutKeptObserver(t)
	p := myPinDir(t)
	s := sit(t, "/proc/self/exe", newCgroup(t), nil)
	sweep := &exec.Cmd{Path: "/proc/self/exe",
		Args: role.Observer.Args("sweep", strconv.Itoa(s.cmd.Process.Pid)),
		Env:  append(os.Environ(), "KERNEL_TEST_CHILD=role"), Stderr: os.Stderr}
	if err := sweep.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- sweep.Wait() }()
	// It waits once it holds a descriptor of the process.
	if !leaktest.Within(time.Minute, func() bool { return len(ended) > 0 || holdsProcess(sweep.Process.Pid) }) {
		t.Error("it does not come to the waiting")
	}
	if len(ended) > 0 {
		t.Error("it did not wait")
	}
	s.cmd.Process.Kill()
	s.cmd.Wait()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left := pinned(t, p.name); len(left) != 0 {
		t.Errorf("swept, and left %v", left)
	}
}

// Who was killed while it removed a set may not have been waited for yet.
func TestWhatAZombieWasRemovingIsRemoved(t *testing.T) {
	withoutKeptObserver(t)
	p := myPinDir(t)
	c := exec.Command("/bin/true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	zombie := func() bool { return hasEnded(c.Process.Pid) }
	if !leaktest.Within(time.Minute, zombie) {
		t.Fatal("it does not end")
	}
	old, running := p.dir()+oldInfix+strconv.Itoa(c.Process.Pid), p.dir()+oldInfix+strconv.Itoa(os.Getpid())
	for _, dir := range []string{old, running} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(dir)
	}
	swept := func() bool { // another test's run may have the directory locked
		if _, _, err := Sweep(); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(old)
		return err != nil
	}
	if !leaktest.Within(time.Minute, swept) {
		t.Error("what the dead process was removing is still there")
	}
	if _, err := os.Stat(running); err != nil {
		t.Error("what a live process is removing is gone")
	}
}

// The last session may leave while somebody sweeps, who holds the set's lock meanwhile. Then
// the sweeper removes the set.
func TestWhoSweepsWhileTheLastLeavesRemovesTheSet(t *testing.T) {
	withoutKeptObserver(t)
	p := myPinDir(t)
	s := sit(t, "/proc/self/exe", newCgroup(t), nil)
	gone := exec.Command("/bin/true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	var sweep *exec.Cmd
	looks := func() bool { return holds(sweep.Process.Pid, lockSuffix) && holds(sweep.Process.Pid, "bpf-map") }
	caught := func() bool { // one that looks at the set
		sweep = &exec.Cmd{Path: "/proc/self/exe",
			Args: role.Observer.Args("sweep", strconv.Itoa(gone.Process.Pid)),
			Env:  append(os.Environ(), "KERNEL_TEST_CHILD=role"), Stderr: os.Stderr}
		if err := sweep.Start(); err != nil {
			t.Fatal(err)
		}
		stat := fmt.Sprintf("/proc/%d/stat", sweep.Process.Pid)
		for {
			if b, _ := os.ReadFile(stat); bytes.Contains(b, []byte(") Z ")) {
				sweep.Wait()
				return false
			}
			if !looks() {
				continue
			}
			sweep.Process.Signal(unix.SIGSTOP)
			if looks() {
				return true
			}
			sweep.Process.Signal(unix.SIGCONT)
			sweep.Wait()
			return false
		}
	}
	if !leaktest.Within(time.Minute, caught) {
		t.Fatal("no sweeper could be stopped while it looked at the set")
	}
	s.rise(t)
	sweep.Process.Signal(unix.SIGCONT)
	if err := sweep.Wait(); err != nil {
		t.Error(err)
	}
	if left := pinned(t, p.name); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// holdsProcess reports whether a process has a pidfd.
func holdsProcess(pid int) bool { return holds(pid, "pidfd") }

// holds reports whether a process has a descriptor of what is called so.
func holds(pid int, what string) bool {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		if to, _ := os.Readlink(fd); strings.Contains(to, what) {
			return true
		}
	}
	return false
}

// A set of another build goes when no run has a slot of it: also one whose lock is gone, and one that somebody asked
// to keep, as that build may be gone too.
func TestASetOfAnotherBuildThatNobodyUsesIsFreed(t *testing.T) {
	withoutKeptObserver(t)
	p := myPinDir(t)
	other := func(name string, parts ...string) pinDir {
		o := pinDir{home: p.home, name: fmt.Sprintf("%s%030d", name, os.Getpid())}
		for _, dir := range append(parts, "") {
			if err := os.MkdirAll(o.dir()+dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			for _, dir := range append(parts, "") {
				_ = os.RemoveAll(o.dir() + dir)
			}
		})
		return o
	}
	there := func(o pinDir) bool {
		_, err := os.Stat(o.dir())
		return err == nil
	}
	unlocked, kept := other("aa"), other("bb", lockSuffix, keepSuffix)
	used := other("cc", lockSuffix, lockSuffix+"/3", keepSuffix)
	for dir, how := range map[string]int{used.lock(): unix.LOCK_SH, used.lock() + "/3": unix.LOCK_EX} {
		lock, err := lockDir(dir, how)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
	}
	if _, _, err := Sweep(); err != nil {
		t.Fatal(err)
	}
	if there(unlocked) || !there(kept) || !there(used) {
		t.Errorf("swept: without a lock there %t, kept there %t, used there %t", there(unlocked), there(kept),
			there(used))
	}
	if !used.observesRun() || kept.observesRun() {
		t.Errorf("a run has a slot: of the used one %t, of the kept one %t", used.observesRun(), kept.observesRun())
	}
	noSet := filepath.Join(p.home, "aaforeign")
	if err := os.Mkdir(noSet, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := SweepBuilds(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(noSet); err != nil {
		t.Errorf("what is no set was swept: %v", err)
	}
	if there(kept) || !there(used) {
		t.Errorf("swept for other builds: kept there %t, used there %t", there(kept), there(used))
	}
}
