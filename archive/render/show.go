package render

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// maxCast and maxStream bound what is printed of the output, in bytes.
const (
	maxCast   = 32 << 20
	maxStream = 64 << 10
)

// Show prints what a run did, in the order of time.
func Show(ctx context.Context, w io.Writer, b *view.Bundle, opt ShowOptions) error {
	t := newTeller(w, opt)
	var s sides
	var streams []stream
	for it, err := range b.Items(ctx, schema.EventsPath, schema.TurnsPath, schema.SDKPath, schema.PolicyPath,
		schema.TerminalPath, schema.StdoutPath, schema.StderrPath) {
		if err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
		switch it.Path {
		case schema.TerminalPath:
			if err := s.recording(it.Member); err != nil {
				return fmt.Errorf("%s: %s: %w", b.Name, it.Path, err)
			}
		case schema.StdoutPath, schema.StderrPath:
			data, err := io.ReadAll(io.LimitReader(it.Member, maxStream))
			if err != nil {
				return fmt.Errorf("%s: %s: %w", b.Name, it.Path, err)
			}
			streams = append(streams, stream{strings.TrimPrefix(it.Path, "stdio/"), data, it.Member.Size})
		default:
			s.record(&it.Record)
		}
	}
	s.sort()
	for it, err := range b.Items(ctx, schema.KernelPath) {
		if err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
		s.until(t, it.Kernel.TNS)
		if err := t.Kernel(it.Kernel); err != nil {
			return err
		}
	}
	s.until(t, 1<<62)
	if err := t.Flush(); err != nil {
		return err
	}
	t.end(b, streams, s.lost)
	return t.Flush()
}

type stream struct {
	name string
	data []byte
	size int64
}

// recording takes in a terminal recording. Its times count from about the start
// of the command, which the lifecycle tells; that layer comes before it.
func (s *sides) recording(m io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(m, maxCast))
	if err != nil {
		return err
	}
	var at time.Duration
	for line := range bytes.Lines(data) {
		if at, err = s.cast(bytes.TrimSuffix(line, []byte{'\n'}), at); err != nil {
			return nil // a torn last line
		}
	}
	return nil
}

// end tells what has no time: the output that was captured without one, and
// what the story may be missing.
func (t *teller) end(b *view.Bundle, streams []stream, lost int) {
	for _, s := range streams {
		if len(s.data) == 0 {
			continue
		}
		title := fmt.Sprintf("\n%s (%d bytes; it was captured without times)\n", s.name, s.size)
		t.write(t.paint(bold, title))
		for line := range bytes.Lines(s.data) {
			t.Detail("│ " + withoutEscapes(strings.TrimRight(string(line), "\r\n")))
		}
		if int64(len(s.data)) < s.size {
			t.Detail(fmt.Sprintf("│ … and %d bytes more", s.size-int64(len(s.data))))
		}
	}
	t.write(t.paint(bold, "\nwhat this story may be missing\n"))
	for _, w := range view.Sentences(b.Docs) {
		mark := "  ✓ "
		if !w.Good {
			mark = "  ! "
		}
		t.write(mark + view.Clean(w.Text) + "\n")
		for _, why := range w.Why {
			t.write("      " + view.Clean(why) + "\n")
		}
	}
	if t.reads > 0 && !t.opt.Reads {
		t.write(fmt.Sprintf("  files were opened for reading %d times; --reads shows them\n", t.reads))
	}
	if lost > 0 {
		t.write(fmt.Sprintf("  %d further turns and lines of output found no room\n", lost))
	}
}
