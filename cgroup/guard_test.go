//go:build linux

package cgroup_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/cgroup"
)

func TestNothingOutlivesAKilledRunner(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for i := range rounds {
		id := fmt.Sprintf("%s-killed-%d", testID(), i)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe", "role=runner", id)
		cmd.Stdout = w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		time.Sleep(time.Duration(rand.Int64N(int64(40 * time.Millisecond))))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		// Only the run's processes hold the pipe: its end is theirs.
		var out []byte
		ended := func() bool {
			_ = r.SetReadDeadline(time.Now().Add(time.Millisecond))
			var b []byte
			b, err = io.ReadAll(r)
			out = append(out, b...)
			return err == nil
		}
		if !leaktest.Within(30*time.Second, ended) {
			t.Fatalf("round %d: after the runner's death something lives on: %v, %q (output %q)", i, err,
				holders(t, r), out)
		}
		r.Close()
		if _, err := cgroup.Probe().Sweep(nil); err != nil {
			t.Error(err)
		}
		if !leaktest.Within(30*time.Second, func() bool { return len(dirsOf(id)) == 0 }) {
			t.Fatalf("round %d: cgroups are left: %v", i, dirsOf(id))
		}
	}
}

// holders are the other processes with a pipe.
func holders(t *testing.T, pipe *os.File) (found []string) {
	t.Helper()
	info, err := pipe.Stat()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("pipe:[%d]", info.Sys().(*syscall.Stat_t).Ino)
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		dir := filepath.Dir(filepath.Dir(fd))
		if link, _ := os.Readlink(fd); link == name && filepath.Base(dir) != strconv.Itoa(os.Getpid()) {
			stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
			found = append(found, string(stat))
		}
	}
	return found
}

// The end of a run is not the end of the session it was started from, even
// where the command was in that session too.
func TestGuardSparesTheSessionOfTheRunner(t *testing.T) {
	shell := exec.Command("/proc/self/exe", "role=shell", testID()+"-homely")
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
	}()
	var bystander, runner, command int
	if n, err := fmt.Fscan(out, &bystander, &runner, &command); n != 3 {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(bystander, syscall.SIGKILL) }()
	if err := syscall.Kill(runner, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(out); err != nil { // the command's end closes it
		t.Fatal(err)
	}
	// The guard goes on looking for a moment: what it would kill, it kills now.
	if !leaktest.Within(30*time.Second, func() bool { return len(guards(testID()+"-homely")) == 0 }) {
		t.Fatal("the guard does not end")
	}
	if running(command) {
		t.Error("the command lives on")
	}
	if !running(bystander) || !running(shell.Process.Pid) {
		t.Errorf("bystander runs: %v, shell runs: %v", running(bystander), running(shell.Process.Pid))
	}
}

// guards are the process ids of the guards of a run.
func guards(id string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		if bytes.HasPrefix(b, []byte("assay-run\x00")) && bytes.Contains(b, []byte("\x00__guard\x00"+id+"\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func dirsOf(id string) (dirs []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == id {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

func TestSweepTakesTheDeadAndLeavesTheLive(t *testing.T) {
	live := newSession(t, cgroup.Limits{})
	if live.Path() == "" {
		t.Skip("no writable cgroup: there is nothing to sweep")
	}
	cmd := role(live, "sleep")
	pid := atoi(t, start(t, live.Agent(), cmd))
	// Another run of this host may sweep first, which shows all but what ours reports.
	for n := 0; !swept(t, live, fmt.Sprintf("%s-stale-%d", testID(), n)); n++ {
		if n == 20 {
			t.Fatal("sweeping never reported what it took")
		}
	}
	if !running(pid) {
		t.Error("sweeping killed a live run")
	}
	gone(t, live.Agent())
	_ = cmd.Wait()
}

// swept sweeps what a runner leaves that was killed before it had a guard, and tells
// whether this sweep was the one that took it.
func swept(t *testing.T, live *cgroup.Session, id string) bool {
	t.Helper()
	stale := filepath.Join(filepath.Dir(live.Path()), id)
	orphan := exec.Command("/proc/self/exe", "role=sleep")
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	// A sweep that comes between these steps ends what is there by then.
	at := filepath.Join(stale, "agent", "nested")
	if err := errors.Join(os.MkdirAll(at, 0o755),
		os.WriteFile(filepath.Join(at, "cgroup.procs"), fmt.Append(nil, orphan.Process.Pid), 0)); err != nil {
		_ = orphan.Process.Kill()
		_ = orphan.Wait()
		t.Logf("another sweep came before the process was in it: %v", err)
		return false
	}
	out, err := exec.Command("/proc/self/exe", "role=sweep").CombinedOutput()
	if err != nil || strings.Contains(string(out), live.RunID()+" ") {
		t.Errorf("sweeping: %v: %s", err, out)
	}
	if err := orphan.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the orphan ended with %v", err)
	}
	if !leaktest.Within(30*time.Second, func() bool { return len(dirsOf(id)) == 0 }) {
		t.Errorf("sweeping left %v", dirsOf(id))
	}
	return strings.Contains(string(out), "{"+id+" 1 <nil> false}")
}

// TestRunnersLeaveEachOtherAlone: the parent directory comes and goes between
// them, and all of them sweep.
func TestRunnersLeaveEachOtherAlone(t *testing.T) {
	times := "40"
	if testing.Short() {
		times = "6"
	}
	var runners []*exec.Cmd
	var outs [3]strings.Builder
	for i := range outs {
		cmd := exec.Command("/proc/self/exe", "role=churn", fmt.Sprintf("%s-churn-%d", testID(), i), times)
		cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		runners = append(runners, cmd)
	}
	for i, cmd := range runners {
		if err := cmd.Wait(); err != nil {
			t.Errorf("runner %d: %v: %s", i, err, outs[i].String())
		}
	}
}

func TestGuardKeepsItself(t *testing.T) {
	s := newSession(t, cgroup.Limits{})
	g, err := s.Guard(nil)
	if err != nil {
		t.Fatal(err)
	}
	cmd := role(s, "sleep")
	pid := atoi(t, start(t, s.Agent(), cmd))
	ignores := func() bool { // it is past its start-up
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.PID()))
		_, mask, _ := strings.Cut(string(b), "SigIgn:\t")
		mask, _, _ = strings.Cut(mask, "\n")
		ignored, err := strconv.ParseUint(mask, 16, 64)
		return err == nil && ignored&(1<<(syscall.SIGTSTP-1)) != 0
	}
	if !leaktest.Within(30*time.Second, ignores) {
		t.Fatal("the guard does not come up")
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGTSTP} {
		if err := syscall.Kill(g.PID(), sig); err != nil {
			t.Error(err)
		}
	}
	if sid, _ := unix.Getsid(g.PID()); sid != g.PID() {
		t.Errorf("the guard's session is %d", sid)
	}
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", g.PID()))
	if want := waits(s.Path()); strings.Contains(string(line), "\x00__steps\x00") != want {
		t.Errorf("the guard waits to be a program: want %t: %q", want, line)
	} else if threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", g.PID())); want &&
		os.Getenv("CGROUP_TEST_INNER") == "entry" && len(threads) != 1 {
		t.Errorf("what waits has %d threads", len(threads))
	}
	ours := map[string]bool{}
	own, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range own {
		n := atoi(t, filepath.Base(fd))
		// What go test hands down without close-on-exec is for everybody.
		if flags, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC != 0 {
			if to, _ := os.Readlink(fd); strings.HasPrefix(to, "pipe:") || strings.Contains(to, s.RunID()+"/") {
				ours[to] = true
			}
		}
	}
	if len(ours) == 0 {
		t.Error("the test holds nothing that a guard could hold")
	}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", g.PID()))
	for _, fd := range fds {
		to, _ := os.Readlink(fd)
		if n := filepath.Base(fd); n != "3" && ours[to] || n < "3" && len(n) == 1 && to != os.DevNull {
			t.Errorf("the guard's descriptor %s is %s", n, to)
		}
	}
	if err := g.Release(); err != nil {
		t.Error(err)
	}
	if !leaktest.Within(30*time.Second, func() bool { return !running(g.PID()) }) {
		t.Fatal("the released guard stays")
	}
	if !running(pid) {
		t.Error("the released guard killed the run")
	}
	gone(t, s.Agent())
	_ = cmd.Wait()
}
