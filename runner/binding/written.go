package binding

import (
	"slices"
	"sort"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// written is what the kernel layer says of the writes to a log. A line of the log was
// written by the write whose bytes, counted from the log's start, reach its end.
type written struct {
	total   int64   // bytes before the first of writes
	passed  int64   // the time of the last write that total has
	writes  []write // in the order of time
	ends    []int64 // of the lines that have been read, behind total
	pending []stamp // lines that no write is known for yet, in their order
}

// write is one write, or several that the kernel counted together.
type write struct {
	bytes       int64
	count       uint64
	first, last int64
}

// stamp is a line's time, to be made more exact.
type stamp struct {
	end  int64 // bytes of the log up to and including the line
	read agentlog.Arrival
	at   *agentlog.Arrival
}

// maxPending bounds the lines of a log that wait for their write, and the writes that
// wait for a line.
const maxPending = 10_000

// Log names a log, as the value of kernel events, and how many bytes it has already. It
// is called before the first Wrote.
func (c *Correlator) Log(path string, size int64) {
	if path != "" {
		c.logs[path] = &written{total: size}
	}
}

// Wrote is told of a write as soon as the kernel has reported it, which is before any
// event of that time is bound: so a line counts from the moment at which it was written,
// however late it is read. It is [layer.Options].Wrote. Only a write that lies between
// the two times of a line is believed to be the line's.
func (c *Correlator) Wrote(path string, bytes, count uint64, first, last int64) {
	w := c.logs[path]
	if w == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if last <= w.passed { // of another process, and late
		w.total += int64(bytes)
		return
	}
	i := len(w.writes)
	for i > 0 && w.writes[i-1].last > last {
		i--
	}
	if len(w.writes) < maxPending {
		w.writes = slices.Insert(w.writes, i, write{int64(bytes), count, first, last})
	}
}

// line is told of each line of a log. c.mu is held.
func (c *Correlator) line(at agentlog.Arrival) {
	if w := c.logs[at.Log]; w != nil && at.End > w.total {
		w.ends = append(w.ends, at.End)
	}
}

// stamped makes a line's time more exact once its write is known. c.mu is held.
func (c *Correlator) stamped(at *agentlog.Arrival) {
	if w := c.logs[at.Log]; w != nil && at.End > 0 && len(w.pending) < maxPending {
		w.pending = append(w.pending, stamp{at.End, *at, at})
	}
}

// stamp gives the lines whose writes are known their times. final: all lines have been
// read. c.mu is held.
func (c *Correlator) stamp(final bool) {
	for _, w := range c.logs {
		for len(w.pending) > 0 && w.stamp(w.pending[0], final) {
			w.pending = w.pending[1:]
		}
	}
}

// unstamped reports whether a line was written in a span by a write that is not yet known.
func (c *Correlator) unstamped(first, last int64) bool {
	for _, w := range c.logs {
		for _, s := range w.pending {
			if s.read.After > last {
				break
			}
			if first <= s.read.At {
				return true
			}
		}
	}
	return false
}

// stamp reports whether the write of a line is known, and all lines of that write. Of
// several writes that the kernel counted together, the time of the first and of the last
// is known. If there are as many writes as lines, each wrote one.
func (w *written) stamp(s stamp, final bool) bool {
	for len(w.writes) > 0 && w.total+w.writes[0].bytes < s.end {
		w.total, w.passed = w.total+w.writes[0].bytes, w.writes[0].last
		w.writes = w.writes[1:]
	}
	if w.total >= s.end {
		return true // it was there before
	}
	if len(w.writes) == 0 {
		return false
	}
	by := w.writes[0]
	w.ends = w.ends[sort.Search(len(w.ends), func(i int) bool { return w.ends[i] > w.total }):]
	lines := sort.Search(len(w.ends), func(i int) bool { return w.ends[i] > w.total+by.bytes })
	switch {
	case w.total+by.bytes == s.end:
		by.first = by.last // the last of them ended the line
	case lines > 0 && w.ends[lines-1] < w.total+by.bytes && !final:
		return false // more of its lines will be read
	case uint64(lines) == by.count && w.ends[0] == s.end:
		by.last = by.first
	}
	if *s.at == s.read && by.last >= s.read.After && by.first <= s.read.At {
		s.at.After, s.at.At = max(by.first, s.read.After), min(by.last, s.read.At)
	}
	return true
}
