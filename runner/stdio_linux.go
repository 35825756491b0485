package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/stdio"
	"github.com/assay-run/assay-run/schema"
)

// streams carry the command's standard streams and keep copies of them.
type streams struct {
	log           *evidence.Log
	cfg           stdio.Config
	session       *containment
	onOutputError func(stream string, err error) // may be nil

	*stdio.Streams // nil until they are open

	mu      sync.Mutex // the goroutines that copy tell of failures
	reasons []schema.Reason
}

func newStreams(log *evidence.Log, opt Options, spec *Spec, session *containment) *streams {
	return &streams{log: log, session: session, onOutputError: opt.OnOutputError, cfg: stdio.Config{
		Stdin: opt.Stdin, Stdout: opt.Stdout, Stderr: opt.Stderr,
		Capture: spec.Capture, CaptureBytes: int64(spec.CaptureBytes),
	}}
}

func (s *streams) open(context.Context) (err error) {
	s.cfg.Create, s.cfg.Settings, s.cfg.OnError = s.log.Recorder.Create, s.session.guard.TerminalChanged, s.failed
	s.cfg.Pieces = s.log.Redactor.Pieces
	s.cfg.OnTruncate = func(stream string, at int64) {
		s.log.Event(schema.Event{Type: schema.CaptureTruncated, Stream: stream, Bytes: at})
	}
	if s.Streams, err = stdio.Open(s.cfg); err != nil {
		return sandboxError("stdio_failed", err)
	}
	return nil
}

// failed is told by the goroutines that copy.
func (s *streams) failed(stream string, err error) {
	reason := schema.Reason{
		Subject: "stdio", Code: "capture_failed", Message: fmt.Sprintf("the recorded copy of %s is incomplete: %v", stream, err),
		Remedy: "make room on the disk that holds the spool",
	}
	if errors.Is(err, stdio.ErrOutput) {
		reason.Code, reason.Remedy = "output_failed", "make room where the command's output goes"
		reason.Message = fmt.Sprintf("%v: from then on the command could not write to %s (EPIPE), and the recorded copy ends there", err, stream)
		if s.onOutputError != nil {
			s.onOutputError(stream, err)
		}
	}
	s.log.Event(schema.Event{Type: schema.RecorderError, Stream: stream, Code: reason.Code, Message: err.Error()})
	if reason.Code == "capture_failed" {
		s.log.Lose(reason)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reasons = append(s.reasons, reason)
}

func (s *streams) close(res *schema.Result) error {
	if s.Streams != nil {
		s.Abort()
		res.Stdio = s.Finish(0)
	}
	return nil
}

func (s *streams) health(h *schema.ObservationHealth) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Reasons = append(h.Reasons, s.reasons...)
}
