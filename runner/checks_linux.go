package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/schema"
)

func (g *gate) started(phase contract.Phase, c contract.Check) {
	g.run.rec.event(schema.Event{Type: schema.CheckStarted, Check: c.Name, Phase: string(phase)})
}

func (g *gate) completed(phase contract.Phase, c contract.Check, r schema.CheckResult) {
	e := schema.Event{Type: schema.CheckCompleted, Check: c.Name, Phase: string(phase), Passed: &r.Passed, DurationMS: &r.DurationMS}
	if !r.Passed {
		e.Message = contract.Why(r)
	}
	g.run.rec.event(e)
}

// Run runs one check; it implements [contract.Executor]. A check that a signal
// of the user's cut off has not failed: it could not run.
func (g *gate) Run(ctx context.Context, check contract.Check, index int, out io.Writer) (contract.ExitStatus, error) {
	var id uint64
	shell := contract.Shell{Dir: g.workdir(), Env: g.run.spec.environ(), Group: func(name string) (contract.Group, error) {
		group, err := g.run.session.NewGroup(name)
		if err != nil {
			return nil, err
		}
		id = group.ID()
		g.checks.Begin(id, layer.Check{Name: check.Name, Baseline: g.phase == contract.Baseline})
		g.enter(group)
		return group, nil
	}}
	status, err := shell.Run(ctx, check, index, out)
	g.checks.End(id, uint64(bootTime()))
	if sig := g.leave(); sig != "" && err == nil && (status.Signal != "" || status.Code != 0) {
		return status, fmt.Errorf("interrupted by %s", sig)
	}
	return status, err
}

func (g *gate) workdir() string {
	dir, _ := g.run.spec.workdir() // openContract has asked before
	return dir
}

func (g *gate) enter(group *cgroup.Group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.group, g.signaled = group, ""
}

func (g *gate) leave() (signaled string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.group = nil
	return g.signaled
}

// interruption is why an evaluation was ended.
type interruption struct{ sig syscall.Signal } // 0: the context's end

func (i *interruption) Error() string {
	if i.sig == 0 {
		return "the run was cancelled"
	}
	return "interrupted by " + unix.SignalName(i.sig)
}

func (i *interruption) exit() int {
	if i.sig == 0 {
		return ExitRunner
	}
	return exitSignalBase + int(i.sig)
}

// attended runs f, and passes on the signals that come meanwhile. The error is
// f's, or an *interruption that ended it: a second SIGINT or SIGTERM, and for
// the baseline the first, or the end of ctx.
func (g *gate) attended(ctx context.Context, f func(context.Context) error) error {
	done := ctx.Done()
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- f(inner) }()
	for {
		select {
		case err := <-ended:
			var end *interruption
			if err != nil && errors.As(context.Cause(inner), &end) {
				return end
			}
			return err
		case <-done:
			done = nil
			g.run.rec.event(schema.Event{Type: schema.Cancelled, Message: context.Cause(ctx).Error()})
			cancel(&interruption{})
		case sig := <-g.run.opt.Signals:
			g.signal(sig, cancel)
		}
	}
}

// signal passes on a signal that we got to the check that runs. Signals that
// are an agent's own affair, such as SIGUSR1, come too late for it and mean
// nothing to a check.
func (g *gate) signal(s os.Signal, cancel context.CancelCauseFunc) {
	sig := s.(syscall.Signal)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch sig {
	case syscall.SIGTSTP:
		if g.group != nil {
			_ = g.group.Freeze()
			defer g.group.Thaw()
		}
		stopSelf(false)
		return
	case syscall.SIGINT, syscall.SIGTERM:
		if g.run.interrupt || g.phase == contract.Baseline {
			g.run.rec.event(schema.Event{Type: schema.Cancelled, SignalName: unix.SignalName(sig), Message: "interrupted while checking"})
			cancel(&interruption{sig})
			return
		}
		g.run.interrupt = true
	case syscall.SIGHUP, syscall.SIGQUIT:
	default:
		return
	}
	if g.group == nil {
		return
	}
	g.signaled = unix.SignalName(sig)
	_ = g.group.Signal(sig)
	g.run.rec.event(schema.Event{Type: schema.SignalForwarded, SignalName: g.signaled})
}
