package archive

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

// scratch is a file without a name for new members. If the process dies, nothing is left.
type scratch struct {
	f   *os.File
	end int64
}

func newScratch(dir string) (*scratch, error) {
	f, err := os.CreateTemp(dir, ".clean-")
	if err != nil {
		return nil, fmt.Errorf("make room for the members: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("make room for the members: %w", err)
	}
	return &scratch{f: f}, nil
}

// member adds a member that fill writes. Only one may be written at a time.
func (s *scratch) member(path string, fill func(io.Writer) error) (source, error) {
	at := s.end
	w := bufio.NewWriterSize(&scratchEnd{s}, 64<<10)
	err := fill(w)
	if ferr := w.Flush(); err == nil {
		err = ferr
	}
	if err != nil {
		return source{}, fmt.Errorf("%s: %w", path, err)
	}
	return source{path: path, size: s.end - at, held: s.f, offset: at}, nil
}

func (s *scratch) Close() error { return s.f.Close() }

type scratchEnd struct{ s *scratch }

func (w *scratchEnd) Write(b []byte) (int, error) {
	n, err := w.s.f.WriteAt(b, w.s.end)
	w.s.end += int64(n)
	return n, err
}
