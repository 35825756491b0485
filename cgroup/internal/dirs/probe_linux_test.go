package dirs

import (
	"os"
	"path/filepath"
	"testing"
)

// TestProbeAndSweepTakeAnEmptyParent: what a probe leaves that is killed goes with the next
// sweep, and a probe leaves alone what a session is in.
func TestProbeAndSweepTakeAnEmptyParent(t *testing.T) {
	h := Probe()
	l := h.primary()
	if l == nil {
		t.Skip("no cgroup is writable here")
	}
	// In a cgroup of the test's own, for other runs of this host use the same parents.
	own := filepath.Join(l.own, "probe-test-"+filepath.Base(t.TempDir()))
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(own)
	l = &hierarchy{v2: l.v2, mount: l.mount, own: own, controllers: l.controllers}
	parent := filepath.Join(own, parentName)
	session := filepath.Join(parent, "live")

	probe := func() error {
		by := &Host{}
		defer by.Tidy()
		return by.writable(l)
	}
	if err := probe(); err != nil || exists(parent) {
		t.Errorf("a probe: %v; %s is there: %v", err, parent, exists(parent))
	}
	if err := os.MkdirAll(session, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := probe(); err != nil || !exists(session) {
		t.Errorf("a probe beside a session: %v; the session is there: %v", err, exists(session))
	}
	if err := os.Remove(session); err != nil {
		t.Fatal(err)
	}
	if err := h.sweep(l, parent, map[string]*Swept{}, nil); err != nil || exists(parent) {
		t.Errorf("sweeping an empty directory of sessions: %v; it is there: %v", err, exists(parent))
	}
}

// TestProbeForSessionLeavesWhatASessionTakes: nothing is left of it if there is none.
func TestProbeForSessionLeavesWhatASessionTakes(t *testing.T) {
	h := Probe()
	l := h.primary()
	if l == nil {
		t.Skip("no cgroup is writable here")
	}
	own := filepath.Join(l.own, "probe-test-"+filepath.Base(t.TempDir()))
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(own)
	l = &hierarchy{v2: l.v2, mount: l.mount, own: own, controllers: l.controllers}
	parent := filepath.Join(own, parentName)

	for _, used := range []bool{false, true} {
		if err := h.writable(l); err != nil || !exists(parent) {
			t.Fatalf("the probe: %v; %s is there: %v", err, parent, exists(parent))
		}
		if used {
			h.count(parent, 1)
		}
		if h.Tidy(); exists(parent) != used {
			t.Errorf("with a session there (%v), it is left: %v", used, exists(parent))
		}
	}
	h.count(parent, -1)
	if err := os.Remove(parent); err != nil {
		t.Error(err)
	}
}
