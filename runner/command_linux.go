package runner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/stdio"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// command is the command of a run with its standard streams, from its start inside the agent's cgroup to
// the end of everything it started.
type command struct {
	log     *evidence.Log
	argv    []string
	env     []string
	workdir func() (string, error)
	timeout time.Duration // 0: none
	grace   time.Duration
	signals *inbox
	state   *states
	streams *streams
	ground  ground
	shell   shell
	remains remains
	watch   spectator

	terminal bool          // ours, which the command may use
	began    time.Duration // the run, on the boot clock

	running atomic.Bool // it has been started
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

	sessions      []int  // (setsid) that the command was started in
	survivorNames string // the first of these
	timings       schema.Timings
}

// ground is where the command's processes are.
type ground interface {
	Agent() *cgroup.Group
	// ready waits until the command can start there.
	ready(ctx context.Context) error
	// byDescent reports whether no cgroup keeps the processes together.
	byDescent() bool
}

// shell is what is around the command.
type shell interface {
	// shape gives the command its environment.
	shape(cmd *exec.Cmd, w reporting) error
	// start starts it by start, inside where there is an inside.
	start(cmd *exec.Cmd, start func(*exec.Cmd) error, detached bool) (*exec.Cmd, error)
	// confined reports whether there is an inside: the command gets no descriptors but its standard streams.
	confined() bool
	// init are the command's process id and its changes in a PID namespace; zero and nil: it has none.
	init() (pid int, changes <-chan unix.WaitStatus)
}

// remains is what the command leaves.
type remains interface {
	// outlived notes the containers that outlived the command, before they are ended.
	outlived()
	// leftovers names the first of some processes of the session.
	leftovers(procs []cgroup.Proc) []schema.Leftover
	// NoContainers keeps containers from starting.
	NoContainers()
}

// surroundings are all that is around the command.
type surroundings interface {
	ground
	shell
	remains
	terminalChanged(set, own *unix.Termios) // see cgroup.Guard
}

// spectator is who observes the command, and hears what it reports.
type spectator interface {
	reporting
	// launch starts the command by start, after it has got what it reports with.
	launch(cmd *exec.Cmd, start func(*exec.Cmd) error) error
	// equip gives the command what it reports with.
	equip(cmd *exec.Cmd)
	// given hears with which descriptors the command begins, before it starts.
	given(list []startDescriptor)
	// spent receives when the run is to end because it has spent its model budget; nil: never.
	spent() <-chan struct{}
	// hurry begins to read what the command did last.
	hurry()
}

func newCommand(log *evidence.Log, opt Options, spec *Spec, signals *inbox, state *states, in surroundings,
	watch spectator, began time.Duration,
) *command {
	return &command{
		log: log, argv: spec.Command, env: spec.environ(), workdir: spec.workdir,
		timeout: spec.Timeout, grace: spec.Grace,
		signals: signals, state: state, streams: newStreams(log, opt, spec, in.terminalChanged), ground: in, shell: in,
		remains: in, watch: watch, terminal: opt.Contained.terminal != nil, began: began,
	}
}

// start starts the command.
func (c *command) start(ctx context.Context) error {
	if err := c.ground.ready(ctx); err != nil {
		return err
	}
	dir, err := c.workdir()
	if err != nil {
		return sandboxError("workdir_unusable", err)
	}
	c.cmd = &exec.Cmd{Args: c.argv, Env: c.env, Dir: dir}
	if err := c.shell.shape(c.cmd, c.watch); err != nil {
		return err
	}
	c.watch.equip(c.cmd)
	var descriptors []startDescriptor
	c.cmd.Path, err = lookPath(c.argv[0], dir, c.cmd.Env)
	if err == nil {
		c.streams.Attach(c.cmd)
		descriptors = startDescriptors(c.cmd, c.streams.ours(), c.shell.confined())
		c.watch.given(descriptors)
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
	c.running.Store(true)
	c.timings.SetupNS = new(int64(c.started - c.began))
	c.log.Event(schema.Event{Type: schema.ProcessStarted, PID: c.pid(), Inherited: described(descriptors)})
	c.sessions = []int{c.cmd.Process.Pid, c.pid()}
	for _, pid := range []int{0, c.pid()} {
		if sid, err := unix.Getsid(pid); err == nil {
			c.sessions = append(c.sessions, sid)
		}
	}
	if err := c.streams.Started(); err != nil {
		c.log.Event(schema.Event{Type: schema.RecorderError, Code: "stdio_failed", Message: err.Error()})
	}
	return nil
}

func (c *command) execute() (err error) {
	if c.streams.OwnSession() {
		job := func(cmd *exec.Cmd) (err error) {
			c.job, err = c.ground.Agent().StartJob(cmd)
			return err
		}
		c.cmd, err = c.shell.start(c.cmd, func(cmd *exec.Cmd) error { return c.watch.launch(cmd, job) }, true)
		return err
	}
	if c.shared = c.sharesTerminal(); !c.shared {
		if c.cmd.SysProcAttr == nil {
			c.cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		c.cmd.SysProcAttr.Setsid = true
	}
	c.cmd, err = c.shell.start(c.cmd, func(cmd *exec.Cmd) error {
		return c.watch.launch(cmd, c.ground.Agent().Start)
	}, false)
	return err
}

// pid is the command's own process, which in a PID namespace is not the one that
// we started.
func (c *command) pid() int {
	if pid, _ := c.shell.init(); pid != 0 {
		return pid
	}
	return c.cmd.Process.Pid
}

// sharesTerminal reports whether the command must stay in our process group to
// be able to use a terminal of ours. It then gets what the terminal sends on
// its own.
func (c *command) sharesTerminal() bool {
	return !c.ground.byDescent() && c.terminal
}

// conclusion is how the command ended.
func (c *command) conclusion() ended {
	return ended{outcome: c.outcome, survived: c.survived(), runsAs: c.runsAs}
}

// close closes the command's terminal session and streams, and adds to the result how it ended.
func (c *command) close(res *schema.Result) {
	if c.job != nil {
		c.job.Close()
	}
	c.streams.close(res)
	res.Timings, res.Leftovers, res.Survivors = c.timings, c.leftovers, c.survivors
	if c.outcome == "" || res.Error != nil {
		return
	}
	res.Outcome = c.outcome
	if c.signal != "" {
		res.Signal = &c.signal
	} else {
		res.ExitCode = &c.exit
	}
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
	if _, inside := c.shell.init(); inside != nil {
		next = insideStates(inside, next)
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

// insideStates are the changes that the init of the command's PID namespace reports as inside, or how the init
// itself ended if it reported no end. next waits for it.
func insideStates(inside <-chan unix.WaitStatus, next func() (unix.WaitStatus, error)) func() (unix.WaitStatus, error) {
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

// supervise waits until the command is gone and its cgroup is empty, passing on
// signals and enforcing the deadline on the way. The error, a *runError, says
// that it is not known how the command ended. interrupted is why the run is to end from
// the beginning; nil: it is not.
func (c *command) supervise(ctx context.Context, interrupted *interruption) error {
	s := &supervisor{command: c, agent: c.ground.Agent(), changes: c.states(), spent: c.watch.spent()}
	if c.timeout > 0 {
		timer := time.NewTimer(c.timeout)
		defer timer.Stop()
		s.deadline = timer.C
	}
	if interrupted != nil {
		s.end(interrupted.outcome)
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
	c.state.enter(StateDraining)
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
	spent    <-chan struct{} // the model budget
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
	done, spent := ctx.Done(), s.spent
	if s.ending != "" {
		done, spent = nil, nil
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
	case <-spent:
		s.spent = nil
		s.log.Event(schema.Event{Type: schema.Cancelled, Message: "the model budget is spent"})
		s.end(schema.OutcomeLimit)
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
		s.watch.hurry()
		e := schema.Event{Type: schema.ProcessExited, PID: pid, ExitCode: schema.None[int](),
			Signal: schema.None[schema.SignalNumber]()}
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

// loseChild ends a run whose command's end can no longer be learned.
func (s *supervisor) loseChild() {
	s.exited, s.changes = true, nil
	s.ended = bootTime()
	s.lost = sandboxError("terminal_session_lost", cgroup.ErrLeaderGone)
	s.log.Event(schema.Event{Type: schema.RecorderError, Code: "terminal_session_lost",
		Message: cgroup.ErrLeaderGone.Error()})
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
			s.log.Event(schema.Event{Type: schema.Cancelled, SignalName: unix.SignalName(sig),
				Message: "second interrupt"})
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
	s.signals.pass(sig)
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
	s.remains.NoContainers()
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
	s.remains.outlived()
	leftovers := s.remains.leftovers(left) // while they can be asked for
	s.identify(leftovers)
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
		s.killAt = s.signals.late() // a slow reader of what the command wrote may take its time, until a SIGTERM
	}
	s.leftovers = new(len(left))
	if len(left) > 0 {
		s.log.Event(schema.Event{Type: schema.LeftoversKilled, Count: int64(len(left)), Processes: leftovers})
	}
}

// identify says of processes that outlived the command whether they are our own, and whether they left the
// command's session.
func (s *supervisor) identify(list []schema.Leftover) {
	self, _ := os.Stat("/proc/self/exe")
	for i := range list {
		exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", list[i].PID))
		list[i].Ours = err == nil && self != nil && os.SameFile(exe, self)
		sid, err := unix.Getsid(list[i].PID)
		list[i].LeftSession = err == nil && !slices.Contains(s.sessions, sid)
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

const (
	// deathTime is how long what was killed may take to end.
	deathTime = 10 * time.Second
	// killAgain is when what has not ended is killed again: somebody may have frozen
	// it, or it forks faster than it is found.
	killAgain = time.Second
)

func (s *supervisor) killAgain() {
	_ = s.agent.Kill()
	s.again = time.After(killAgain)
}

// lose gives up on processes that were killed and do not end, such as those of another user where no
// cgroup is writable. The run still ends, names them, and leaves them to the guard.
func (s *supervisor) lose() {
	s.lostAny, s.again, s.giveUp, s.killAt = true, nil, nil, nil
	left, _ := s.agent.Procs()
	list := s.remains.leftovers(left)
	s.survivors, s.survivorNames = max(1, len(left)), namedShort(list)
	s.log.Event(schema.Event{
		Type: schema.RecorderError, Code: codeSurvivors, Count: int64(s.survivors), Processes: list,
		Message: s.survived(),
	})
	if !s.exited {
		s.exited, s.changes, s.ended = true, nil, bootTime()
		s.lost = sandboxError("command_undying", errors.New("the command was killed and did not end"))
	}
}

const codeSurvivors = "processes_survived"

// survived says who is left of the command's processes; empty for nobody.
func (c *command) survived() string {
	if c.survivors == 0 {
		return ""
	}
	names := ""
	if c.survivorNames != "" {
		names = ", " + c.survivorNames + ","
	}
	return fmt.Sprintf("the run's processes were killed, but %d%s did not end: the bundle does not show what "+
		"they do from now on", c.survivors, names)
}

// remedy is how such processes can be ended for certain.
func (c *command) remedy() string {
	if c.ground.byDescent() {
		return "run with --isolate pid or --mode, whose PID namespace ends every process with the command, or where " +
			"a cgroup is writable"
	}
	return "end them by hand; /proc/PID/status shows the state of each"
}

func (c *command) health(h *schema.ObservationHealth) {
	c.streams.health(h)
	if why := c.survived(); why != "" {
		h.Reasons = append(h.Reasons,
			schema.Reason{Subject: "cgroup", Code: codeSurvivors, Message: why, Remedy: c.remedy()})
	}
}

// streams carry the command's standard streams and keep copies of them.
type streams struct {
	log           *evidence.Log
	cfg           stdio.Config
	onOutputError func(stream string, err error) // may be nil

	*stdio.Streams // nil until they are open

	mu      sync.Mutex // the goroutines that copy tell of failures
	reasons []schema.Reason
}

// newStreams makes the streams of a command. settings is called before those of the terminal change.
func newStreams(log *evidence.Log, opt Options, spec *Spec, settings func(set, own *unix.Termios)) *streams {
	s := &streams{log: log, onOutputError: opt.OnOutputError, cfg: stdio.Config{
		Stdin: opt.Stdin, Stdout: opt.Stdout, Stderr: opt.Stderr,
		Capture: spec.Capture, CaptureBytes: int64(spec.CaptureBytes),
		Create: log.Recorder.Create, Pieces: log.Redactor.Pieces, Settings: settings,
		OnTruncate: func(stream string, at int64) {
			log.Event(schema.Event{Type: schema.CaptureTruncated, Stream: stream, Bytes: at})
		},
	}}
	s.cfg.OnError = s.failed
	return s
}

// ours are those that the recorder was started with.
func (s *streams) ours() [3]*os.File { return [3]*os.File{s.cfg.Stdin, s.cfg.Stdout, s.cfg.Stderr} }

func (s *streams) open(context.Context) (err error) {
	if s.Streams, err = stdio.Open(s.cfg); err != nil {
		return sandboxError("stdio_failed", err)
	}
	return nil
}

// failed notes a failure of the goroutines that copy.
func (s *streams) failed(stream string, err error) {
	reason := schema.Reason{
		Subject: "stdio", Code: "capture_failed",
		Message: fmt.Sprintf("the recorded copy of %s is incomplete: %v", stream, err),
		Remedy:  "make room on the disk that holds the spool",
	}
	if errors.Is(err, stdio.ErrOutput) {
		reason.Code, reason.Remedy = "output_failed", "make room where the command's output goes"
		reason.Message = fmt.Sprintf("%v: from then on the command could not write to %s (EPIPE), and the "+
			"recorded copy ends there", err, stream)
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

func (s *streams) close(res *schema.Result) {
	if s.Streams != nil {
		s.Abort()
		res.Stdio = s.Finish(0)
	}
}

func (s *streams) health(h *schema.ObservationHealth) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Reasons = append(h.Reasons, s.reasons...)
}

// startDescriptors lists, by number, the descriptors that cmd inherits from whoever started the run: its standard
// streams as far as they are ours, and, unless onlyStreams is set, each other descriptor of this process without
// close-on-exec. The recorder's own descriptors have close-on-exec.
func startDescriptors(cmd *exec.Cmd, ours [3]*os.File, onlyStreams bool) (list []startDescriptor) {
	for i, given := range []any{cmd.Stdin, cmd.Stdout, cmd.Stderr} {
		f, ok := given.(*os.File)
		if !ok || f == nil || f != ours[i] {
			continue
		}
		if c, err := f.SyscallConn(); err == nil {
			c.Control(func(fd uintptr) { list = append(list, descriptor(int(fd), i)) })
		}
	}
	if onlyStreams {
		return list
	}
	names, _ := os.ReadDir("/proc/self/fd")
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			list = append(list, descriptor(fd, fd))
		}
	}
	slices.SortFunc(list, func(a, b startDescriptor) int { return a.FD - b.FD })
	return list
}

// startDescriptor is one that the command begins with.
type startDescriptor struct {
	schema.Inherited
	// carries: it is a tunnel, or a ring of io_uring, which exchange data with peers that no event names.
	carries bool
	// memory is the process whose memory the file is, 0 for another file.
	memory uint64
}

// described are the first [schema.MaxInherited], as the event has them.
func described(list []startDescriptor) (of []schema.Inherited) {
	for _, d := range list[:min(len(list), schema.MaxInherited)] {
		of = append(of, d.Inherited)
	}
	return of
}

// descriptor describes our descriptor fd, which is the command's descriptor number.
func descriptor(fd, number int) startDescriptor {
	d := startDescriptor{Inherited: schema.Inherited{FD: number, Type: "other"}}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil {
		d.Access = [...]string{"read", "write", "read_write", ""}[flags&unix.O_ACCMODE]
		if flags&unix.O_PATH != 0 {
			d.Access = ""
		}
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return d
	}
	link, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		d.Type, d.Path = "file", link
		d.memory = memoryOf(fd, link)
	case unix.S_IFDIR:
		d.Type, d.Path = "directory", link
	case unix.S_IFCHR, unix.S_IFBLK:
		d.Type, d.Path = "device", link
		d.carries = st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(10, 200)
	case unix.S_IFIFO:
		if d.Type = "pipe"; strings.HasPrefix(link, "/") { // it has a name
			d.Path = link
		}
	case unix.S_IFSOCK:
		d.Type = "socket"
		d.Protocol, d.Local, d.Peer = ends(fd)
	default:
		d.Path = link // anon_inode:[eventfd]
		d.carries = link == "anon_inode:[io_uring]"
	}
	return d
}

// memoryOf is the process or thread whose memory a file is, wherever its proc is mounted; 0 for another file.
func memoryOf(fd int, name string) uint64 {
	var fs unix.Statfs_t
	dir, base := path.Split(name)
	if base != "mem" || unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return 0
	}
	pid, _ := strconv.ParseUint(path.Base(dir), 10, 32)
	return pid
}

// ends are the protocol of a socket and its two addresses, as kernel events have them.
func ends(fd int) (protocol, local, peer string) {
	option := func(name int) uint16 {
		n, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, name)
		return uint16(n)
	}
	family, proto := option(unix.SO_DOMAIN), option(unix.SO_PROTOCOL)
	own, _ := unix.Getsockname(fd)
	other, _ := unix.Getpeername(fd)
	ev := kernel.Event{KernelEvent: schema.KernelEvent{Kind: schema.KindInherited}, SockType: option(unix.SO_TYPE)}
	ev.SetEnds(family, proto, internet(own), internet(other))
	local, peer = ev.Local, ev.Value
	if to, ok := other.(*unix.SockaddrVM); ok {
		ev.SetVsock(kernel.VsockAddr{}, kernel.VsockAddr{CID: to.CID, Port: to.Port})
		peer = ev.Value
	}
	if family == unix.AF_UNIX {
		local, peer = unixName(own), unixName(other)
	}
	return ev.Protocol, local, peer
}

// internet is an address of IPv4 or IPv6; the zero value is any other.
func internet(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// unixName is a unix socket's name, empty where it has none.
func unixName(a unix.Sockaddr) string {
	if u, ok := a.(*unix.SockaddrUnix); ok && u.Name != "" && u.Name != "@" {
		return "unix:" + u.Name
	}
	return ""
}
