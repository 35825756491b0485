package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// A run that needs more memory than the first second's limit collects as often as any
// other program of its size, and not without end.
func TestBusyRunCollectsAsUsual(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))

	live := make([]byte, 20<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	lazyCollection()
	expectEvents()
	for range 2000 {
		garbage = make([]byte, 64<<10)
	}
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(live)
	if n := after.NumGC - before.NumGC; n < 1 || n > 30 {
		t.Errorf("%d collections while 128 MB of garbage were made beside 20 MB in use, want 1 to 30", n)
	}
}

var garbage []byte
