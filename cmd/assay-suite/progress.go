//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/schema"
)

// progress prints verdicts. On a terminal it keeps one status line below all other messages; elsewhere each verdict has
// a line of its own.
type progress struct {
	say *console.Messages

	mu       sync.Mutex
	terminal *os.File // nil if stderr is not a terminal
	start    time.Time
	text     string // of the status line; empty while there is none
}

func newProgress(say *console.Messages, w *os.File) *progress {
	p := &progress{say: say, start: time.Now()}
	if console.Terminal(w) && os.Getenv("TERM") != "dumb" && !say.Quiet {
		p.terminal = w
		say.W = above{p, w}
	}
	return p
}

// above is a writer whose output appears above the status line.
type above struct {
	p *progress
	w io.Writer
}

func (a above) Write(b []byte) (int, error) {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	a.p.clear()
	n, err := a.w.Write(b)
	a.p.draw()
	return n, err
}

func (p *progress) clear() {
	if p.text != "" {
		io.WriteString(p.terminal, "\r\x1b[K")
	}
}

func (p *progress) draw() {
	if p.text != "" {
		io.WriteString(p.terminal, p.text)
	}
}

// verdict prints a try's verdict and suspicions. all counts the suite's verdicts.
func (p *progress) verdict(at suite.Attempt, v *schema.SuiteTry, all func() schema.SuiteRates) {
	text := at.String()
	if v.Try > 1 {
		text += fmt.Sprintf(", try %d", v.Try)
	}
	text += ": " + described(v)
	if p.terminal == nil {
		p.say.Info("%s", text)
	} else {
		p.update(all(), text)
	}
	if v.ModelFailed > 0 && v.Class != schema.SuiteProvider {
		p.say.Warning("%s: %d of %d requests to models failed on the provider's side, or were not recorded", at,
			v.ModelFailed, v.ModelRequests)
	}
	if slices.Contains(v.Unknown, suite.RuleFillsDisk) {
		p.say.Warning("%s: it may have used more of the disk than its limit: assay-suite could not look into all "+
			"of its processes, which may have deleted files open", at)
	}
	for _, f := range v.Suspicions {
		p.say.Warning("%s: %s: %s", at, f.Rule, f.Text)
	}
}

// update redraws the status line: the verdicts so far, the time, and the last verdict.
func (p *progress) update(all schema.SuiteRates, last string) {
	text := fmt.Sprintf("assay-suite: %d of %d", all.Attempts-all.Pending, all.Attempts)
	for _, c := range []struct {
		n    int
		what string
	}{{all.Passed, "passed"}, {all.Failed, "failed"}, {all.Inconclusive, "inconclusive"},
		{all.Infrastructure, "infrastructure"}, {all.Suspicious, "suspicious"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	text += fmt.Sprintf(", %v; %s", time.Since(p.start).Round(time.Second), last)
	line := []rune(schema.OneLine(strings.ReplaceAll(text, "\n", " ")))
	if width := console.Width(p.terminal); len(line) >= width {
		line = line[:width-1]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	p.text = string(line)
	p.draw()
}

// done removes the status line.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	p.text = ""
}
