package render

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// Limits of the output that is printed, in bytes: of a terminal recording, and of each stream.
const (
	maxCast   = 32 << 20
	maxStream = 64 << 10
)

// Show prints what a run did, in the order of time.
func Show(ctx context.Context, w io.Writer, b *view.Bundle, opt ShowOptions) error {
	t := newPrinter(w, opt)
	var s timeline
	var streams []stream
	for it, err := range b.Items(ctx, schema.EventsPath, schema.TurnsPath, schema.SDKPath, schema.PolicyPath,
		schema.ModelPath, schema.TerminalPath, schema.StdoutPath, schema.StderrPath) {
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
		if err := t.kernel(it.Kernel); err != nil {
			return err
		}
	}
	s.until(t, 1<<62)
	if err := t.flush(); err != nil {
		return err
	}
	t.end(b, streams, s.lost)
	return t.flush()
}

type stream struct {
	name string
	data []byte
	size int64
}
