//go:build linux

package cgroup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/cgroup/steps"
)

// TestGuardsFromTheEntryPoint runs the tests of guards in a program that is linked as assay-run is:
// what waits in a guard's place is no Go program.
func TestGuardsFromTheEntryPoint(t *testing.T) {
	if os.Getenv("CGROUP_TEST_INNER") != "" {
		t.Skip("this is the inner run")
	}
	layertest.Host(t)
	suite := filepath.Join(t.TempDir(), "suite")
	build := exec.Command("go", "test", "-c", "-ldflags=-s -w -E="+steps.Entry, "-o", suite, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // the C library has an entry point of its own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(suite, "-test.short", "-test.v", "-test.run",
		"^Test(Guard.*|NothingOutlives.*|AStoppedGuard.*|Nested.*)$")
	cmd.Env = append(os.Environ(), "CGROUP_TEST_INNER=entry")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestGuardKeepsItself") {
		t.Errorf("%v: %s", err, out)
	}
}

// waits reports whether something waits in the place of a session's guard, by what the host has.
func waits(path string) bool {
	_, err := os.Stat(filepath.Join(path, "cgroup.kill"))
	return path != "" && err == nil
}
