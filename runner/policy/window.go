package policy

import (
	"sync"
	"time"
)

// window counts calls in a sliding window. Its memory grows with the calls in
// one window and never beyond its limit.
type window struct {
	limit int
	every time.Duration

	mu    sync.Mutex
	times []time.Duration // of the calls in the window, oldest first
}

func newWindow(limit int, every time.Duration) *window {
	return &window{limit: limit, every: every}
}

// take counts a call at now, or tells when there will be room for one.
// A dry run counts nothing. A limit of 0 never has room.
func (w *window) take(now time.Duration, dry bool) (wait time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := 0
	for old < len(w.times) && w.times[old] <= now-w.every {
		old++
	}
	w.times = append(w.times[:0], w.times[old:]...)
	if len(w.times) >= w.limit {
		if w.limit == 0 {
			return 0, false
		}
		return w.times[0] + w.every - now, false
	}
	if !dry {
		w.times = append(w.times, now)
	}
	return 0, true
}

// untake takes the newest call back: another rule refused it.
func (w *window) untake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.times); n > 0 {
		w.times = w.times[:n-1]
	}
}
