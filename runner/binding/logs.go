package binding

import (
	"slices"
	"sort"

	"github.com/assay-run/assay-run/runner/agentlog"
)

// logTimes makes the times of the lines of logs more exact, by the writes that the kernel layer reports.
type logTimes struct{ logs map[string]*written }

func newLogTimes() *logTimes { return &logTimes{logs: map[string]*written{}} }

// add names a log, and its current size.
func (l *logTimes) add(path string, size int64) {
	if path != "" {
		l.logs[path] = &written{total: size}
	}
}

// has reports whether a path is that of a log.
func (l *logTimes) has(path string) bool { return l.logs[path] != nil }

// wrote notes a write to a log.
func (l *logTimes) wrote(path string, by write) { l.logs[path].add(by) }

// read notes the position of a line.
func (l *logTimes) read(at agentlog.Arrival) {
	if w := l.logs[at.Log]; w != nil && at.End > w.total {
		w.ends = append(w.ends, at.End)
	}
}

// await makes a line's time more exact once its write is known.
func (l *logTimes) await(at *agentlog.Arrival) {
	if w := l.logs[at.Log]; w != nil && at.End > 0 && len(w.pending) < maxPending {
		w.pending = append(w.pending, stamp{at.End, *at, at})
	}
}

// settle sets the times of lines whose writes are known. final means that all lines have been read.
func (l *logTimes) settle(final bool) {
	for _, w := range l.logs {
		for len(w.pending) > 0 && w.stamp(w.pending[0], final) {
			w.pending = w.pending[1:]
		}
	}
}

// awaited reports whether a line was written in a span by a write that is not known yet.
func (l *logTimes) awaited(first, last int64) bool {
	for _, w := range l.logs {
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

// written is what the kernel layer says about the writes to a log. A line was written by the write whose end, counted
// in bytes from the log's start, is the line's end.
type written struct {
	total   int64   // bytes before the first of writes
	passed  int64   // time of the last write in total
	writes  []write // in order of time
	ends    []int64 // ends of the lines that have been read beyond total
	pending []stamp // lines whose write is not known yet, in order
}

// write is one write, or several that the kernel counted together.
type write struct {
	bytes       int64
	count       uint64
	first, last int64
}

// stamp is the time of a line that will be made more exact.
type stamp struct {
	end  int64 // bytes of the log up to the end of the line
	read agentlog.Arrival
	at   *agentlog.Arrival
}

// maxPending limits the lines of a log that wait for their write, and the writes that wait for a line.
const maxPending = 10_000

// add notes a write. Reports about other processes may be late.
func (w *written) add(by write) {
	if by.last <= w.passed {
		w.total += by.bytes
		return
	}
	i := len(w.writes)
	for i > 0 && w.writes[i-1].last > by.last {
		i--
	}
	if len(w.writes) < maxPending {
		w.writes = slices.Insert(w.writes, i, by)
	}
}

// stamp reports whether a line's write, and all lines of that write, are known. Of writes that the kernel counted
// together, the times of the first and the last are known. If there are as many writes as lines, each wrote one line.
func (w *written) stamp(s stamp, final bool) bool {
	for len(w.writes) > 0 && w.total+w.writes[0].bytes < s.end {
		w.total, w.passed = w.total+w.writes[0].bytes, w.writes[0].last
		w.writes = w.writes[1:]
	}
	if w.total >= s.end {
		return true // it was there before the command
	}
	if len(w.writes) == 0 {
		return false
	}
	by := w.writes[0]
	w.ends = w.ends[sort.Search(len(w.ends), func(i int) bool { return w.ends[i] > w.total }):]
	lines := sort.Search(len(w.ends), func(i int) bool { return w.ends[i] > w.total+by.bytes })
	switch {
	case w.total+by.bytes == s.end:
		by.first = by.last // the last write ended the line
	case lines > 0 && w.ends[lines-1] < w.total+by.bytes && !final:
		return false // more of its lines will be read
	case uint64(lines) == by.count && w.ends[0] == s.end:
		by.last = by.first
	}
	// The kernel reads the clock when the call returns. The line can have been read before.
	if *s.at == s.read && by.last >= s.read.After {
		s.at.After, s.at.At = min(max(by.first, s.read.After), s.read.At), min(by.last, s.read.At)
	}
	return true
}
