//go:build linux

package cgroup_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/cgroup"
)

// need skips a test where the host has no such controller, and checks that
// the limit is refused there, by name and with a way out.
func need(t *testing.T, name string, l cgroup.Limits) {
	t.Helper()
	h := cgroup.Probe()
	i := slices.IndexFunc(h.Controllers(), func(c cgroup.Controller) bool { return c.Name == name })
	c := h.Controllers()[i]
	if c.Available {
		return
	}
	_, err := h.NewSession(testID()+"-refused", l)
	var limit *cgroup.LimitError
	if !errors.As(err, &limit) || limit.Limit != name || limit.Controller != name || limit.Reason == "" ||
		limit.Remedy == "" {
		t.Errorf("without a %s controller the limit gives %#v", name, err)
	}
	l.BestEffort = true
	s := newSession(t, l)
	if got := s.Unenforced(); !slices.Equal(got, []string{name}) {
		t.Errorf("unenforced limits are %v, want %s", got, name)
	}
	t.Skipf("this host has no %s controller for us: %s", name, c.Reason)
}

func sh(s *cgroup.Session, script string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = append(os.Environ(), cgroup.MarkerKey+"="+s.RunID())
	return cmd
}

func TestPidsLimitIsExact(t *testing.T) {
	need(t, "pids", cgroup.Limits{Pids: 1})
	for _, n := range []int64{1, 2, 7} {
		s := newSession(t, cgroup.Limits{Pids: n})
		// The shell ends when it cannot fork; its children remain.
		cmd := sh(s, "while :; do sleep 1000 & done")
		if err := s.Agent().Start(cmd); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		ps, err := s.Agent().Procs()
		if err != nil || int64(len(ps)) != n-1 {
			t.Errorf("under a limit of %d the shell had %d children, %v", n, len(ps), err)
		}
		if e := s.Events(); e.PidsMaxHits == nil || *e.PidsMaxHits == 0 {
			t.Errorf("under a limit of %d no hit was counted", n)
		}
		if u := s.Usage(); u.PidsPeak != nil && *u.PidsPeak != n {
			t.Errorf("under a limit of %d the peak was %d", n, *u.PidsPeak)
		}
		gone(t, s.Agent())
	}
}

func TestPidsPeakIsTheAgents(t *testing.T) {
	s := newSession(t, cgroup.Limits{})
	cmd := sh(s, "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; exit 0")
	if err := s.Agent().Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	u := s.Usage()
	if s.Path() == "" && u != (cgroup.Usage{}) {
		t.Errorf("without a cgroup the usage is %+v", u)
	}
	if u.PidsPeak != nil && *u.PidsPeak != 10 {
		t.Errorf("the peak of 10 processes was %d", *u.PidsPeak)
	}
	gone(t, s.Agent())
}

func TestForkBombIsContained(t *testing.T) {
	l := cgroup.Limits{Pids: 100}
	need(t, "pids", l)
	s := newSession(t, l)
	cmd := sh(s, "b() { b | b & }; b; while :; do b; done")
	if err := s.Agent().Start(cmd); err != nil {
		t.Fatal(err)
	}
	bitten := func() bool { e := s.Events(); return e.PidsMaxHits != nil && *e.PidsMaxHits > 10 }
	if !leaktest.Within(30*time.Second, bitten) {
		t.Fatal("the bomb does not reach its limit")
	}
	gone(t, s.Agent())
	_ = cmd.Wait()
}

func TestMemoryHogIsOOMKilled(t *testing.T) {
	l := cgroup.Limits{MemoryBytes: 96 << 20}
	need(t, "memory", l)
	s := newSession(t, l)
	cmd := role(s, "hog")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	start(t, s.Agent(), cmd)
	if e := s.Events(); e.OOMKills == nil || *e.OOMKills != 0 {
		t.Errorf("OOM kills before: %v", e.OOMKills)
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Error(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the hog ended with %v", err)
	}
	if e := s.Events(); e.OOMKills == nil || *e.OOMKills != 1 {
		t.Errorf("OOM kills after: %v", e.OOMKills)
	}
	if u := s.Usage(); u.MemoryPeakBytes != nil &&
		(*u.MemoryPeakBytes > l.MemoryBytes+1<<20 || *u.MemoryPeakBytes < l.MemoryBytes/2) {
		t.Errorf("the memory peak was %d under a limit of %d", *u.MemoryPeakBytes, l.MemoryBytes)
	}
}

func TestMemoryKillByAnotherIsNoOOM(t *testing.T) {
	l := cgroup.Limits{MemoryBytes: 96 << 20}
	need(t, "memory", l)
	s := newSession(t, l)
	cmd := role(s, "sleep")
	start(t, s.Agent(), cmd)
	gone(t, s.Agent())
	_ = cmd.Wait()
	if e := s.Events(); e.OOMKills == nil || *e.OOMKills != 0 {
		t.Errorf("OOM kills: %v", e.OOMKills)
	}
}

func TestCPULimit(t *testing.T) {
	l := cgroup.Limits{CPUMilli: 200}
	need(t, "cpu", l)
	s := newSession(t, l)
	cmd := role(s, "burn") // one second of wall time and 0.1 of CPU, and what it takes to start and to end
	began := time.Now()
	start(t, s.Agent(), cmd)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	took := time.Since(began).Milliseconds()
	u := s.Usage()
	if u.CPUUserNS == nil || u.CPUSystemNS == nil {
		t.Fatal("no CPU time")
	}
	if ms := (*u.CPUUserNS + *u.CPUSystemNS) / 1e6; ms > took/5+250 || ms < 50 {
		t.Errorf("under 0.2 CPUs %d ms took %d ms of CPU", took, ms)
	}
}
