// Package console is how the programs of this module talk to the person who
// runs them: lines on stderr with one prefix, errors with a hint and an exit
// code, and a progress bar on a terminal. Text from evidence never reaches the
// terminal raw.
package console

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/assay-run/assay-run/schema"
)

// Messages writes what the program itself has to say: every line with one
// prefix, coloured only on a terminal that wants it. The zero Colour and Quiet
// mean plain text and all messages.
type Messages struct {
	W io.Writer
	// Name is the prefix of every line.
	Name string
	// Colour colours the labels of errors and warnings.
	Colour bool
	// Quiet silences Info.
	Quiet bool
}

// New makes Messages that go to w.
func New(name string, w *os.File) *Messages {
	return &Messages{W: w, Name: name, Colour: Colours(w)}
}

// Terminal reports whether f is a terminal.
func Terminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Width is how many columns the terminal f has, 80 if it does not say, and 0 if f is
// no terminal.
func Width(f *os.File) int {
	if !Terminal(f) {
		return 0
	}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width >= 20 {
		return width
	}
	return 80
}

// Colours reports whether f is a terminal that wants colours (no-color.org).
func Colours(f *os.File) bool {
	return Terminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
)

// Failure prints an error, and its hint on the next line.
func (m *Messages) Failure(err error) {
	m.Error("%v", err)
	var h HintError
	if errors.As(err, &h) {
		m.line(yellow, "hint: ", h.Hint)
	}
}

// Error prints an error without a hint.
func (m *Messages) Error(format string, args ...any) {
	m.line(red, "error: ", fmt.Sprintf(format, args...))
}

// Warning prints what the user should know and what did not stop the program.
func (m *Messages) Warning(format string, args ...any) {
	m.line(yellow, "warning: ", fmt.Sprintf(format, args...))
}

// Advice prints a warning, and what to do about it on the next line.
func (m *Messages) Advice(hint, format string, args ...any) {
	m.Warning(format, args...)
	if hint != "" {
		m.line(yellow, "hint: ", hint)
	}
}

// Info prints how things went, unless Quiet is set.
func (m *Messages) Info(format string, args ...any) {
	if !m.Quiet {
		m.line("", "", fmt.Sprintf(format, args...))
	}
}

func (m *Messages) line(colour, label, text string) {
	if m.Colour && label != "" {
		label = colour + label + reset
	}
	for l := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		fmt.Fprintf(m.W, "%s: %s%s\n", m.Name, label, schema.OneLine(l))
	}
}

// Unverified warns that a bundle is read although it does not verify.
func (m *Messages) Unverified(name string, problem error) {
	m.Warning("%s does not verify: %v; nothing below is proven", name, problem)
}

// ExitCode prints the error that ended a command, and returns the exit code: that of an
// [ExitError], failed for any other error, and 0 for none.
func (m *Messages) ExitCode(err error, failed int) int {
	var exit ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if exit.Err != nil {
			m.Failure(exit.Err)
		}
		return exit.Code
	}
	m.Failure(err)
	return failed
}
