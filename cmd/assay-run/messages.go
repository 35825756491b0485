package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/assay-run/assay-run/cmd/internal/console"
)

// messages writes what assay-run itself has to say: to stderr, every line with
// one prefix, coloured only on a terminal that wants it.
type messages struct {
	w      io.Writer
	colour bool
	quiet  bool
}

func newMessages(w *os.File) *messages {
	return &messages{w: w, colour: term.IsTerminal(int(w.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
)

// failure tells of an error, and its hint on a line of its own.
func (m *messages) failure(err error) {
	text := err.Error()
	m.line(red, "error: ", text)
	var h hintError
	if errors.As(err, &h) {
		m.line(yellow, "hint: ", h.hint)
	}
}

// warning tells of something that the user should know and that did not stop
// the run.
func (m *messages) warning(format string, args ...any) {
	m.line(yellow, "warning: ", fmt.Sprintf(format, args...))
}

// info tells how things went. It is silent with --quiet.
func (m *messages) info(format string, args ...any) {
	if !m.quiet {
		m.line("", "", fmt.Sprintf(format, args...))
	}
}

func (m *messages) line(colour, label, text string) {
	if m.colour && label != "" {
		label = colour + label + reset
	}
	for _, l := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintf(m.w, "assay-run: %s%s\n", label, printable(l))
	}
}

// printable keeps what comes from outside from driving the terminal.
func printable(s string) string { return console.Printable(s) }
