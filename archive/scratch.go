package archive

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
)

// scratch is a file without a name for new members. If the process dies, nothing is left.
type scratch struct {
	f   *os.File
	end int64
}

// newScratch makes a scratch file in a directory; empty means that for temporary files.
func newScratch(dir string) (*scratch, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("make room for the members: %w", err)
	}
	defer root.Close()
	f, err := createNameless(root)
	if err != nil {
		return nil, fmt.Errorf("make room for the members: %w", err)
	}
	return &scratch{f: f}, nil
}

// createNameless makes a file that is gone when it is closed.
func createNameless(root *os.Root) (*os.File, error) {
	f, err := openNameless(root)
	if !errors.Is(err, errors.ErrUnsupported) {
		return f, err
	}
	name := ".assay-run-" + rand.Text()
	if f, err = root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	if err := root.Remove(name); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
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
