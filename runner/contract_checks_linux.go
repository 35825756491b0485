package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/schema"
)

// checks runs the checks of a contract, each in a cgroup of its own of the run's
// session, with the agent's environment and under its limits. Only where an
// agent is to report (its logs, the socket for its tool calls) they are not
// told.
type checks struct {
	log     *evidence.Log
	dir     string
	env     []string
	signals *inbox
	grace   time.Duration
	session *containment
	confine func(contract.Group) contract.Group
	strict  *strictChecks                                          // nil where checks are not strict
	within  func(fresh string) func(contract.Group) contract.Group // the sandbox of a strict check
	permit  func(command string) error
	marked  *layer.Checks

	mu       sync.Mutex // below: shared with the goroutine that evaluates
	phase    contract.Phase
	group    *cgroup.Group // of the check that runs; nil between checks
	signaled string        // the signal that it was sent
}

func (c *checks) started(phase contract.Phase, check contract.Check) {
	c.log.Event(schema.Event{Type: schema.CheckStarted, Check: check.Name, Phase: string(phase)})
}

func (c *checks) completed(phase contract.Phase, check contract.Check, r schema.CheckResult) {
	e := schema.Event{Type: schema.CheckCompleted, Check: check.Name, Phase: string(phase), Passed: &r.Passed, DurationMS: &r.DurationMS}
	e.ExitCode, e.OutputTail = &schema.Nullable[int]{}, tail(r.OutputTail)
	if r.ExitCode != nil {
		e.ExitCode.Value, e.ExitCode.Valid = *r.ExitCode, true
	}
	if !r.Passed {
		e.Message = contract.Why(r)
	}
	c.log.Event(e)
}

// eventTail is how many bytes of a check's output an event has; contract.json has more.
const eventTail = 1024

func tail(s string) string {
	if len(s) <= eventTail {
		return s
	}
	return strings.ToValidUTF8(s[len(s)-eventTail:], "")
}

// Run runs one check; it implements [contract.Executor]. A check that the policy
// denies, or that a signal of the user's cut off, has not failed: it could not run.
func (c *checks) Run(ctx context.Context, check contract.Check, index int, out io.Writer) (contract.ExitStatus, error) {
	if err := c.permit(check.Command); err != nil {
		return contract.ExitStatus{}, err
	}
	env, confine := c.env, c.confine
	if c.strict != nil {
		dir, clean, err := c.strict.open()
		if err != nil {
			return contract.ExitStatus{}, err
		}
		defer c.strict.close(dir)
		env, confine = clean, c.within(dir)
	}
	if err := c.session.thawed(ctx); err != nil {
		return contract.ExitStatus{}, err
	}
	var id uint64
	shell := contract.Shell{Dir: c.dir, Env: env, Group: func(name string) (contract.Group, error) {
		group, err := c.session.NewGroup(name)
		if err != nil {
			return nil, err
		}
		id = group.ID()
		c.marked.Begin(id, layer.Check{Name: check.Name, Baseline: c.phase == contract.Baseline})
		c.enter(group)
		return confine(group), nil
	}}
	status, err := shell.Run(ctx, check, index, out)
	c.marked.End(id, uint64(bootTime()))
	if sig := c.leave(); sig != "" && err == nil && (status.Signal != "" || status.Code != 0) {
		return status, fmt.Errorf("interrupted by %s", sig)
	}
	return status, err
}

func (c *checks) enter(group *cgroup.Group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group, c.signaled = group, ""
}

func (c *checks) leave() (signaled string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.group = nil
	return c.signaled
}

// attended runs f, and passes on the signals that come meanwhile. The error is f's, or an
// *interruption that ended it: the end of ctx, the grace after a SIGTERM, or a second SIGINT or
// SIGTERM.
func (c *checks) attended(ctx context.Context, f func(context.Context) error) error {
	done, late := ctx.Done(), c.signals.late()
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- f(inner) }()
	var kill <-chan time.Time
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
			c.log.Event(schema.Event{Type: schema.Cancelled, Message: context.Cause(ctx).Error()})
			cancel(&interruption{outcome: schema.OutcomeCancelled})
		case <-late:
			late = nil
			c.log.Event(schema.Event{Type: schema.Cancelled, SignalName: "SIGTERM", Message: "the grace is over"})
			cancel(&interruption{sig: syscall.SIGTERM, outcome: schema.OutcomeCancelled})
		case sig := <-c.signals.C:
			set := !c.signals.by.IsZero()
			c.signal(sig, cancel)
			if !set {
				late = c.signals.late()
			}
		case <-kill: // a check that is frozen while it starts knows no context
			c.session.made.kill()
			kill = time.After(killInterval)
		}
		if inner.Err() != nil && kill == nil {
			kill = time.After(killInterval)
		}
	}
}

// signal passes on a signal that we got to the check that runs. Signals that
// are an agent's own affair, such as SIGUSR1, come too late for it and mean
// nothing to a check.
func (c *checks) signal(s os.Signal, cancel context.CancelCauseFunc) {
	sig := s.(syscall.Signal)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch sig {
	case syscall.SIGTSTP:
		if c.group != nil {
			_ = c.group.Freeze()
			defer c.group.Thaw()
		}
		stopSelf(false)
		return
	case syscall.SIGINT, syscall.SIGTERM:
		if c.signals.interrupt(sig, c.grace) {
			c.log.Event(schema.Event{Type: schema.Cancelled, SignalName: unix.SignalName(sig), Message: "interrupted while checking"})
			cancel(&interruption{sig: sig, outcome: schema.OutcomeCancelled})
			return
		}
	case syscall.SIGHUP, syscall.SIGQUIT:
	default:
		return
	}
	if c.group == nil {
		return
	}
	c.signaled = unix.SignalName(sig)
	_ = c.group.Signal(sig)
	c.log.Event(schema.Event{Type: schema.SignalForwarded, SignalName: c.signaled})
}
