package policy

import (
	"sync"
	"time"
)

// RateLimit counts calls in a sliding window. Its memory depends on the calls in one window, at most its limit. It is
// safe for concurrent use.
type RateLimit struct {
	limit int
	every time.Duration
	note  func(undo bool) // called for each call; may be nil

	mu    sync.Mutex
	times []time.Duration // of the calls in the window, oldest first
}

// NewRateLimit allows limit calls in any window of length every.
func NewRateLimit(limit int, every time.Duration) *RateLimit {
	return &RateLimit{limit: limit, every: every}
}

// Limit returns how many calls are allowed in a window, and its length.
func (w *RateLimit) Limit() (calls int, every time.Duration) { return w.limit, w.every }

// Take counts a call at now, or returns how long to wait. A dry run counts nothing. A limit of 0 never allows a call.
func (w *RateLimit) Take(now time.Duration, dry bool) (wait time.Duration, ok bool) {
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
		w.noted(false)
	}
	return 0, true
}

// untake stops counting the newest call, because another rule refused it.
func (w *RateLimit) untake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.times); n > 0 {
		w.times = w.times[:n-1]
		w.noted(true)
	}
}

func (w *RateLimit) noted(undo bool) {
	if w.note != nil {
		w.note(undo)
	}
}

// Relimit makes next count the calls that w has counted, and returns next.
func (w *RateLimit) Relimit(next *RateLimit) *RateLimit {
	w.mu.Lock()
	defer w.mu.Unlock()
	next.times = append(next.times, w.times...)
	return next
}
