package runner

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// command is the command of a run, from its start inside the agent's cgroup to
// the end of everything it started.
type command struct {
	log     *evidence.Log
	argv    []string
	env     []string
	workdir func() (string, error)
	timeout time.Duration // 0: none
	grace   time.Duration
	signals *inbox
	session *containment
	inside  *confinement
	streams *streams
	shape   func() shaper // what changes the command before it starts
	start   func(cmd *exec.Cmd, start func(*exec.Cmd) error) error
	began   time.Duration // the run, on the boot clock
	// draining is called when nothing of the command is left.
	draining func()
	// over is called as soon as the command has ended.
	over func()
	// outlived is called when the command has ended, before what it left is.
	outlived func()

	cmd     *exec.Cmd
	job     *cgroup.Job   // nil but on a terminal of the command's own
	shared  bool          // the command is in our process group
	started time.Duration // on the boot clock

	outcome   string // empty until it has ended
	exit      int    // its own, or 128 and the signal's number
	signal    string // that ended it; empty when it exited
	ended     time.Duration
	runsAs    *sandbox.User // once it has ended; nil: as we do, or that is not known
	leftovers *int          // how many processes outlived it
	survivors int           // how many of them could not be ended

	survivorNames string // the first of these
	timings       schema.Timings
}

func newCommand(log *evidence.Log, spec *Spec, signals *inbox, session *containment, inside *confinement, streams *streams, began time.Duration) *command {
	return &command{
		log: log, argv: spec.Command, env: spec.environ(), workdir: spec.workdir, timeout: spec.Timeout, grace: spec.Grace,
		signals: signals, session: session, inside: inside, streams: streams, began: began,
	}
}

// open starts the command.
func (c *command) open(ctx context.Context) error {
	c.session.sweeping.Wait()
	if err := c.session.thawed(ctx); err != nil {
		return err
	}
	dir, err := c.workdir()
	if err != nil {
		return sandboxError("workdir_unusable", err)
	}
	c.cmd = &exec.Cmd{Args: c.argv, Env: c.env, Dir: dir}
	if err := c.shape().shape(c.cmd); err != nil {
		return err
	}
	c.cmd.Path, err = lookPath(c.argv[0], dir, c.cmd.Env)
	if err == nil {
		c.streams.Attach(c.cmd)
		c.started = bootTime()
		err = c.execute()
	}
	var missing *runError
	if errors.As(err, &missing) {
		return missing
	}
	if err != nil {
		source, exit, e := startFailure(c.argv[0], dir, err)
		return &runError{source: source, exit: exit, ResultError: e}
	}
	c.timings.SetupNS = new(int64(c.started - c.began))
	c.log.Event(schema.Event{Type: schema.ProcessStarted, PID: c.pid()})
	if err := c.streams.Started(); err != nil {
		c.log.Event(schema.Event{Type: schema.RecorderError, Code: "stdio_failed", Message: err.Error()})
	}
	return nil
}

func (c *command) execute() (err error) {
	if c.streams.OwnSession() {
		job := func(cmd *exec.Cmd) (err error) {
			c.job, err = c.session.Agent().StartJob(cmd)
			return err
		}
		c.cmd, err = c.inside.start(c.cmd, func(cmd *exec.Cmd) error { return c.start(cmd, job) }, true)
		return err
	}
	if c.shared = c.sharesTerminal(); !c.shared {
		if c.cmd.SysProcAttr == nil {
			c.cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		c.cmd.SysProcAttr.Setsid = true
	}
	c.cmd, err = c.inside.start(c.cmd, func(cmd *exec.Cmd) error { return c.start(cmd, c.session.Agent().Start) }, false)
	return err
}

// pid is the command's own process, which in a PID namespace is not the one that
// we started.
func (c *command) pid() int {
	if c.inside.box != nil {
		if pid := c.inside.box.PID(); pid != 0 {
			return pid
		}
	}
	return c.cmd.Process.Pid
}

// sharesTerminal tells whether the command must stay in our process group to
// be able to use a terminal of ours. It then gets what the terminal sends on
// its own.
func (c *command) sharesTerminal() bool {
	return c.session.host.Mode() != cgroup.None && c.session.terminal != nil
}

// close lets go of the command's terminal session, and tells how it ended.
func (c *command) close(res *schema.Result) error {
	if c.job != nil {
		c.job.Close()
	}
	res.Timings, res.Leftovers, res.Survivors = c.timings, c.leftovers, c.survivors
	if c.outcome == "" || res.Error != nil {
		return nil
	}
	res.Outcome = c.outcome
	if c.signal != "" {
		res.Signal = &c.signal
	} else {
		res.ExitCode = &c.exit
	}
	return nil
}

// states reports every change of the command until it is gone, or is closed
// when that cannot be told. It owns the reaping: nobody else may wait for it.
func (c *command) states() <-chan unix.WaitStatus {
	next := func() (st unix.WaitStatus, err error) {
		c.runsAs = settledAs(c.cmd.Process.Pid)
		for err = unix.EINTR; err == unix.EINTR; {
			_, err = unix.Wait4(c.cmd.Process.Pid, &st, unix.WUNTRACED|unix.WCONTINUED, nil)
		}
		if err != nil {
			panic("wait4: " + err.Error()) // our own child, reaped here alone
		}
		return st, nil
	}
	if c.job != nil {
		next = c.job.Wait
	}
	if c.inside.box != nil && c.inside.box.States() != nil {
		next = c.insideStates(next)
	}
	states := make(chan unix.WaitStatus)
	go func() {
		for {
			st, err := next()
			if err != nil {
				close(states)
				return
			}
			states <- st
			if st.Exited() || st.Signaled() {
				return
			}
		}
	}()
	return states
}

// initTime is how long the init of a PID namespace may take to end once nothing
// else is in it.
const initTime = 100 * time.Millisecond

// insideStates are the changes that the init of the command's PID namespace
// tells, or how the init itself ended where it told no end. next waits for it.
func (c *command) insideStates(next func() (unix.WaitStatus, error)) func() (unix.WaitStatus, error) {
	type end struct {
		st  unix.WaitStatus
		err error
	}
	gone := make(chan end, 1)
	go func() {
		for {
			st, err := next()
			if err != nil || st.Exited() || st.Signaled() {
				gone <- end{st, err}
				return
			}
		}
	}()
	inside := c.inside.box.States()
	return func() (unix.WaitStatus, error) {
		st, ok := <-inside
		if !ok {
			e := <-gone
			return e.st, e.err
		}
		if st.Exited() || st.Signaled() {
			select { // else it would be taken for something left over
			case <-gone:
			case <-time.After(initTime):
			}
		}
		return st, nil
	}
}
