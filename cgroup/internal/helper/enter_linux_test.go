package helper_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/assay-run/assay-run/cgroup"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

// This test binary does not import package reexec.

func TestMain(m *testing.M) {
	if os.Getenv("HELPER_TEST_ROLE") != "" {
		fmt.Print("main runs")
		os.Exit(0)
	}
	os.Exit(leaktest.Of(m).Run())
}

// Whoever only imports the library stays the program that it is.
func TestImportingTheLibraryIsNoRole(t *testing.T) {
	for _, role := range []string{"__guard", "__job", "__cgroup-join"} {
		cmd := exec.Command("/proc/self/exe", role)
		cmd.Args[0], cmd.Env = "assay-run", append(os.Environ(), "HELPER_TEST_ROLE=1")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "main runs" {
			t.Errorf("%s: %v %q", role, err, out)
		}
	}
}

// What needs a helper says what is missing, and leaves nothing behind.
func TestWithoutTheEntryHelpersAreAnError(t *testing.T) {
	s, err := cgroup.Probe().NewSession(fmt.Sprintf("no-helper-%d", os.Getpid()),
		cgroup.Limits{Pids: 100, BestEffort: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Guard(nil); !errors.Is(err, cgroup.ErrNoHelper) {
		t.Errorf("Guard: %v", err)
	}
	if _, err := s.Agent().StartJob(exec.Command("true")); !errors.Is(err, cgroup.ErrNoHelper) {
		t.Errorf("StartJob: %v", err)
	}
	cmd := exec.Command("true")
	if err := s.Agent().Start(cmd); err == nil {
		_ = cmd.Wait() // no limit of this host's needs a helper
	} else if !errors.Is(err, cgroup.ErrNoHelper) {
		t.Errorf("Start: %v", err)
	}
	path := s.Path()
	if err := s.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); path != "" && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", path, err)
	}
}
