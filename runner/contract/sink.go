package contract

import (
	"bytes"
	"io"
	"strings"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// tailBytes is how much of the end of a check's output is in its result.
const tailBytes = 4 << 10

// sink receives a check's output: the start goes to a file, up to a limit, the end into the result, and all of it is
// searched for output_contains. Its memory does not grow with the output.
type sink struct {
	file    io.WriteCloser // nil if nothing is kept, or not any more
	err     error          // why file is incomplete
	path    string
	left    int64 // how much more file takes
	kept    int64
	grown   int64 // how much longer redaction made it
	total   int64
	tail    []byte         // at least the last tailBytes
	clean   *redact.Pieces // makes tail; nil leaves secrets in it
	text    []byte         // output_contains; nil: no search
	seam    []byte         // the last len(text)-1 bytes
	matched bool
}

func newSink(check schema.Check, opts Options) *sink {
	s := &sink{left: opts.OutputCap}
	if check.OutputContains != nil {
		s.text = []byte(*check.OutputContains)
		s.matched = len(s.text) == 0
	}
	if opts.Pieces != nil {
		s.clean = opts.Pieces()
	}
	if opts.Output != nil {
		path := schema.CheckOutputPath(check.Name)
		if s.file, s.err = opts.Output(path); s.err == nil {
			s.path = path
		} else {
			s.file = nil
		}
	}
	return s
}

// Write never fails: if the file cannot be written, the copy is incomplete and the result says so, but the check is
// not affected.
func (s *sink) Write(p []byte) (int, error) {
	s.total += int64(len(p))
	s.search(p)
	s.keepEnd(s.clean.Next(p))
	if s.file != nil && s.left > 0 {
		n, err := s.file.Write(p[:min(int64(len(p)), s.left)])
		s.kept += int64(n)
		s.left -= int64(n)
		if err != nil {
			s.giveUp(err)
		}
	}
	return len(p), nil
}

// keepEnd keeps the end of the output after p.
func (s *sink) keepEnd(p []byte) {
	if len(p) >= tailBytes {
		s.tail = append(s.tail[:0], p[len(p)-tailBytes:]...)
		return
	}
	s.tail = append(s.tail, p...)
	if over := len(s.tail) - tailBytes; over > 0 {
		s.tail = append(s.tail[:0], s.tail[over:]...)
	}
}

func (s *sink) search(p []byte) {
	if s.text == nil || s.matched {
		return
	}
	over := len(s.text) - 1
	joint := append(s.seam, p[:min(len(p), over)]...)
	s.matched = bytes.Contains(joint, s.text) || bytes.Contains(p, s.text)
	if len(p) >= over {
		s.seam = append(s.seam[:0], p[len(p)-over:]...)
	} else {
		s.seam = append(s.seam[:0], joint[max(0, len(joint)-over):]...)
	}
}

func (s *sink) giveUp(err error) {
	s.err = err
	_ = s.end()
}

// end closes the copy and determines how much longer redaction made it.
func (s *sink) end() error {
	err := s.file.Close()
	if w, ok := s.file.(interface{ Grown() int64 }); ok {
		s.grown = w.Grown()
	}
	s.file = nil
	return err
}

// close ends the copy and sets the result's fields about the output.
func (s *sink) close(r *schema.CheckResult) {
	if s.file != nil {
		if err := s.end(); err != nil {
			s.err = err
		}
	}
	r.OutputBytes, r.OutputKept, r.OutputRedacted, r.OutputPath = s.total, s.kept+s.grown, s.grown, s.path
	s.keepEnd(s.clean.End())
	r.OutputTail = strings.ToValidUTF8(string(s.tail), "\uFFFD")
	if s.err != nil {
		r.OutputError = s.err.Error()
	}
}
