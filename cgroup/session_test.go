//go:build linux

package cgroup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/cgroup"
)

// TestHostIsAsExpected: where the outer test knows what the host offers, the
// probe finds just that. CGROUP_TEST_WANT is a mode and controllers, "-" before
// those that are not to be had.
func TestHostIsAsExpected(t *testing.T) {
	h := cgroup.Probe()
	t.Logf("mode %s, reasons %v, controllers %v", h.Mode(), h.Reasons(), h.Controllers())
	want := strings.Fields(os.Getenv("CGROUP_TEST_WANT"))
	if len(want) == 0 {
		return
	}
	if string(h.Mode()) != want[0] {
		t.Errorf("mode is %s, want %s", h.Mode(), want[0])
	}
	for _, c := range h.Controllers() {
		if c.Available != slices.Contains(want, c.Name) {
			t.Errorf("controller %+v, want %v", c, want)
		}
		if !c.Available && (c.Reason == "" || c.Remedy == "") {
			t.Errorf("controller %s is missing without a reason or a remedy", c.Name)
		}
	}
}

func TestChildStartsInsideItsGroup(t *testing.T) {
	s := newSession(t, cgroup.Limits{})
	cmd := role(s, "sleep")
	pid := start(t, s.Agent(), cmd)
	if p := s.Path(); p != "" {
		b, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), s.RunID()+"/agent") {
			t.Errorf("the child's cgroups are %s", b)
		}
		line := "0::"
		if cgroup.Probe().Mode() == cgroup.Legacy {
			line = "freezer:"
		}
		_, rest, _ := strings.Cut(string(b), line)
		if first, _, _ := strings.Cut(rest, "\n"); !strings.HasSuffix(p+"/agent", first) ||
			!strings.HasSuffix(first, "/agent") {
			t.Errorf("on the primary hierarchy the child is in %q", first)
		}
		if procs, err := os.ReadFile(p + "/cgroup.procs"); err != nil || len(procs) > 0 {
			t.Errorf("the session directory itself holds %q, %v", procs, err)
		}
	}
	ps, err := s.Agent().Procs()
	if err != nil || len(ps) != 1 || ps[0].PID != atoi(t, pid) {
		t.Errorf("procs are %v, %v; want process %s", ps, err, pid)
	}
	gone(t, s.Agent())
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the child ended with %v", err)
	}
}

func TestDaemonDoesNotEscape(t *testing.T) {
	s := newSession(t, cgroup.Limits{})
	cmd := role(s, "daemon")
	pid := atoi(t, start(t, s.Agent(), cmd))
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !running(pid) {
		t.Fatal("the daemon is not running")
	}
	if ps, err := s.Agent().Procs(); err != nil || len(ps) != 1 || ps[0].PID != pid {
		t.Errorf("procs are %v, %v; want the daemon, %d", ps, err, pid)
	}
	gone(t, s.Agent())
	if running(pid) {
		t.Error("the daemon lives on")
	}
}

func TestSignalReachesAllAndKillEndsTheRest(t *testing.T) {
	s := newSession(t, cgroup.Limits{})
	polite, stubborn := role(s, "sleep"), role(s, "stubborn")
	start(t, s.Agent(), polite)
	pid := atoi(t, start(t, s.Agent(), stubborn))
	if err := s.Agent().Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := polite.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("the polite child ended with %v", err)
	}
	if !running(pid) {
		t.Error("the child that ignores SIGTERM is gone")
	}
	gone(t, s.Agent())
	if err := stubborn.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the stubborn child ended with %v", err)
	}
}

func TestStoppedChildIsKilled(t *testing.T) {
	s := newSession(t, cgroup.Limits{})
	cmd := role(s, "sleep")
	start(t, s.Agent(), cmd)
	if err := s.Agent().Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	gone(t, s.Agent())
	_ = cmd.Wait()
}

func TestFrozenChildIsKilled(t *testing.T) {
	s := newSession(t, cgroup.Limits{})
	cmd := role(s, "sleep")
	pid := start(t, s.Agent(), cmd)
	if err := s.Agent().Freeze(); err != nil {
		t.Fatal(err)
	}
	frozen := func() bool {
		if b, err := os.ReadFile(filepath.Join(s.Agent().Path(), "cgroup.events")); err == nil {
			return strings.Contains(string(b), "frozen 1")
		}
		if b, err := os.ReadFile(filepath.Join(s.Agent().Path(), "freezer.state")); err == nil {
			return string(b) == "FROZEN\n"
		}
		b, _ := os.ReadFile("/proc/" + pid + "/stat")
		return strings.Contains(string(b), ") T ")
	}
	if !leaktest.Within(30*time.Second, frozen) {
		t.Fatal("the child does not freeze")
	}
	gone(t, s.Agent())
	_ = cmd.Wait()
}

func TestExitStatusIsNeverStolen(t *testing.T) {
	s := newSession(t, cgroup.Limits{})
	for i := range 30 {
		cmd := role(s, "exit", "7")
		if err := s.Agent().Start(cmd); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			drained(t, s.Agent()) // looks while the child is a zombie
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
			t.Fatalf("the child ended with %v, want exit status 7", err)
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	s := newSession(t, cgroup.Limits{})
	cmd := role(s, "sleep")
	start(t, s.Agent(), cmd)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Agent().Wait(ctx) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Wait returned %v", err)
	}
	gone(t, s.Agent())
	_ = cmd.Wait()
}

func TestRemoveTakesNestedCgroupsWithIt(t *testing.T) {
	s := newSession(t, cgroup.Limits{})
	if s.Path() == "" {
		t.Skip("no writable cgroup: there is nothing to nest")
	}
	var dirs []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if strings.HasSuffix(path, s.RunID()+"/agent") {
			dirs = append(dirs, path)
		}
		return nil
	})
	if !slices.Contains(dirs, s.Agent().Path()) {
		t.Fatalf("%s is not among %v", s.Agent().Path(), dirs)
	}
	cmd := role(s, "nest", dirs...)
	pid := atoi(t, start(t, s.Agent(), cmd))
	if ps, err := s.Agent().Procs(); err != nil || len(ps) != 1 || ps[0].PID != pid {
		t.Errorf("procs are %v, %v; want %d", ps, err, pid)
	}
	if err := s.Remove(); err != nil { // with the process still in it
		t.Error(err)
	}
	_ = cmd.Wait()
	for _, d := range dirs {
		if _, err := os.Stat(d); !os.IsNotExist(err) {
			t.Errorf("%s is still there", d)
		}
	}
}

func TestTwoSessionsKeepApart(t *testing.T) {
	a, b := newSession(t, cgroup.Limits{}), newSession(t, cgroup.Limits{})
	inA, inB := role(a, "sleep"), role(b, "sleep")
	start(t, a.Agent(), inA)
	pid := atoi(t, start(t, b.Agent(), inB))
	gone(t, a.Agent())
	if err := a.Remove(); err != nil {
		t.Error(err)
	}
	if !running(pid) {
		t.Error("killing one session killed the other's process")
	}
	if _, err := cgroup.Probe().NewSession(b.RunID(), cgroup.Limits{}); !errors.Is(err, cgroup.ErrInUse) {
		t.Errorf("a second session of the same run id: %v", err)
	}
	gone(t, b.Agent())
	_, _ = inA.Process.Wait()
	_, _ = inB.Process.Wait()
}

func TestGroupsOfOneSession(t *testing.T) {
	s := newSession(t, cgroup.Limits{})
	check, err := s.NewGroup("check-1")
	if err != nil {
		t.Fatal(err)
	}
	agent, tool := role(s, "sleep"), role(s, "sleep")
	start(t, s.Agent(), agent)
	pid := atoi(t, start(t, check, tool))
	gone(t, s.Agent())
	if !running(pid) {
		t.Error("killing the agent killed the check")
	}
	if s.Path() != "" {
		if check.ID() == s.Agent().ID() && check.ID() != 0 {
			t.Error("two groups have one id")
		}
	}
	if err := s.Remove(); err != nil {
		t.Error(err)
	}
	_ = agent.Wait()
	if err := tool.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the check ended with %v", err)
	}
}

func TestStartLeavesTheRunnersLimitsAlone(t *testing.T) {
	before, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t, cgroup.Limits{})
	cmd := role(s, "sleep")
	start(t, s.Agent(), cmd)
	if after, err := os.ReadFile("/proc/self/limits"); err != nil || string(after) != string(before) {
		t.Errorf("the runner's limits were\n%s\nand are\n%s%v", before, after, err)
	}
	gone(t, s.Agent())
	_ = cmd.Wait()
}

func TestBadNamesAreRefused(t *testing.T) {
	h := cgroup.Probe()
	for _, id := range []string{"", ".", "..", "a/b", "../x", "a\x00b"} {
		if s, err := h.NewSession(id, cgroup.Limits{}); err == nil {
			t.Errorf("run id %q is accepted", id)
			_ = s.Remove()
		}
	}
	s := newSession(t, cgroup.Limits{})
	for _, name := range []string{"", "..", "a/b", "agent"} {
		if _, err := s.NewGroup(name); err == nil && (name != "agent" || s.Path() != "") {
			t.Errorf("group name %q is accepted", name)
		}
	}
}

// TestEnginesCgroupsGoWithTheSession: an engine uses the session's path on every hierarchy,
// also where the session has no directory. What is there ends with the session.
func TestEnginesCgroupsGoWithTheSession(t *testing.T) {
	s := newSession(t, cgroup.Limits{})
	var at string
	for _, mount := range []string{"/sys/fs/cgroup/devices", "/sys/fs/cgroup/perf_event", "/sys/fs/cgroup/net_cls"} {
		if _, err := os.Stat(mount + "/cgroup.procs"); err == nil && s.Path() != "" {
			at = filepath.Join(mount, s.CgroupParent(), "container")
			break
		}
	}
	if at == "" || os.Geteuid() != 0 {
		t.Skip("it takes root and a hierarchy where a session has no directory")
	}
	cmd := exec.Command("/proc/self/exe", "role=sleep")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(at, 0o755),
		os.WriteFile(filepath.Join(at, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0)); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatal(err)
	}
	if err := s.Remove(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the container ended with %v", err)
	}
	if left := dirsOf(s.RunID()); len(left) > 0 {
		t.Errorf("removing the session left %v", left)
	}
}
