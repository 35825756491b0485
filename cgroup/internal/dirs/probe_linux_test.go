package dirs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestProbeRemovesWhatAKilledProbeLeft(t *testing.T) {
	h := Probe()
	if h.mode == None {
		t.Skip("no cgroup is writable here")
	}
	own := h.v1
	if h.v2 != nil {
		own = append(own[:len(own):len(own)], h.v2)
	}
	old := filepath.Join(own[0].own, probePrefix+"0")
	if err := os.Mkdir(old, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(old)
	Probe()
	if _, err := os.Stat(old); err != nil {
		t.Errorf("a probe that may be at work is gone: %v", err)
	}
	past := time.Now().Add(-2 * time.Minute)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	Probe()
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a probe of two minutes ago is still there: %v", err)
	}
}
