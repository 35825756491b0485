package runner

import (
	"os"
	"sync"
	"sync/atomic"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/internal/stdio"
)

// Contained is what holds the processes of one run together: the session's cgroups
// and the guard.
type Contained struct {
	runID    string
	observed bool // by package kernel
	limits   cgroup.Limits
	terminal *os.File            // whose settings will be changed; nil if there is none
	host     func() *cgroup.Host // probes it once

	begun sync.Once
	made  chan struct{} // closed when the following is known
	// session is nil, and err tells why, if it could not be made; guard is nil, and err
	// tells why, if it could not be started.
	session *cgroup.Session
	guard   *cgroup.Guard
	err     error
	exposed error // why this process is not out of others' reach

	taken     bool        // by a run, which removes the session
	abandoned atomic.Bool // something of it never ended, and this process leaves it to the guard
}

// Contain begins to make what holds the processes of spec's command together, in the
// background: it probes the host, and makes the session and its guard, for which it needs
// no recorder yet. It also opens the host's observer, if that is in place. opt is what Run
// will be given, with this as Contained. Close it.
func Contain(spec *Spec, opt Options) *Contained {
	with, _, err := spec.withPolicy(opt)
	if err != nil {
		return newContained(spec, opt) // Run refuses it
	}
	c := newContained(with, opt)
	c.host = sync.OnceValue(cgroup.ProbeForSession)
	if with.usesBPF() {
		kernel.PreloadIfPinned(int(with.KernelBuffer))
	}
	if with.Containers { // the engine has a say
		go c.host()
	} else {
		go c.begin(false)
	}
	return c
}

func newContained(spec *Spec, opt Options) *Contained {
	c := &Contained{
		runID: spec.RunID, observed: spec.usesBPF(), host: sync.OnceValue(cgroup.Probe), made: make(chan struct{}),
		limits: cgroup.Limits{
			MemoryBytes: int64(spec.Limits.Memory), Pids: spec.Limits.Pids, CPUMilli: int64(spec.Limits.CPUs),
			BestEffort: spec.Limits.BestEffort, Containers: spec.Containers,
		},
	}
	for _, f := range []*os.File{opt.Stdin, opt.Stdout, opt.Stderr} {
		if c.terminal == nil && stdio.IsTerminal(f) {
			c.terminal = f
		}
	}
	if c.observed {
		kernel.WaitForGuard(c.made)
	}
	return c
}

// begin makes everything, unless that has begun, and waits until it is made. With slice,
// the session is where systemd makes cgroups.
func (c *Contained) begin(slice bool) {
	c.begun.Do(func() {
		defer close(c.made)
		c.limits.Slice = slice
		if c.session, c.err = c.host().NewSession(c.runID, c.limits); c.err != nil {
			return
		}
		c.exposed = cgroup.Conceal()
		if c.guard, c.err = c.session.Guard(c.terminal); c.err != nil || !c.observed {
			return
		}
		// From here on, whatever we are killed at: the observer is being loaded already.
		if argv := kernel.Afterwards(); len(argv) > 0 {
			c.guard.Then(argv...)
		}
	})
	<-c.made
}

// kill ends every process of the session, whatever state it is in. It is safe for concurrent use.
func (c *Contained) kill() {
	if c.isMade() && c.session != nil {
		_ = c.session.Kill()
	}
}

// left names the processes of the session that are alive.
func (c *Contained) left() string {
	if !c.isMade() || c.session == nil {
		return ""
	}
	procs, _ := c.session.Agent().Procs()
	return namedShort(named(c.session, procs))
}

func (c *Contained) isMade() bool {
	select {
	case <-c.made:
		return true
	default:
		return false
	}
}

// Close removes what no run has taken. Nothing else may use it then.
func (c *Contained) Close() {
	if c.abandoned.Load() {
		return
	}
	c.begun.Do(func() { close(c.made) }) // nothing is made any more
	<-c.made
	c.host().Tidy()
	if c.taken {
		return
	}
	kernel.DiscardPreload()
	if c.session == nil {
		return
	}
	err := c.session.Remove()
	switch {
	case c.guard == nil:
	case err != nil:
		c.guard.Leave()
	default:
		c.guard.Release()
	}
}
