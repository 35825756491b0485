package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
)

// observation is the kernel layer of one run: the observer, and a goroutine
// that takes every event from the ring to the recorder. The goroutine owns the
// builder and the surface until done delivers.
type observation struct {
	observer *kernel.Observer
	builder  *layer.Builder
	surface  *surface.Builder
	done     chan error
	closed   bool
}

// openTimeout bounds the self-test.
const openTimeout = 5 * time.Second

// observe starts the kernel layer, or notes why there is none.
func (r *run) observe(ctx context.Context) error {
	if r.spec.Kernel == KernelOff {
		return nil
	}
	observer, err := r.openObserver(ctx)
	if err != nil {
		r.unobserved = err
		if r.spec.Kernel == KernelRequire {
			e := schema.ResultError{Code: "kernel_layer_unavailable", Message: err.Error(), Hint: "run assay-run doctor; without --kernel require the run goes on and says what it could not see"}
			var u *kernel.Unavailable
			if errors.As(err, &u) && len(u.Reasons) > 0 && u.Reasons[0].Remedy != "" {
				e.Hint = u.Reasons[0].Remedy
			}
			return &runError{source: schema.SourceRunner, exit: ExitRunner, ResultError: e}
		}
		return nil
	}
	o := &observation{observer: observer, surface: r.surface, done: make(chan error, 1)}
	o.builder = layer.NewBuilder(layer.Options{
		RunID: r.spec.RunID, Start: uint64(r.rec.start()), Surface: r.surface,
		CompatV0: r.spec.Compat == "v0", Sink: r.kernelSink(), Checks: r.gate.cgroups(),
		Bind: r.agentSide.correlator.Bind, Shim: cgroup.IsShim,
	})
	go func() {
		readErr := observer.Read(func(ev *kernel.Event) error {
			_ = o.builder.Push(ev) // it counts on, and Close tells: reading must not end
			return nil
		}, func(now uint64) { _ = o.builder.Tick(now) })
		o.done <- errors.Join(readErr, o.builder.Close())
	}()
	r.observation = o
	return nil
}

func (r *run) openObserver(ctx context.Context) (*kernel.Observer, error) {
	if r.session.Path() == "" {
		return nil, &kernel.Unavailable{Reasons: []kernel.Reason{{
			Code: kernel.CodeNoCgroup2, Message: "the run has no cgroup2 directory of its own to observe",
			Remedy: "run as root, or in a delegated cgroup2 subtree",
		}}}
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return kernel.Open(ctx, kernel.Config{CgroupPath: r.session.Path(), RingBytes: int(r.spec.KernelBuffer), SelfTest: true})
}

// kernelSink appends lines to the kernel layer in the form that was asked for.
func (r *run) kernelSink() func(*schema.KernelEvent) error {
	v0 := r.spec.Compat == "v0"
	return func(e *schema.KernelEvent) error {
		return r.opt.Recorder.Append(schema.KernelPath, func(dst []byte, seq uint64) []byte {
			e.Seq = seq
			if v0 {
				dst, _ = schema.AppendJSONv0(dst, e) // the builder hands on only what v0 has a line for
				return dst
			}
			return schema.AppendJSON(dst, e)
		})
	}
}

// endObservation takes in what is left in the kernel once nothing of the run
// runs any more.
func (r *run) endObservation() {
	o := r.observation
	if o == nil || o.closed {
		return
	}
	o.closed = true
	if err := errors.Join(o.observer.Stop(), <-o.done); err != nil {
		r.rec.event(schema.Event{Type: schema.RecorderError, Code: "kernel_layer_failed", Message: err.Error()})
	}
	report := o.observer.Report()
	r.kernelAccount = layer.Account{
		Report: &report, Counts: o.builder.Counts(), Stats: o.builder.Stats(), LeftOut: o.surface.LeftOut(),
	}
	r.result.Usage.Processes = r.processes()
	if err := o.observer.Close(); err != nil {
		r.rec.event(schema.Event{Type: schema.RecorderError, Code: "kernel_layer_failed", Message: err.Error()})
	}
}

// settleKernelAccount takes into account the lines that the recorder accepted
// and could not keep: they were written for the builder, and are dropped.
func (r *run) settleKernelAccount() {
	a := &r.kernelAccount
	if a.Report == nil {
		return
	}
	kept := r.opt.Recorder.Counts(schema.KernelPath).Written
	lost := a.Counts.Written - kept
	a.Counts.Written -= lost
	a.Counts.Dropped += lost
	a.Stats.Written -= lost
	a.Stats.Dropped += lost
}

// smallSurface is up to where the surface is one document like the others,
// in bytes: only such a one fits into the space kept for a full disk.
const smallSurface = 256 << 10

// writeSurface writes the capability surface, piece by piece when it is large.
// When that fails the bundle gets an empty one, and a reason that says so.
func (r *run) writeSurface() error {
	defer r.surface.Close()
	w := &spillWriter{limit: smallSurface, open: func() (io.WriteCloser, error) {
		return r.opt.Recorder.Create(schema.SurfacePath)
	}}
	_, err := r.surface.WriteTo(w)
	if err = errors.Join(err, w.Close()); err == nil && w.spilled == nil {
		err = r.opt.Recorder.Put(schema.SurfacePath, w.small.Bytes())
	}
	if err == nil {
		r.reasons = append(r.reasons, r.surface.Reasons()...)
		return nil
	}
	r.reasons = append(r.reasons, schema.Reason{
		Subject: "surface", Code: "surface_not_written", Message: fmt.Sprintf("capability-surface.json is empty because it could not be written: %v", err),
		Remedy: "make room on the disk that holds the spool",
	})
	empty := surface.New(r.spec.RunID, "")
	defer empty.Close()
	w.small.Reset()
	_, _ = empty.WriteTo(&w.small) // a buffer cannot fail
	return errors.Join(fmt.Errorf("write %s: %w", schema.SurfacePath, err), r.opt.Recorder.Put(schema.SurfacePath, w.small.Bytes()))
}

// spillWriter keeps up to limit bytes in memory, and once there are more has
// all of them in the file that open gives.
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
