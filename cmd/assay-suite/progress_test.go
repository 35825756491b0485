//go:build linux

package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// TestATerminalHasOneLine expects a single status line on a terminal.
func TestATerminalHasOneLine(t *testing.T) {
	terminal, w, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if err := pty.Setsize(w, &pty.Winsize{Rows: 24, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := suiteIn(t, dir, `name: s
tasks: [{name: one, prompt: p}, {name: two, prompt: p}]
agents: [{name: agent, command: "true"}]
`)
	cmd.Stderr = w
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=1")
	var out strings.Builder
	read := make(chan struct{})
	go func() {
		io.Copy(&out, terminal) // it returns EIO at the end
		close(read)
	}()
	err = cmd.Run()
	w.Close()
	<-read
	got := out.String()
	if err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	for _, want := range []string{"assay-suite: 1 of 2, 1 passed, ", "\r\x1b[Kassay-suite: 2 of 2, 2 passed, ",
		"\r\x1b[Kassay-suite: agent: 100.0 %"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if strings.Contains(got, "\nassay-suite: one/agent/1: passed") {
		t.Errorf("there is a line for a verdict: %q", got)
	}
	for part := range strings.SplitSeq(got, "\r\x1b[K") {
		if line, _, _ := strings.Cut(part, "\r\n"); strings.Contains(line, " of 2, ") && len(line) >= 60 {
			t.Errorf("the line is as wide as the terminal or wider: %q", line)
		}
	}
}
