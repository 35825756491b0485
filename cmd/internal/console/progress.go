package console

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// progressAfter is how long work takes before a bar is drawn.
const progressAfter = time.Second

// Progress is a bar for work that is long. It is drawn on a terminal alone, and
// not before a second has passed; elsewhere, and when nil, it does nothing.
type Progress struct {
	mu    sync.Mutex
	w     *os.File
	what  string
	start time.Time
	last  time.Time
	drawn bool
	ended bool
}

// NewProgress makes a bar on w for work that is called what.
func NewProgress(w *os.File, what string) *Progress {
	if !Terminal(w) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return &Progress{w: w, what: what, start: time.Now()}
}

// Step draws how far the work is: done of total, and what comes now. total 0
// means that it cannot be told.
func (p *Progress) Step(done, total int, name string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.ended || now.Sub(p.start) < progressAfter || now.Sub(p.last) < 50*time.Millisecond {
		return
	}
	p.last, p.drawn = now, true
	bar := fmt.Sprintf("%d", done)
	if total > 0 {
		const width = 24
		n := min(width, done*width/total)
		bar = fmt.Sprintf("[%s%s] %3d%%", strings.Repeat("#", n), strings.Repeat(".", width-n), min(100, done*100/total))
	}
	if r := []rune(name); len(r) > 40 {
		name = "…" + string(r[len(r)-39:])
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s %s %s", p.what, bar, Printable(name))
}

// Done takes the bar away. It may be called again.
func (p *Progress) Done() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn && !p.ended {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.ended = true
}
