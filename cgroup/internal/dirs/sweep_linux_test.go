package dirs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestSweepLeavesWhatALiveSessionsEngineMade: on a hierarchy where a session has no
// directory and so no lock, an engine's cgroups for it are in use as long as the session's
// directory on the primary hierarchy is there.
func TestSweepLeavesWhatALiveSessionsEngineMade(t *testing.T) {
	h := Probe()
	if h.v2 == nil || len(h.v1) == 0 {
		t.Skip("it takes cgroup2 and a v1 hierarchy, both writable")
	}
	// In a cgroup of the test's own, which no other run sweeps.
	name := "sweep-test-" + filepath.Base(t.TempDir())
	l := *h.v1[0]
	l.own = filepath.Join(l.mount, name)
	parent, session := filepath.Join(l.own, parentName), filepath.Join(h.v2.mount, name, parentName, "live")
	container := filepath.Join(parent, "live", containersName, "c")
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, top := range []string{l.own, filepath.Join(h.v2.mount, name)} {
		defer remove([]dir{{path: top}})
	}
	defer cmd.Process.Kill()
	if err := errors.Join(os.MkdirAll(session, 0o755), os.MkdirAll(container, 0o755),
		write(filepath.Join(container, "cgroup.procs"), fmt.Sprint(cmd.Process.Pid))); err != nil {
		t.Fatal(err)
	}
	found := map[string]*Swept{}
	if err := h.sweep(&l, parent, found, nil); err != nil || len(found) > 0 ||
		len(pids([]dir{{path: container}})) != 1 {
		t.Errorf("sweeping while the session lives: %v, found %v", err, found)
	}
	if err := os.Remove(session); err != nil {
		t.Fatal(err)
	}
	if err := h.sweep(&l, parent, found, nil); err != nil || found["live"] == nil || found["live"].Killed != 1 ||
		exists(parent) {
		t.Errorf("sweeping once it is gone: %v, found %v; it is there: %v", err, found["live"], exists(parent))
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the process ended with %v", err)
	}
}
