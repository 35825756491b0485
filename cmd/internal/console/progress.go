package console

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// progressAfter is how long work takes before a bar is drawn.
const progressAfter = time.Second

// Progress is a bar for long work. It is drawn only on a terminal, and only after a second.
// Elsewhere it is nil, and its methods do nothing. It is safe for concurrent use.
type Progress struct {
	mu    sync.Mutex
	w     *os.File
	what  string
	start time.Time
	last  time.Time
	drawn bool
	ended bool

	item, items int // what is worked on: item of items, called name
	name        string
}

// NewProgress makes a bar on w, labelled what. Reading and sealing bundles under the returned
// context moves it.
func NewProgress(ctx context.Context, w *os.File, what string) (context.Context, *Progress) {
	if !Terminal(w) || os.Getenv("TERM") == "dumb" {
		return ctx, nil
	}
	p := &Progress{w: w, what: what, start: time.Now()}
	return archive.WithProgress(ctx, p.Step), p
}

// Item says what is worked on now: item i of n, called name.
func (p *Progress) Item(i, n int, name string) {
	if p == nil {
		return
	}
	if r := []rune(name); len(r) > 32 {
		name = "…" + string(r[len(r)-31:])
	}
	p.mu.Lock()
	p.item, p.items, p.name = i, n, schema.OneLine(name)
	p.mu.Unlock()
	p.Step(0, 0)
}

// Step draws how far the work on the item is: done of total. A total of 0 means that it is not
// known; for a single item, Step then draws how long it has taken.
func (p *Progress) Step(done, total int64) {
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
	part := 0.0
	if total > 0 {
		part = min(1, float64(done)/float64(total))
	}
	if p.items > 1 {
		part = (float64(p.item) + part) / float64(p.items)
	}
	const width = 24
	n := int(part * width)
	how := fmt.Sprintf("%3.0f%%", part*100)
	if total == 0 && p.items <= 1 {
		how = now.Sub(p.start).Round(time.Second).String()
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s [%s%s] %s %s", p.what, strings.Repeat("#", n), strings.Repeat(".", width-n), how,
		p.name)
}

// Done removes the bar. It may be called again.
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
