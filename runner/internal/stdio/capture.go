package stdio

import (
	"fmt"
	"io"

	"github.com/assay-run/assay-run/schema"
)

// capture is the size-limited copy of one stream. One goroutine writes it.
type capture struct {
	cfg    *Config
	stream string // name for callbacks
	member string // its path in the bundle
	w      io.WriteCloser
	kept   int64 // bytes of the stream in the copy
	done   bool  // the limit was reached, or a write failed: nothing more is kept
}

// room is how many more bytes the copy takes.
func (c *capture) room() int64 {
	if c.done {
		return 0
	}
	return max(c.cfg.CaptureBytes-c.kept, 0)
}

// write keeps as much of p as fits.
func (c *capture) write(p []byte) {
	if c.done || len(p) == 0 {
		return
	}
	keep := p[:min(int64(len(p)), c.room())]
	if len(keep) > 0 {
		n, err := c.append(keep)
		c.kept += int64(n)
		if err != nil {
			c.fail(err)
			return
		}
	}
	if len(keep) < len(p) {
		c.truncate()
	}
}

// append writes p to the member, which it creates for the first byte.
func (c *capture) append(p []byte) (int, error) {
	if c.w == nil {
		w, err := c.cfg.Create(c.member)
		if err != nil {
			return 0, err
		}
		c.w = w
	}
	return c.w.Write(p)
}

func (c *capture) truncate() {
	if !c.done {
		c.done = true
		c.cfg.truncated(c.stream, c.kept)
	}
}

func (c *capture) fail(err error) {
	c.done = true
	c.cfg.failed(c.stream, fmt.Errorf("%w: %s after %d bytes: %w", errCapture, c.member, c.kept, err))
}

// finish closes the member and summarizes a stream of n bytes.
func (c *capture) finish(n int64) *schema.Stream {
	var redacted int64
	if c.w != nil {
		if err := c.w.Close(); err != nil && !c.done {
			c.fail(err)
		}
		if w, ok := c.w.(interface{ Grown() int64 }); ok {
			redacted = w.Grown()
		}
		c.w = nil
	}
	return &schema.Stream{Bytes: n, Captured: c.kept + redacted, RedactedBytes: redacted, Truncated: c.done ||
		c.kept < n}
}
