package runner

import (
	"context"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/schema"
)

// supervise waits until the command is gone and its cgroup is empty, passing on
// signals and enforcing the deadline on the way. The error, a *runError, says
// that it cannot be told how the command ended. told is why the run is to end from
// the beginning; nil: it is not.
func (c *command) supervise(ctx context.Context, told *interruption) error {
	s := &supervisor{command: c, agent: c.session.Agent(), changes: c.states()}
	if c.timeout > 0 {
		timer := time.NewTimer(c.timeout)
		defer timer.Stop()
		s.deadline = timer.C
	}
	if told != nil {
		s.end(told.outcome)
	}
	for _, sig := range s.signals.early {
		s.pass(sig.(syscall.Signal))
	}
	for !s.exited {
		s.step(ctx)
	}
	c.timings.ChildNS = new(int64(c.ended - c.started))
	s.endLeftovers(ctx)
	c.timings.CleanupNS = new(int64(bootTime() - c.ended))
	c.draining()
	s.drain(ctx)
	return s.lost
}

// supervisor is the state of one supervise call.
type supervisor struct {
	*command
	agent    *cgroup.Group
	changes  <-chan unix.WaitStatus
	empty    <-chan error // the cgroup has no process left, or cannot be watched
	written  <-chan schema.Stdio
	deadline <-chan time.Time
	killAt   <-chan time.Time
	again    <-chan time.Time // when what was killed is killed again
	giveUp   <-chan time.Time // when what was killed is left to the guard
	lostAny  bool             // that came

	terminated bool // everything got its SIGTERM

	exited  bool
	emptied bool   // nothing of the run is left
	drained bool   // and what it wrote went where it was going
	ending  string // why we are ending the run ourselves: an outcome
	lost    error  // how the command ended cannot be told
}

// step waits for one thing to happen and deals with it.
func (s *supervisor) step(ctx context.Context) {
	done := ctx.Done()
	if s.ending != "" {
		done = nil
	}
	select {
	case st, ok := <-s.changes:
		if !ok {
			s.loseChild()
			return
		}
		s.childChanged(st)
	case err := <-s.empty:
		s.emptied, s.empty = true, nil
		if err != nil {
			s.log.Event(schema.Event{Type: schema.RecorderError, Code: "wait_failed", Message: err.Error()})
		}
	case <-s.written:
		s.drained, s.written = true, nil
	case sig := <-s.signals.C:
		s.pass(sig.(syscall.Signal))
	case <-s.deadline:
		s.deadline = nil
		s.log.Event(schema.Event{Type: schema.Timeout})
		s.end(schema.OutcomeTimeout)
	case <-done:
		s.log.Event(schema.Event{Type: schema.Cancelled, Message: context.Cause(ctx).Error()})
		s.end(schema.OutcomeCancelled)
	case <-s.killAt:
		if s.ending == "" && !s.signals.by.IsZero() {
			s.log.Event(schema.Event{Type: schema.Cancelled, SignalName: "SIGTERM", Message: "the grace is over"})
			s.ending = schema.OutcomeCancelled
		}
		s.kill()
	case <-s.again:
		s.killAgain()
	case <-s.giveUp:
		s.lose()
	}
}

func (s *supervisor) childChanged(st unix.WaitStatus) {
	pid := s.pid()
	switch {
	case st.Stopped():
		s.log.Event(schema.Event{Type: schema.Stopped, PID: pid, SignalName: unix.SignalName(st.StopSignal())})
		s.suspend()
	case st.Continued():
		s.log.Event(schema.Event{Type: schema.Continued, PID: pid})
	default:
		s.exited = true
		s.ended = bootTime()
		s.over()
		e := schema.Event{Type: schema.ProcessExited, PID: pid, ExitCode: schema.None[int](), Signal: schema.None[schema.SignalNumber]()}
		s.outcome = schema.OutcomeExited
		if st.Signaled() {
			s.command.signal = unix.SignalName(st.Signal())
			s.exit = exitSignalBase + int(st.Signal())
			e.Signal, e.SignalName = schema.Some(schema.SignalNumber{Number: int(st.Signal())}), s.command.signal
			s.outcome = schema.OutcomeSignaled
		} else {
			s.exit = st.ExitStatus()
			e.ExitCode = schema.Some(s.exit)
		}
		if s.ending != "" {
			s.outcome = s.ending
		}
		s.log.Event(e)
	}
}

// loseChild ends a run of which it will never be known how the command ended.
func (s *supervisor) loseChild() {
	s.exited, s.changes = true, nil
	s.ended = bootTime()
	s.lost = sandboxError("terminal_session_lost", cgroup.ErrLeaderGone)
	s.log.Event(schema.Event{Type: schema.RecorderError, Code: "terminal_session_lost", Message: cgroup.ErrLeaderGone.Error()})
	s.kill()
}

// suspend follows a stopped child in the terminal: the user who typed ^Z wants
// the shell back. Everywhere else a stopped child is the caller's business.
func (s *supervisor) suspend() {
	if !s.streams.OwnSession() || s.ending != "" {
		return
	}
	s.streams.Suspend()
	stopSelf(true)
	s.streams.Resume()
	s.killGroup(syscall.SIGCONT)
}

// pass passes on a signal that we got. What a terminal sends goes to the
// child's process group, as the terminal would have, unless the child shares
// ours and so has it already; the rest goes to the child.
func (s *supervisor) pass(sig syscall.Signal) {
	switch sig {
	case syscall.SIGWINCH:
		if s.streams.OwnSession() {
			s.streams.Resize()
			return
		}
	case syscall.SIGINT, syscall.SIGTERM:
		if s.signals.interrupt(sig, s.grace) {
			s.log.Event(schema.Event{Type: schema.Cancelled, SignalName: unix.SignalName(sig), Message: "second interrupt"})
			s.ending = schema.OutcomeCancelled
			s.kill()
			return
		}
		if sig == syscall.SIGTERM && s.killAt == nil {
			s.killAt = s.signals.late()
		}
	}
	if s.exited {
		return // leftovers already have their SIGTERM
	}
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGWINCH:
		if !s.shared {
			s.killGroup(sig)
		}
	case syscall.SIGHUP, syscall.SIGCONT:
		s.killGroup(sig)
	default:
		_ = unix.Kill(s.pid(), sig)
	}
	s.signals.passed[unix.SignalName(sig)] = true
	s.log.Event(schema.Event{Type: schema.SignalForwarded, SignalName: unix.SignalName(sig), PID: s.pid()})
	if sig == syscall.SIGTSTP && !s.streams.OwnSession() { // there we follow the child
		stopSelf(false)
		s.killGroup(syscall.SIGCONT)
	}
}

// killGroup signals the child's process group, or the child alone when the
// group is ours.
func (s *supervisor) killGroup(sig syscall.Signal) {
	if s.exited {
		return
	}
	pid := s.pid()
	if !s.shared {
		// In a sandbox the command's group need not be that of what we started.
		if group, err := unix.Getpgid(pid); err == nil {
			pid = -group
		} else {
			pid = -s.cmd.Process.Pid
		}
	}
	_ = unix.Kill(pid, sig)
}

// end asks everything in the cgroup to stop, and kills it after the grace.
func (s *supervisor) end(outcome string) {
	s.ending = outcome
	if s.exited && !s.emptied {
		s.outcome = outcome
	}
	s.terminate()
}

// terminate sends SIGTERM to all, wakes what is stopped so that it can act on
// it, and sets the time of the kill, unless that is set.
func (s *supervisor) terminate() {
	if s.emptied {
		s.kill()
		return
	}
	s.session.NoContainers()
	_ = s.agent.Signal(syscall.SIGTERM)
	_ = s.agent.Signal(syscall.SIGCONT)
	s.terminated = true
	if s.killAt == nil {
		s.killAt = time.After(s.grace)
	}
}

// kill ends everything at once. Once nothing is left to kill, what is being
// waited for is a reader of our own output: that ends too.
func (s *supervisor) kill() {
	s.killAt = nil
	if s.emptied {
		s.streams.Abort()
		return
	}
	if err := s.agent.Kill(); err != nil {
		s.log.Event(schema.Event{Type: schema.RecorderError, Code: "kill_failed", Message: err.Error()})
	}
	if s.giveUp == nil {
		s.giveUp, s.again = time.After(deathTime), time.After(killAgain)
	}
}

// endLeftovers ends what outlived the main child and waits until nothing is
// left. A run that is being ended already has its SIGTERM and its kill time.
func (s *supervisor) endLeftovers(ctx context.Context) {
	if s.ending == "" && s.agent.Empty() {
		s.emptied, s.leftovers = true, new(0)
		return
	}
	left, _ := s.agent.Procs()
	s.outlived()
	leftovers := named(s.session.Session, left) // while they can be asked for
	if s.giveUp != nil {
		s.giveUp = time.After(deathTime)
	}
	fresh := s.killAt == nil
	if !s.terminated {
		s.terminate() // also where nobody was found: only the kernel knows for certain
	}
	waiting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	empty := make(chan error, 1)
	go func() { empty <- s.agent.Wait(waiting) }()
	s.empty = empty
	for !s.emptied && !s.lostAny {
		s.step(ctx)
	}
	s.again, s.giveUp = nil, nil
	if fresh && len(left) == 0 && s.ending == "" {
		s.killAt = nil // a slow reader of what the command wrote may take its time
	}
	s.leftovers = new(len(left))
	if len(left) > 0 {
		s.log.Event(schema.Event{Type: schema.LeftoversKilled, Count: int64(len(left)), Processes: leftovers})
	}
}

// drain waits until what the command wrote has gone where it was going. A slow
// reader of our output may take its time, as it may with a bare command; the
// deadline and a second interrupt end the waiting.
func (s *supervisor) drain(ctx context.Context) {
	written := make(chan schema.Stdio, 1)
	s.streams.SetExit(s.exit)
	go func() { written <- s.streams.Finish(0) }()
	s.written = written
	for !s.drained {
		s.step(ctx)
	}
}

const maxLeftoversNamed = 64

func named(session *cgroup.Session, procs []cgroup.Proc) []schema.Leftover {
	list := make([]schema.Leftover, 0, min(len(procs), maxLeftoversNamed))
	for _, p := range procs[:min(len(procs), maxLeftoversNamed)] {
		list = append(list, schema.Leftover{PID: p.PID, Name: p.Name, ContainerID: inContainer(session, p.PID)})
	}
	return list
}
