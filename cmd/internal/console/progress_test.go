package console

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// TestABarIsDrawnOnATerminalAlone draws on a terminal, as if work had gone on for
// longer than a second.
func TestABarIsDrawnOnATerminalAlone(t *testing.T) {
	t.Setenv("TERM", "xterm")
	ctx := context.Background()
	terminal, w, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	_, p := NewProgress(ctx, w, "reading")
	if p == nil {
		t.Fatal("there is no bar on a terminal")
	}
	p.Item(0, 2, "early")
	p.start = p.start.Add(-2 * progressAfter)
	for _, step := range []struct{ item, done int }{{0, 50}, {1, 50}, {1, 100}} {
		p.Item(step.item, 2, "a\x1b[2J.tar.gz")
		p.last = time.Time{}
		p.Step(int64(step.done), 100)
	}
	p.Done()
	p.Step(1, 1) // nothing comes after the end
	w.Close()
	out, _ := io.ReadAll(terminal) // EIO at its end
	got := string(out)
	for _, want := range []string{"[######..................]  25%", "[##################......]  75%",
		"[########################] 100%", `a\x1b[2J.tar.gz`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if !strings.HasSuffix(got, "\r\x1b[K") || strings.Contains(got, "early") {
		t.Errorf("it was drawn too early, or not taken away: %q", got)
	}

	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, p := NewProgress(ctx, file, "reading"); p != nil {
		t.Error("there is a bar in a file")
	}
	t.Setenv("TERM", "dumb")
	if _, p := NewProgress(ctx, terminal, "reading"); p != nil {
		t.Error("there is a bar on a dumb terminal")
	}
}
