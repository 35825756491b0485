package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/schema"
)

// observation is the kernel layer of one run: the observer, and a goroutine
// that takes every event from the ring to the recorder. The goroutine owns the
// builder and the surface until done delivers.
type observation struct {
	observer *kernel.Observer
	builder  *layer.Builder
	surface  *layer.Surface
	done     chan error
	closed   bool
}

// openTimeout bounds the self-test.
const openTimeout = 5 * time.Second

// observe starts the kernel layer, or notes why there is none.
func (r *run) observe(ctx context.Context) error {
	r.surface = layer.NewSurface(r.spec.RunID, r.opt.ScratchDir, 0)
	if r.spec.Kernel == KernelOff {
		return nil
	}
	observer, err := r.openObserver(ctx)
	if err != nil {
		if r.spec.Kernel == KernelRequire {
			e := schema.ResultError{Code: "kernel_layer_unavailable", Message: err.Error(), Hint: "run assay-run doctor; without --kernel require the run goes on and says what it could not see"}
			var u *kernel.Unavailable
			if errors.As(err, &u) && len(u.Reasons) > 0 && u.Reasons[0].Remedy != "" {
				e.Hint = u.Reasons[0].Remedy
			}
			return &runError{source: schema.SourceRunner, exit: ExitRunner, ResultError: e}
		}
		r.unobserved = err
		return nil
	}
	o := &observation{observer: observer, surface: r.surface, done: make(chan error, 1)}
	o.builder = layer.NewBuilder(layer.Options{
		RunID: r.spec.RunID, Start: uint64(r.rec.start()), Surface: r.surface,
		CompatV0: r.spec.Compat == "v0", Sink: r.kernelSink(),
	})
	go func() {
		readErr := observer.Read(o.builder.Push)
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
	return kernel.Open(ctx, kernel.Config{CgroupPath: r.session.Path(), SelfTest: true})
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
	if err := o.observer.Close(); err != nil {
		r.rec.event(schema.Event{Type: schema.RecorderError, Code: "kernel_layer_failed", Message: err.Error()})
	}
}

// writeSurface streams the capability surface: it may be larger than memory.
func (r *run) writeSurface() error {
	w, err := r.opt.Recorder.Create(schema.SurfacePath)
	if err != nil {
		return fmt.Errorf("write %s: %w", schema.SurfacePath, err)
	}
	_, err = r.surface.WriteTo(w)
	r.surface.Close()
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("write %s: %w", schema.SurfacePath, err)
	}
	return nil
}
