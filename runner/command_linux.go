package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/sandboxfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

// command is the command of a run with its standard streams, from its start in the agent's cgroup until everything
// that it started has ended.
type command struct {
	log     *evidence.Log
	argv    []string
	recipe  *agents.Recipe // of the agent that argv starts; may be nil
	env     []string
	workdir func() (string, error)
	timeout time.Duration // 0: none
	grace   time.Duration
	signals *inbox
	state   *states
	streams *streams
	cgroup  commandCgroup
	sandbox commandSandbox
	remains commandRemains
	watch   commandWitness

	terminal bool          // the command may use the runner's terminal
	began    time.Duration // start of the run on the boot clock

	running atomic.Bool // it has been started
	cmd     *exec.Cmd
	job     *cgroup.Job   // only if the command has a terminal of its own
	shared  bool          // the command is in the runner's process group
	started time.Duration // on the boot clock

	outcome   string // empty until the command has ended
	exit      int    // the command's exit code, or 128 plus the signal
	signal    string // that ended it; empty when it exited
	ended     time.Duration
	servers   servers
	serving   *supervisor   // while servers are kept for the checks
	runsAs    *sandbox.User // set when it has ended; nil: the runner's user, or not known
	leftovers *int          // how many processes outlived it
	survivors int           // how many of them could not be ended

	sessions      []int  // session ids (setsid) in which the command was started
	survivorNames string // the first survivors, for messages
	timings       schema.Timings
}

// commandCgroup is where the command's processes are.
type commandCgroup interface {
	Agent() *cgroup.Group
	NewGroup(name string) (*cgroup.Group, error)
	// ready waits until the command can start in its cgroup.
	ready(ctx context.Context) error
	// byDescent reports whether no cgroup keeps the processes together.
	byDescent() bool
}

// commandSandbox is the command's sandbox.
type commandSandbox interface {
	// shape sets the command's environment.
	shape(cmd *exec.Cmd, w reporting) error
	// home is the command's home directory; nil: nothing restricts the command's files.
	home() *sandbox.Home
	// start calls start to start the command, in the sandbox if there is one.
	start(cmd *exec.Cmd, start func(*exec.Cmd) error, detached bool) (*exec.Cmd, error)
	// confined reports whether there is a sandbox. The command then gets no descriptors but its standard streams.
	confined() bool
	// init returns the process id and the state changes of a command in a PID namespace; zero and nil without one.
	init() (pid int, changes <-chan unix.WaitStatus)
}

// commandRemains is what is left of a command that has ended.
type commandRemains interface {
	// outlived notes the containers that outlived the command, before they are ended, but for those with the ids kept.
	outlived(kept []string)
	// leftovers describes the first of procs, which are processes of the session.
	leftovers(procs []cgroup.Proc) []schema.Leftover
	// container is the id of the container that a process of the session is in, or empty.
	container(pid int) string
	// NoContainers keeps the engine from starting more containers of the run.
	NoContainers()
}

// commandEnclosure is what the command needs of the enclosure.
type commandEnclosure interface {
	commandCgroup
	commandSandbox
	commandRemains
	terminalChanged(set, own *unix.Termios) // see cgroup.Guard
}

// commandWitness observes the command, and gets what it reports.
type commandWitness interface {
	reporting
	// launch calls start to start the command, and does what must be done around it. own are descriptors that
	// assay-run's helper gets, and the command does not.
	launch(cmd *exec.Cmd, own []*os.File, start func(*exec.Cmd) error) error
	// equip sets the environment variables that the command reports with.
	equip(cmd *exec.Cmd)
	// given is called before the command starts, with the descriptors that it inherits.
	given(list []startDescriptor)
	// routes are the providers behind the model gateway.
	routes() []string
	// spent receives when the model budget is used up and the run must end; nil: never.
	spent() <-chan struct{}
	// hurry starts to read the command's last events during its shutdown.
	hurry()
}

func newCommand(log *evidence.Log, opt Options, spec *specfile.Spec, signals *inbox, state *states, in commandEnclosure,
	watch commandWitness, ports func() []int, began time.Duration,
) *command {
	return &command{
		log: log, argv: spec.Command, env: environ(spec), workdir: spec.Dir, recipe: spec.Recipe,
		timeout: spec.Timeout, grace: spec.Grace,
		signals: signals, state: state, streams: newStreams(log, opt, spec, in.terminalChanged),
		cgroup: in, sandbox: in, remains: in, watch: watch, terminal: opt.Contained.terminal != nil, began: began,
		servers: servers{ports: ports},
	}
}

// start starts the command.
func (c *command) start(ctx context.Context) error {
	if err := c.cgroup.ready(ctx); err != nil {
		return err
	}
	dir, err := c.workdir()
	if err != nil {
		return sandboxError("workdir_unusable", err)
	}
	c.cmd = &exec.Cmd{Args: c.argv, Env: c.env, Dir: dir}
	if err := c.sandbox.shape(c.cmd, c.watch); err != nil {
		return err
	}
	c.watch.equip(c.cmd)
	var descriptors []startDescriptor
	c.cmd.Path, err = lookPath(c.argv[0], dir, c.cmd.Env)
	if err == nil && c.recipe != nil {
		h := c.sandbox.home()
		err = wear(agents.Outfit{Recipe: c.recipe, Routes: c.watch.routes(),
			Private: h != nil && h.State == sandboxfile.HomePrivate}, c.cmd)
		if err != nil {
			return sandboxError("agent_not_set_up", err)
		}
	}
	if err == nil {
		c.streams.Attach(c.cmd)
		descriptors = startDescriptors(c.cmd, c.streams.ours(), c.sandbox.confined())
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
	kept := len(c.cmd.ExtraFiles)
	launch := func(cmd *exec.Cmd, start func(*exec.Cmd) error) error {
		return c.watch.launch(cmd, cmd.ExtraFiles[kept:], start)
	}
	if c.streams.OwnSession() {
		job := func(cmd *exec.Cmd) (err error) {
			c.job, err = c.cgroup.Agent().StartJob(cmd)
			return err
		}
		c.cmd, err = c.sandbox.start(c.cmd, func(cmd *exec.Cmd) error { return launch(cmd, job) }, true)
		return err
	}
	if c.shared = c.sharesTerminal(); !c.shared {
		if c.cmd.SysProcAttr == nil {
			c.cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		c.cmd.SysProcAttr.Setsid = true
	}
	c.cmd, err = c.sandbox.start(c.cmd, func(cmd *exec.Cmd) error {
		return launch(cmd, c.cgroup.Agent().Start)
	}, false)
	return err
}

// pid is the command's own process id. In a PID namespace this is not the process that was started.
func (c *command) pid() int {
	if pid, _ := c.sandbox.init(); pid != 0 {
		return pid
	}
	return c.cmd.Process.Pid
}

// sharesTerminal reports whether the command must stay in the runner's process group to use the runner's terminal. It
// then gets the terminal's signals directly.
func (c *command) sharesTerminal() bool {
	return !c.cgroup.byDescent() && c.terminal
}

// conclusion is how the command ended.
func (c *command) conclusion() commandEnd {
	return commandEnd{outcome: c.outcome, survived: c.survived(), runsAs: c.runsAs,
		kept: c.servers.alive()}
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

// states sends every state change of the command. The channel is closed after the last one, or if the state can no
// longer be read. Nothing else may wait for the command.
func (c *command) states() <-chan unix.WaitStatus {
	next := func() (st unix.WaitStatus, err error) {
		c.runsAs = settledAs(c.cmd.Process.Pid)
		for err = unix.EINTR; err == unix.EINTR; {
			_, err = unix.Wait4(c.cmd.Process.Pid, &st, unix.WUNTRACED|unix.WCONTINUED, nil)
		}
		if err != nil {
			panic("wait4: " + err.Error()) // nothing else reaps this child
		}
		return st, nil
	}
	if c.job != nil {
		next = c.job.Wait
	}
	if _, inside := c.sandbox.init(); inside != nil {
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

// initTime is how long the init of a PID namespace may take to end when it is the last process there.
const initTime = 100 * time.Millisecond

// insideStates returns a function for the changes that the init of the command's PID namespace reports on inside. If
// init reported no end, the function returns how init itself ended; next waits for that.
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
			select { // otherwise init would count as a leftover
			case <-gone:
			case <-time.After(initTime):
			}
		}
		return st, nil
	}
}

// supervise waits until the command has ended and its cgroup is empty. It passes on signals and enforces the timeout.
// The error, a *runError, says that it is not known how the command ended. interrupted is why the run must end at
// once, or nil.
func (c *command) supervise(ctx context.Context, interrupted *interruption) error {
	s := &supervisor{command: c, agent: c.cgroup.Agent(), changes: c.states(), spent: c.watch.spent()}
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
	if c.servers.group != nil && s.ending == "" && !s.lostAny {
		c.serving = s // what the servers write is passed on until they end
		return s.lost
	}
	c.state.enter(StateDraining)
	s.drain(ctx)
	return s.lost
}

// endServers ends the servers that were kept for the checks.
func (c *command) endServers(ctx context.Context) {
	if c.serving != nil {
		c.serving.endServers(ctx)
	}
}

func (s *supervisor) endServers(ctx context.Context) {
	s.agent, s.emptied, s.terminated, s.killAt = s.servers.group, false, false, nil
	s.endAll(ctx)
	s.drain(ctx)
}

// supervisor is the state of one supervise call.
type supervisor struct {
	*command
	agent    *cgroup.Group
	changes  <-chan unix.WaitStatus
	empty    <-chan error // the cgroup has no process left, or watching it failed
	written  <-chan schema.Stdio
	deadline <-chan time.Time
	spent    <-chan struct{} // the model budget
	killAt   <-chan time.Time
	again    <-chan time.Time // when to kill again
	giveUp   <-chan time.Time // when to leave what was killed to the guard
	lostAny  bool             // some processes were given up on: see lose

	terminated bool // every process got SIGTERM

	exited  bool
	emptied bool   // no process of the run is left
	drained bool   // all output has been passed on
	ending  string // the outcome if the runner ends the run
	lost    error  // why it is not known how the command ended
}

// step waits for one thing to happen and handles it.
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
			Signal: schema.None[int]()}
		s.outcome = schema.OutcomeExited
		if st.Signaled() {
			s.command.signal = unix.SignalName(st.Signal())
			s.exit = exitSignalBase + int(st.Signal())
			e.Signal, e.SignalName = schema.Some(int(st.Signal())), s.command.signal
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

// loseChild ends a run if it can no longer be learned how the command ends.
func (s *supervisor) loseChild() {
	s.exited, s.changes = true, nil
	s.ended = bootTime()
	s.lost = sandboxError("terminal_session_lost", cgroup.ErrLeaderGone)
	s.log.Event(schema.Event{Type: schema.RecorderError, Code: "terminal_session_lost",
		Message: cgroup.ErrLeaderGone.Error()})
	s.kill()
}

// suspend stops the runner when the command is stopped in the terminal: the user who typed ^Z wants the shell back.
// Elsewhere a stopped command is the caller's business.
func (s *supervisor) suspend() {
	if !s.streams.OwnSession() || s.ending != "" {
		return
	}
	s.streams.Suspend()
	stopSelf(true)
	s.streams.Resume()
	s.killGroup(syscall.SIGCONT)
}

// pass passes on a signal. A terminal's signal goes to the command's process group, as the terminal would send it,
// unless the command is in the runner's group and has it already. Other signals go to the command alone.
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
		return // leftovers already got SIGTERM
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
	if sig == syscall.SIGTSTP && !s.streams.OwnSession() { // in its own session, suspend handles the stop
		stopSelf(false)
		s.killGroup(syscall.SIGCONT)
	}
}

// killGroup signals the command's process group, or only the command if the group is the runner's.
func (s *supervisor) killGroup(sig syscall.Signal) {
	if s.exited {
		return
	}
	pid := s.pid()
	if !s.shared {
		// In a sandbox the command's group may differ from that of the process that was started.
		if group, err := unix.Getpgid(pid); err == nil {
			pid = -group
		} else {
			pid = -s.cmd.Process.Pid
		}
	}
	_ = unix.Kill(pid, sig)
}

// end sends SIGTERM to every process in the cgroup, and SIGKILL after the grace.
func (s *supervisor) end(outcome string) {
	s.ending = outcome
	if s.exited && !s.emptied {
		s.outcome = outcome
	}
	s.terminate()
}

// terminate sends SIGTERM to every process, continues those that are stopped, and sets the time of the kill unless it
// is set.
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

// kill kills every process. If none is left, the run only waits for readers of its output, and stops waiting.
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

// endLeftovers ends the processes that outlived the command and waits until none is left. If the run is being ended,
// they already got SIGTERM and the time of the kill is set.
func (s *supervisor) endLeftovers(ctx context.Context) {
	if s.ending == "" && s.agent.Empty() {
		s.emptied, s.leftovers = true, new(0)
		return
	}
	serving := s.keepServers(ctx)
	left, _ := s.agent.Procs()
	s.remains.outlived(s.servers.containers)
	leftovers := s.remains.leftovers(left) // before they end
	s.identify(leftovers, serving)
	fresh := s.killAt == nil
	s.endAll(ctx)
	if fresh && len(left) == 0 && s.ending == "" {
		s.killAt = s.signals.late() // a slow reader of the output may take its time until a SIGTERM
	}
	s.leftovers = new(len(left))
	if len(left) > 0 {
		s.log.Event(schema.Event{Type: schema.LeftoversKilled, Count: int64(len(left)), Processes: leftovers})
	}
}

// endAll ends every process of the group and waits until none is left.
func (s *supervisor) endAll(ctx context.Context) {
	if s.giveUp != nil {
		s.giveUp = time.After(deathTime)
	}
	if !s.terminated {
		s.terminate() // even if none was found: only the kernel knows for certain
	}
	waiting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	empty, agent := make(chan error, 1), s.agent
	go func() { empty <- agent.Wait(waiting) }()
	s.empty = empty
	for !s.emptied && !s.lostAny {
		s.step(ctx)
	}
	s.again, s.giveUp = nil, nil
}

// identify notes which leftovers are assay-run's own processes, which left the command's session, and on which ports
// of the task they serve.
func (s *supervisor) identify(list []schema.Leftover, serving map[int][]int) {
	self, _ := os.Stat("/proc/self/exe")
	for i := range list {
		list[i].Serves = serving[list[i].PID]
		exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", list[i].PID))
		list[i].Ours = err == nil && self != nil && os.SameFile(exe, self)
		sid, err := unix.Getsid(list[i].PID)
		list[i].LeftSession = err == nil && !slices.Contains(s.sessions, sid)
	}
}

// drain waits until the command's output has been passed on. A slow reader may take its time, as with a bare command;
// the timeout and a second interrupt end the wait.
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
	// deathTime is how long killed processes may take to end.
	deathTime = 10 * time.Second
	// killAgain is when killed processes that have not ended are killed again: they may be frozen, or fork faster
	// than they are found.
	killAgain = time.Second
)

func (s *supervisor) killAgain() {
	_ = s.agent.Kill()
	s.again = time.After(killAgain)
}

// lose gives up on killed processes that do not end, such as those of another user where no cgroup is writable. The
// run still ends, names them, and leaves them to the guard.
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

// keepServers moves the servers that the task asks for out of the command's group. It waits for servers that still
// start, as long as the grace. It returns the ports on which processes of the command serve.
func (s *supervisor) keepServers(ctx context.Context) map[int][]int {
	if s.ending != "" || len(s.servers.ports()) == 0 {
		return nil
	}
	late := time.After(s.grace)
	look := func() (procs []cgroup.Proc, found map[int][]int) {
		procs, _ = s.agent.Procs()
		return procs, s.servers.serving(procs)
	}
	procs, found := look()
	for waiting := true; waiting && len(procs) > 0 && s.servers.missing(found); procs, found = look() {
		select {
		case sig := <-s.signals.C:
			s.pass(sig.(unix.Signal))
			if s.ending != "" {
				return nil
			}
		case <-ctx.Done():
			waiting = false
		case <-late:
			waiting = false
		case <-time.After(serveInterval):
		}
	}
	if len(found) == 0 {
		return nil
	}
	kept, err := s.servers.keep(s.agent, s.cgroup.NewGroup, look, s.remains.container)
	if err != nil {
		s.log.Event(schema.Event{Type: schema.RecorderError, Code: "servers_ended",
			Message: "servers that the task asks for cannot be kept for the checks: " + err.Error()})
		return found
	}
	list := s.remains.leftovers(kept)
	s.identify(list, found)
	s.log.Event(schema.Event{Type: schema.ServersKept, Count: int64(len(kept)), Processes: list})
	return found
}

const codeSurvivors = "processes_survived"

// survived says which processes of the command are still alive; empty: none.
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

// remedy is how to make sure that such processes end.
func (c *command) remedy() string {
	if c.cgroup.byDescent() {
		return "run with --isolate pid or --mode, whose PID namespace ends every process with the command, or where " +
			"a cgroup is writable"
	}
	return "end them by hand; /proc/PID/status shows the state of each"
}

func (c *command) health(h *schema.ObservationHealth) {
	c.streams.health(h)
	if !cgroup.KeepsSignals() {
		h.Reasons = append(h.Reasons, signalsReset)
	}
	if why := c.survived(); why != "" {
		h.Reasons = append(h.Reasons,
			schema.Reason{Subject: "cgroup", Code: codeSurvivors, Message: why, Remedy: c.remedy()})
	}
}

// signalsReset is a reason if this program cannot know what its caller ignored and blocked.
var signalsReset = schema.Reason{
	Subject: "run", Code: "signals_reset",
	Message: "this program was linked without the entry point that notes the ignored and blocked signals of its " +
		"caller: most signals that the caller ignores, and some that it blocks, have their usual effect on the command",
	Remedy: "use a release, or build with make build",
}

// streams pass on the command's standard streams and keep copies of them.
type streams struct {
	log           *evidence.Log
	cfg           stdio.Config
	onOutputError func(stream string, err error) // may be nil

	*stdio.Streams // nil until open

	mu      sync.Mutex // copying goroutines report failures
	reasons []schema.Reason
}

// newStreams makes the streams of a command. settings is called before terminal settings change.
func newStreams(log *evidence.Log, opt Options, spec *specfile.Spec, settings func(set, own *unix.Termios)) *streams {
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

// ours are the runner's own standard streams.
func (s *streams) ours() [3]*os.File { return [3]*os.File{s.cfg.Stdin, s.cfg.Stdout, s.cfg.Stderr} }

func (s *streams) open(context.Context) (err error) {
	if s.Streams, err = stdio.Open(s.cfg); err != nil {
		return sandboxError("stdio_failed", err)
	}
	return nil
}

// failed records a failure of a copying goroutine.
func (s *streams) failed(stream string, err error) {
	reason := schema.Reason{
		Subject: "stdio", Code: "capture_failed",
		Message: fmt.Sprintf("the recorded copy of %s is incomplete: %v", stream, err),
		Remedy:  "make room on the disk that holds the spool, or raise the file size limit (ulimit -f)",
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

// startDescriptors lists, by number, the descriptors that cmd inherits from whoever started the run: the runner's own
// standard streams, and, unless onlyStreams is set, every other descriptor of this process without close-on-exec. The
// recorder's descriptors have close-on-exec.
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

// startDescriptor is a descriptor that the command inherits.
type startDescriptor struct {
	schema.Inherited
	// carries means that it is a tunnel, or an io_uring, which exchanges data with peers that no event names.
	carries bool
	// memory is the process whose /proc/PID/mem this is; 0: another file.
	memory uint64
}

// described lists the first [schema.MaxInherited] descriptors for the event.
func described(list []startDescriptor) (of []schema.Inherited) {
	for _, d := range list[:min(len(list), schema.MaxInherited)] {
		of = append(of, d.Inherited)
	}
	return of
}

// maxHeld bounds the descriptors of other processes that are looked at.
const maxHeld = 1 << 14

// openDescriptors returns the open descriptors of processes, by process id. It duplicates each, reads it and closes it.
func openDescriptors(processes []kernel.Present) map[uint32][]startDescriptor {
	of, left := map[uint32][]startDescriptor{}, maxHeld
	for _, p := range processes {
		process, err := unix.PidfdOpen(int(p.PID), 0)
		if err != nil { // it has ended
			continue
		}
		names, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
		for _, name := range names[:min(len(names), left)] {
			n, err := strconv.Atoi(name.Name())
			if err != nil {
				continue
			}
			if fd, err := unix.PidfdGetfd(process, n, 0); err == nil {
				of[p.PID] = append(of[p.PID], descriptor(fd, n))
				unix.Close(fd)
			}
		}
		left -= min(len(names), left)
		unix.Close(process)
	}
	return of
}

// describedOf are the first of the descriptors, as the event has them, by process and number.
func describedOf(all map[uint32][]startDescriptor) (of []schema.Inherited) {
	for _, pid := range slices.Sorted(maps.Keys(all)) {
		list := described(all[pid])
		slices.SortFunc(list, func(a, b schema.Inherited) int { return a.FD - b.FD })
		for _, d := range list {
			d.PID = int(pid)
			of = append(of, d)
		}
	}
	return of[:min(len(of), schema.MaxInherited)]
}

// descriptor describes the runner's descriptor fd, which the command has as number.
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
		if d.Type = "pipe"; strings.HasPrefix(link, "/") { // it has a path
			d.Path = link
		}
	case unix.S_IFSOCK:
		d.Type = "socket"
		d.Protocol, d.Local, d.Peer = ends(fd)
	default:
		d.Path = link // such as anon_inode:[eventfd]
		d.carries = link == "anon_inode:[io_uring]"
	}
	return d
}

// memoryOf returns the process or thread whose memory file fd is, wherever /proc is mounted; 0 for another file.
func memoryOf(fd int, name string) uint64 {
	var fs unix.Statfs_t
	dir, base := path.Split(name)
	if base != "mem" || unix.Fstatfs(fd, &fs) != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return 0
	}
	pid, _ := strconv.ParseUint(path.Base(dir), 10, 32)
	return pid
}

// ends returns a socket's protocol and its two addresses, as kernel events have them.
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

// internet returns an IPv4 or IPv6 address, or the zero value.
func internet(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}

// unixName is a unix socket's name; empty if it has none.
func unixName(a unix.Sockaddr) string {
	if u, ok := a.(*unix.SockaddrUnix); ok && u.Name != "" && u.Name != "@" {
		return "unix:" + u.Name
	}
	return ""
}
