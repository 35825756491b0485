package render

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// pollEvery is the time between two reads of a live spool. The recorder writes four times a second.
const pollEvery = 250 * time.Millisecond

// Follow prints what is added to a spool, until the run or the context ends. It only reads, and follows no links in the
// spool.
func Follow(ctx context.Context, w io.Writer, dir string, opt ShowOptions) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t := newPrinter(w, opt)
	f := &follower{root: root, files: map[string]*tail{}}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		alive := archive.Alive(dir) // asked first, so that the last lines of a run that ends now are read
		if err := f.poll(t); err != nil {
			return err
		}
		if err := t.flush(); err != nil {
			return err
		}
		if f.finished || !alive {
			if !f.finished {
				t.write("the run was interrupted: run assay-run recover to seal what was recorded\n")
			}
			return t.flush()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// follower reads the new lines of the files in a spool.
type follower struct {
	root     *os.Root
	files    map[string]*tail
	castAt   time.Duration // time of the last line of the recording
	began    int64         // as timeline.began
	finished bool          // the run has finished
	e        schema.KernelEvent
}

// tail is a file that grows.
type tail struct {
	f    *os.File
	rest []byte // an unfinished line
}

// poll prints what is new, in the order of time.
func (f *follower) poll(t *printer) error {
	s := timeline{began: f.began}
	for _, path := range []string{schema.EventsPath, schema.TurnsPath, schema.SDKPath, schema.PolicyPath,
		schema.TerminalPath} {
		decoder := schema.NewLineDecoder(path)
		err := f.lines(path, func(line []byte) (err error) {
			if path == schema.TerminalPath {
				f.castAt, err = s.cast(line, f.castAt)
				return err
			}
			record, err := decoder.Decode(line)
			if err != nil {
				return err
			}
			if record.Event != nil && record.Event.Type == schema.RunFinished {
				f.finished = true
			}
			s.record(&record)
			return nil
		})
		if err != nil {
			return err
		}
	}
	f.began = s.began
	s.sort()
	err := f.lines(schema.KernelPath, func(line []byte) error {
		if err := schema.DecodeKernelEvent(line, &f.e); err != nil {
			return err
		}
		s.until(t, f.e.TNS)
		return t.kernel(&f.e)
	})
	s.until(t, 1<<62)
	return err
}

// lines calls yield with each new whole line of a file.
func (f *follower) lines(path string, yield func([]byte) error) error {
	file := f.files[path]
	if file == nil {
		h, err := f.root.Open(filepath.FromSlash(path))
		if errors.Is(err, os.ErrNotExist) {
			return nil // it does not exist before its first line
		}
		if err != nil {
			return err
		}
		file = &tail{f: h}
		f.files[path] = file
	}
	buf := make([]byte, 256<<10)
	for {
		n, err := file.f.Read(buf)
		data := append(file.rest, buf[:n]...)
		for {
			i := bytes.IndexByte(data, '\n')
			if i < 0 {
				break
			}
			if err := yield(data[:i]); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			data = data[i+1:]
		}
		file.rest = bytes.Clone(data)
		if len(file.rest) > archive.MaxLine {
			return fmt.Errorf("%s: a line of more than %d bytes", path, archive.MaxLine)
		}
		if n == 0 || err != nil {
			if err == io.EOF {
				err = nil
			}
			return err
		}
	}
}
