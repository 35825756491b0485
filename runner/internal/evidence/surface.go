package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
)

// smallSurface is the size in bytes up to which the surface is written like the other documents. A larger one does
// not fit into the space that is reserved in case of a full disk.
const smallSurface = 256 << 10

// surfaceFile writes capability-surface.json. reasons say what is wrong with it.
type surfaceFile struct{ reasons []schema.Reason }

// write closes the surface. A large one is written in pieces. If that fails, the bundle gets an empty one and a
// reason.
func (s *surfaceFile) write(l *Log) error {
	defer l.Surface.Close()
	w := &spillWriter{limit: smallSurface, open: func() (io.WriteCloser, error) {
		return l.Recorder.Create(schema.SurfacePath)
	}}
	_, err := l.Surface.WriteTo(w)
	if err = errors.Join(err, w.Close()); err == nil && w.spilled == nil {
		err = l.Recorder.Put(schema.SurfacePath, w.small.Bytes())
	}
	if err == nil {
		s.reasons = l.Surface.Reasons()
		return nil
	}
	s.reasons = []schema.Reason{{
		Subject: "surface", Code: "surface_not_written",
		Message: fmt.Sprintf("capability-surface.json is empty because it could not be written: %v", err),
		Remedy:  "make room on the disk that holds the spool",
	}}
	empty := surface.New(l.RunID, "")
	defer empty.Close()
	w.small.Reset()
	_, _ = empty.WriteTo(&w.small) // a buffer cannot fail
	return errors.Join(
		fmt.Errorf("write %s: %w", schema.SurfacePath, err), l.Recorder.Put(schema.SurfacePath, w.small.Bytes()),
	)
}

// spillWriter keeps up to limit bytes in memory. If there are more, it writes all of them to the file that open
// returns.
type spillWriter struct {
	limit   int
	open    func() (io.WriteCloser, error)
	small   bytes.Buffer
	spilled io.WriteCloser
}

func (w *spillWriter) Write(b []byte) (int, error) {
	if w.spilled == nil && w.small.Len()+len(b) <= w.limit {
		return w.small.Write(b)
	}
	if w.spilled == nil {
		f, err := w.open()
		if err != nil {
			return 0, err
		}
		w.spilled = f
		if _, err := f.Write(w.small.Bytes()); err != nil {
			return 0, err
		}
	}
	return w.spilled.Write(b)
}

func (w *spillWriter) Close() error {
	if w.spilled == nil {
		return nil
	}
	return w.spilled.Close()
}
