package view

import (
	"bufio"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// WriteNDJSON writes the lines of events as they are in the bundle. Control characters, which a hostile bundle may hold
// unescaped, are written as \uXXXX, which is the same JSON. It returns the number of lines, and the first error of
// events or of w.
func WriteNDJSON(w io.Writer, events iter.Seq2[*Event, error]) (n int, err error) {
	b := bufio.NewWriterSize(w, 64<<10)
	var line []byte
	for ev, err := range events {
		if err != nil {
			return n, firstError(b.Flush(), err)
		}
		line = schema.AppendForTerminal(line[:0], ev.Line)
		b.Write(line)
		if err := b.WriteByte('\n'); err != nil {
			return n, err
		}
		n++
	}
	return n, b.Flush()
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// WriteTable writes events as a table that is safe for a terminal: seconds since the start, pid, kind, result, and what
// it was about. It returns the number of events, and the first error of events or of w.
func WriteTable(w io.Writer, events iter.Seq2[*Event, error]) (n int, err error) {
	b := bufio.NewWriterSize(w, 64<<10)
	for ev, err := range events {
		if err != nil {
			return n, firstError(b.Flush(), err)
		}
		if n == 0 {
			fmt.Fprintf(b, "%12s %8s  %-14s %-10s %s\n", "TIME", "PID", "KIND", "RESULT", "WHAT")
		}
		n++
		if ev.Kernel == nil {
			_, err = fmt.Fprintf(b, "%12s %8s  %-14s %-10s %s\n", seconds(ev.TNS), "-",
				Cut(schema.OneLine(ev.Kind), 14),
				ev.Layer, schema.OneLine(string(ev.Line)))
		} else {
			e := ev.Kernel
			_, err = fmt.Fprintf(b, "%12s %8d  %-14s %-10s %s\n", seconds(e.TNS), e.PID, ev.Kind, Outcome(e), What(e))
		}
		if err != nil {
			return n, err
		}
	}
	return n, b.Flush()
}

// Outcome returns a word for an event's result.
func Outcome(e *schema.KernelEvent) string {
	switch {
	case e.Blocked():
		return "blocked"
	case e.Kind == schema.KindExit && e.WaitStatus&0x7f != 0:
		return schema.SignalName(e.WaitStatus & 0x7f)
	case e.Kind == schema.KindExit:
		return fmt.Sprintf("exit %d", e.WaitStatus>>8&0xff)
	case !e.HasResult:
		return "-"
	case e.Result < 0:
		return e.Errno()
	}
	return "ok"
}

// marked returns the event's path with its marks, such as the "(deleted)" of /proc/PID/exe.
func marked(e *schema.KernelEvent) string {
	s, marks := e.Value, e.Marks.String()
	if e.Truncated&schema.FieldValue != 0 {
		marks = strings.TrimPrefix(marks+",truncated", ",")
	}
	if marks != "" {
		s = strings.TrimPrefix(s+" ("+marks+")", " ")
	}
	return s
}

// What describes the event's object and its details. It is safe for a terminal.
func What(e *schema.KernelEvent) string {
	s := schema.OneLine(marked(e))
	switch e.Kind {
	case schema.KindExec:
		if len(e.Argv) > 0 {
			s += "  " + Cut(QuoteArgs(e.Argv), 200)
		}
		if e.Loader != "" {
			s += "  loaded by " + schema.OneLine(e.Loader)
		}
	case schema.KindFork:
		s = fmt.Sprintf("from pid %d", e.PPID)
	case schema.KindRename, schema.KindLink, schema.KindSymlink:
		s += " -> " + schema.OneLine(e.Name(e.Target))
	case schema.KindOpen:
		s += "  " + mode(e)
	}
	for i, n := range e.Names {
		if i == 0 {
			s += " ("
		} else {
			s += ", "
		}
		s += schema.OneLine(n)
		if i == len(e.Names)-1 {
			s += ")"
		}
	}
	if e.Remote != "" {
		s += "  at " + schema.OneLine(e.Remote)
	}
	if e.DNS != nil {
		s += "  " + schema.OneLine(e.DNS.Type)
		for _, a := range e.DNS.Answers {
			s += " " + schema.OneLine(a.Data)
		}
	}
	if e.Call != "" {
		s += " " + schema.OneLine(e.Call)
	}
	if e.BytesOut > 0 {
		s += "  out " + Size(e.BytesOut)
	}
	if e.BytesIn > 0 {
		s += "  in " + Size(e.BytesIn)
	}
	if e.Repeat {
		s += fmt.Sprintf("  ×%d", e.Count)
	}
	if e.Class != schema.ClassAgent {
		s += "  [" + e.Class.String() + "]"
	}
	if (e.Claimed || e.DirectoryClaimed) && !e.Attempted { // attempted calls are always claimed
		s += "  [claimed]"
	}
	return s
}

// mode returns the mode of an open: r, w or rw, and c for create.
func mode(e *schema.KernelEvent) string {
	m := [...]string{"r", "w", "rw", "?"}[e.Flags&3]
	if e.Creates() {
		m += "c"
	}
	return m
}

// WriteLine writes one line of a bundle as [WriteNDJSON] does, without its newline.
func WriteLine(b *bufio.Writer, line []byte) { b.Write(schema.AppendForTerminal(nil, line)) }
