//go:build linux

package cgroup_test

import (
	"os"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/cgroup"
)

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
	gone(t, s.Agent())
	if running(pid) {
		t.Error("the daemon lives on")
	}
}
