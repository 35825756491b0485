//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestFlood opens different files on every CPU as fast as it goes, for as long
// as FLOOD says (a second by default): nothing is lost.
func TestFlood(t *testing.T) {
	files := 20000
	if testing.Short() {
		files = 5000
	}
	span, err := time.ParseDuration(os.Getenv("FLOOD"))
	if err != nil {
		span = time.Second
	}
	dir := t.TempDir()
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := start(&session{t: t, counting: true}, Config{})
	begin := time.Now()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for time.Since(begin) < span {
				timeChild(t, s, "distinct", dir, strconv.Itoa(files))
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	s.end()
	h := s.report.Hooks[HookOpen]
	t.Logf("%d opens in %v, %.0f a second, %d dropped", h.Fired, took, float64(h.Fired)/took.Seconds(), h.Dropped)
	if h.Dropped != 0 {
		t.Errorf("%d events were dropped", h.Dropped)
	}
}
