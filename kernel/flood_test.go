//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// TestFlood opens different files on every CPU as fast as it goes, for as long as FLOOD says (a
// second by default): each
// open is counted, and what a busy machine's reader was too late for is told. With FLOOD, the machine is quiet and
// nothing is lost.
func TestFlood(t *testing.T) {
	layertest.Host(t)
	files := 20000
	if testing.Short() {
		files = 5000
	}
	span, err := time.ParseDuration(os.Getenv("FLOOD"))
	quiet := err == nil
	if !quiet {
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
	var opened atomic.Uint64
	for range 2 {
		wg.Go(func() {
			for time.Since(begin) < span {
				timeChild(t, s, "distinct", dir, strconv.Itoa(files))
				opened.Add(uint64(files))
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	s.end()
	h := s.report.Hooks[HookOpen]
	t.Logf("%d opens in %v, %.0f a second, %d dropped", h.Fired, took, float64(h.Fired)/took.Seconds(), h.Dropped)
	told := slices.ContainsFunc(s.report.Reasons, func(r Reason) bool { return r.Code == CodeDrops })
	if quiet && h.Dropped != 0 || (h.Dropped != 0) != told {
		t.Errorf("%d events were dropped; the reasons are %+v", h.Dropped, s.report.Reasons)
	}
	if h.Fired < opened.Load() { // the loader of each program opens files as well
		t.Errorf("%d of %d opens were counted", h.Fired, opened.Load())
	}
}
