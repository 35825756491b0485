package archive

import (
	"fmt"
)

// AppendBatch adds n lines to a layer, in one write and without another's line
// between them. encode appends line i as in Append. A batch with a line that
// Append would refuse is dropped as a whole and takes no sequence number.
func (s *Spool) AppendBatch(path string, n int, encode func(dst []byte, seq uint64, i int) []byte) error {
	l := s.layers[path]
	if l == nil {
		return fmt.Errorf("append to %s: not a layer", path)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.takes(uint64(n)); err != nil {
		return err
	}
	start := len(l.buf)
	for i := range n {
		at := len(l.buf)
		l.buf = encode(l.buf, l.seq+uint64(i), i)
		if err := l.endLine(at); err != nil {
			l.buf = l.buf[:start]
			l.lose(uint64(n))
			return fmt.Errorf("append to %s: a batch was dropped for %w", l.path, err)
		}
	}
	l.seq += uint64(n)
	l.pending += uint64(n)
	return l.flush()
}
