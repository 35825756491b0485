package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/container"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/place"
	"github.com/assay-run/assay-run/runner/internal/stdio"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// containment keeps the run's processes together: the session's cgroups and limits, and the guard, which outlives the
// runner.
type containment struct {
	log      *evidence.Log
	made     *Contained
	host     *cgroup.Host
	limits   specfile.Limits
	terminal *os.File // its settings will be changed; nil: there is none

	sweeping sync.WaitGroup // runs until the command starts

	*cgroup.Session // nil until open
	guard           *cgroup.Guard
	removing        sync.WaitGroup // of the session's removal
	unremoved       error          // why the removal failed

	// Usage from before the command's start is not the command's.
	counting             sync.WaitGroup // for account
	usage, usageBefore   cgroup.Usage
	events, eventsBefore cgroup.Events

	evaded atomic.Bool // the command evaded a limit of a v1 hierarchy

	onSwept func([]cgroup.Swept) // may be nil
	reasons []schema.Reason
}

func newContainment(log *evidence.Log, opt Options, limits specfile.Limits) *containment {
	return &containment{log: log, made: opt.Contained, host: opt.Contained.host(), terminal: opt.Contained.terminal,
		limits: limits, onSwept: opt.OnSwept}
}

// open waits for the session and its guard, and starts to sweep. bySystemd reports whether the session's cgroup must
// be a systemd slice.
func (c *containment) open(ctx context.Context, bySystemd func(context.Context) bool) error {
	slice := c.host.Slices() && bySystemd(ctx)
	c.made.take(slice)
	if c.made.session == nil {
		e := c.uncontained(c.made.err)
		if slice && e.Hint == "" {
			e.Hint = "Docker has systemd make its cgroups, and so must this run: check that systemd answers on " +
				"D-Bus, or run without --containers"
		}
		return e
	}
	c.Session, c.guard = c.made.session, c.made.guard
	for _, name := range c.Unenforced() {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "limits", Code: "limit_unenforced",
			Message: fmt.Sprintf("the host cannot enforce the %s limit, so the run had none", name),
			Remedy:  "run assay-run doctor, and provide what it says is missing",
		})
	}
	for _, k := range c.host.Controllers() {
		if k.Name == "memory" && c.limits.Memory > 0 && k.Available && k.Remedy != "" {
			c.reasons = append(c.reasons, caveat(k))
		}
	}
	c.reasons = append(c.reasons, hostReasons(c.host)...)
	if err := c.made.exposed; err != nil {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "evidence", Code: "runner_exposed",
			Message: fmt.Sprintf("other processes of the same user can read and write the runner's memory: %v", err),
			Remedy:  "run the command as another user, with --user",
		})
	}
	if err := c.made.err; err != nil {
		return sandboxError("guard_failed", fmt.Errorf("start the guard process: %w", err))
	}
	c.sweeping.Go(func() { c.sweep(ctx) })
	return nil
}

// sweep ends what dead runners left. It does not wait for Docker daemons after ctx ends.
func (c *containment) sweep(ctx context.Context) {
	swept, err := c.host.Sweep(endContainers(ctx))
	if c.onSwept != nil && len(swept) > 0 {
		c.onSwept(swept)
	}
	if err != nil {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "cgroup", Code: "sweep_failed",
			Message: fmt.Sprintf("sessions of dead runners could not be removed, which does not affect this run: %v",
				err),
			Remedy: "end their processes; each run tries again to remove them",
		})
	}
}

// uncontained returns why there is no session, as a failure of the run.
func (c *containment) uncontained(err error) *runError {
	e := schema.ResultError{Code: "containment_failed", Message: err.Error()}
	var limit *cgroup.LimitError
	if errors.As(err, &limit) {
		e.Code, e.Hint = "limit_unenforceable", limit.Remedy+"; or allow it with --best-effort-limits"
	}
	var full *cgroup.FullError
	if errors.As(err, &full) {
		e.Code, e.Hint = cgroup.CodeFull, full.Remedy
	}
	if c.host.Usable() != nil {
		e.Code, e.Hint = "proc_unusable", remedyProc
	}
	if errors.Is(err, cgroup.ErrInUse) {
		e.Code, e.Hint = "run_id_in_use", "wait for that run to end, or choose another --run-id"
	}
	return &runError{source: schema.SourceSandbox, exit: schema.ExitRunner, ResultError: e}
}

// thawInterval is the time between checks of a frozen session.
const thawInterval = 20 * time.Millisecond

// thawed waits until the session is not frozen, or ctx ends. It is called before something is started in the session.
func (c *containment) thawed(ctx context.Context) error {
	for c.Session != nil && c.Frozen() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("somebody froze the run's cgroup %s: %w", c.Path(), context.Cause(ctx))
		case <-time.After(thawInterval):
		}
	}
	return nil
}

// outlive names a directory that the guard removes if this process is killed.
func (c *containment) outlive(dir string) {
	if c.guard != nil {
		c.guard.Inherit(dir)
	}
}

// last sets the command line of this program that the guard runs before it removes the session.
func (c *containment) last(argv []string) {
	if c.guard != nil && len(argv) > 0 {
		c.guard.Last(argv...)
	}
}

// shared does nothing: the guard always sweeps.
func (c *containment) shared() {}

// movedV1 reports whether a process that moves to this cgroup of a v1 hierarchy leaves the session. The observation's
// goroutine calls it.
func (c *containment) movedV1(hierarchy, id uint64, path string) (controllers string, left bool) {
	controllers, limited, left := c.Left(int(hierarchy), id, path)
	if left && limited {
		c.evaded.Store(true)
	}
	return controllers, left
}

// nest makes a cgroup below the agent's.
func (c *containment) nest(name string) (*cgroup.Nested, error) { return c.Agent().Nest(name) }

// ready waits until the command can start: the sweep is done, and the session is not frozen.
func (c *containment) ready(ctx context.Context) error {
	c.sweeping.Wait()
	return c.thawed(ctx)
}

// leftovers describes the first of procs, which are processes of the session.
func (c *containment) leftovers(procs []cgroup.Proc) []schema.Leftover {
	return named(c.Session, procs)
}

// container returns the id of the container that a process of the session is in, or empty.
func (c *containment) container(pid int) string { return inContainer(c.Session, pid) }

// byDescent reports whether no cgroup keeps the processes together.
func (c *containment) byDescent() bool { return c.host.Mode() == cgroup.None }

// terminalChanged is [cgroup.Guard.TerminalChanged].
func (c *containment) terminalChanged(set, own *unix.Termios) { c.guard.TerminalChanged(set, own) }

// startAccount starts to count the command's usage. Earlier usage is not the command's.
func (c *containment) startAccount() {
	c.usageBefore, c.eventsBefore = c.Usage(), c.Events()
}

// account starts to read the kernel's counters once the command's processes have ended. Until accounted returns,
// nothing else may start in the session.
func (c *containment) account() { c.counting.Go(c.count) }

// accounted waits until account has finished.
func (c *containment) accounted() { c.counting.Wait() }

// count reads the counters. A peak that was reached before the command started says nothing about the command.
func (c *containment) count() {
	c.usage, c.events = c.Usage(), c.Events()
	u, e := &c.usage, &c.events
	for _, n := range []struct{ total, before *int64 }{
		{u.CPUUserNS, c.usageBefore.CPUUserNS}, {u.CPUSystemNS, c.usageBefore.CPUSystemNS},
		{u.IOReadBytes, c.usageBefore.IOReadBytes}, {u.IOWriteBytes, c.usageBefore.IOWriteBytes},
		{e.OOMKills, c.eventsBefore.OOMKills}, {e.PidsMaxHits, c.eventsBefore.PidsMaxHits},
	} {
		if n.total != nil && n.before != nil {
			*n.total = max(0, *n.total-*n.before)
		}
	}
	for _, p := range []struct {
		peak   **int64
		before *int64
	}{{&u.MemoryPeakBytes, c.usageBefore.MemoryPeakBytes}, {&u.PidsPeak, c.usageBefore.PidsPeak}} {
		if *p.peak != nil && p.before != nil && **p.peak <= *p.before {
			*p.peak = nil
		}
	}
	if n := e.OOMKills; n != nil && *n > 0 {
		c.log.Event(schema.Event{Type: schema.OOMKill, Limit: "memory", Count: *n})
	}
	if n := e.PidsMaxHits; n != nil && *n > 0 {
		c.log.Event(schema.Event{Type: schema.LimitHit, Limit: "pids", Count: *n})
	}
}

// exposed reports whether the command could have read the guard's memory when it started.
func (c *containment) exposed() bool { return c.guard != nil && c.guard.Exposed() }

// close starts to remove the session. Meanwhile the other parts are closed and the documents are written; see
// removed. The guard exits last, since it covers all of this.
func (c *containment) close(res *schema.Result) error {
	c.sweeping.Wait()
	c.accounted()
	c.tell(res)
	if c.Session == nil {
		return nil
	}
	res.Limits.Unenforced = c.Unenforced()
	if c.exposed() {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "evidence", Code: "guard_exposed",
			Message: "the guard process did not start within 5 s, or somebody stopped it: when the command started, " +
				"processes of the same user could read and write the guard's memory",
			Remedy: "run the command as another user (--user) or in a sandbox (--mode)",
		})
	}
	c.removing.Go(func() { c.unremoved = c.Remove() })
	return nil
}

// release ends the guard, after the session is removed and free has freed everything else that the guard covers.
func (c *containment) release(free func()) {
	c.removing.Wait()
	free()
	switch {
	case c.guard == nil:
	case c.unremoved != nil:
		c.guard.Leave()
	default:
		_ = c.guard.Release()
	}
}

// tell adds to the result what the command used, and which limits it hit.
func (c *containment) tell(res *schema.Result) {
	processes := res.Usage.Processes
	res.Usage = schema.Usage{
		CPUUserNS: c.usage.CPUUserNS, CPUSystemNS: c.usage.CPUSystemNS, MemoryPeakBytes: c.usage.MemoryPeakBytes,
		PidsPeak: c.usage.PidsPeak, IOReadBytes: c.usage.IOReadBytes, IOWriteBytes: c.usage.IOWriteBytes,
		OOMKills: c.events.OOMKills, Processes: processes,
	}
	if n := c.events.OOMKills; n != nil && *n > 0 {
		res.LimitsHit = append(res.LimitsHit, "memory")
		if res.Outcome == schema.OutcomeSignaled && res.Signal != nil && *res.Signal == "SIGKILL" {
			res.Outcome = schema.OutcomeOOM
		}
	}
	if n := c.events.PidsMaxHits; n != nil && *n > 0 {
		res.LimitsHit = append(res.LimitsHit, "pids")
	}
	if c.evaded.Load() {
		res.LimitsHit = append(res.LimitsHit, "evaded")
	}
}

// removed waits until the session is removed, and returns a reason if it could not be.
func (c *containment) removed() []schema.Reason {
	c.removing.Wait()
	if c.unremoved == nil {
		return nil
	}
	return []schema.Reason{{
		Subject: "cgroup", Code: "cgroup_left", Message: c.unremoved.Error(),
		Remedy: "the guard keeps trying to end it; if it cannot, the next run on this host does",
	}}
}

// explain is noRoom with the session's host.
func (c *containment) explain(err error) error { return noRoom(c.host, err) }

// noRoom adds to an error of kernel.Open why a session has no cgroup2 directory, if the kernel refuses to make more
// cgroups.
func noRoom(host *cgroup.Host, err error) error {
	var u *kernel.Unavailable
	if !errors.As(err, &u) {
		return err
	}
	is := slices.IndexFunc(u.Reasons, func(r kernel.Reason) bool { return r.Code == kernel.CodeNoCgroup2 })
	why := slices.IndexFunc(host.Reasons(), func(r cgroup.Reason) bool { return r.Code == cgroup.CodeFull })
	if is < 0 || why < 0 {
		return err
	}
	fixed := &kernel.Unavailable{Reasons: slices.Clone(u.Reasons), Err: u.Err}
	fixed.Reasons[is] = kernel.Reason(host.Reasons()[why])
	return fixed
}

func (c *containment) health(h *schema.ObservationHealth) {
	if c.Session != nil {
		h.Containment = schema.ByCgroup
		if c.host.Mode() == cgroup.None {
			h.Containment = schema.ByDescent
		}
	}
	h.Reasons = append(h.Reasons, c.reasons...)
}

// Contained holds the processes of one run together: the session's cgroups and the guard.
type Contained struct {
	runID    string
	observed bool // package kernel will observe the run
	early    bool // the session can be made before the run asks for it
	limits   cgroup.Limits
	terminal *os.File            // its settings will be changed; nil: there is none
	host     func() *cgroup.Host // probes once

	begun sync.Once
	made  chan struct{} // closed when the next fields are set
	// session is nil if it could not be made, guard is nil if it could not be started; err says why.
	session *cgroup.Session
	guard   *cgroup.Guard
	err     error
	exposed error // why other processes can reach this one's memory

	read      files       // what Contain read of the spec's files
	taken     bool        // by a run, which removes the session
	abandoned atomic.Bool // something did not end and is left to the guard
}

// Contain prepares what keeps the processes of spec's command together, and needs no recorder for it: it probes the
// host in the background, and opens the host's shared observer if there is one. opt is what Run will get, with
// Contained set to the result. The caller must Close the result.
func Contain(spec *specfile.Spec, opt Options) *Contained {
	cgroup.LiftLimits()
	opt, err := readFiles(spec, opt)
	if err != nil {
		return newContained(spec, opt, cgroup.Probe, false) // Run will refuse it
	}
	with := under(spec, opt)
	c := newContained(with, opt, cgroup.ProbeForSession, !with.Containers) // an engine decides where containers are
	if usesBPF(with) {
		kernel.PreloadIfPinned(int(with.KernelBuffer))
	}
	go c.host()
	return c
}

// Begin makes the session and its guard in the background. Otherwise Run makes them. A caller whose recorder reserves
// the run id calls Begin after that, so that of several runs with one id, the one that has the recorder also gets the
// session.
func (c *Contained) Begin() {
	if c.early {
		go c.begin(false)
	}
}

func newContained(spec *specfile.Spec, opt Options, probe func() *cgroup.Host, early bool) *Contained {
	c := &Contained{
		runID: spec.RunID, observed: usesBPF(spec), host: sync.OnceValue(probe), early: early,
		made: make(chan struct{}), read: files{opt.Policy, opt.Evaluation, opt.unusable},
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

// begin makes the session and the guard, unless another call does, and waits for them. slice means that systemd makes
// the session's cgroup.
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
		// From here on, a kill at any time must be covered: the observer may be loading already.
		if argv := kernel.Afterwards(); len(argv) > 0 {
			c.guard.Then(argv...)
		}
	})
	<-c.made
}

// take makes everything for a run, which removes the session when it ends.
func (c *Contained) take(slice bool) {
	c.taken = true
	c.begin(slice)
}

// abandon leaves to the guard what does not end.
func (c *Contained) abandon() { c.abandoned.Store(true) }

// kill kills every process of the session, in whatever state it is. It is safe for concurrent use.
func (c *Contained) kill() {
	if c.isMade() && c.session != nil {
		_ = c.session.Kill()
	}
}

// left names the session's live processes.
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

// Close removes what no run has taken. The Contained must not be used any more.
func (c *Contained) Close() {
	if c.abandoned.Load() {
		return
	}
	c.begun.Do(func() { close(c.made) }) // nothing will be made any more
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

const maxLeftoversNamed = 64

func named(session *cgroup.Session, procs []cgroup.Proc) []schema.Leftover {
	list := make([]schema.Leftover, 0, min(len(procs), maxLeftoversNamed))
	for _, p := range procs[:min(len(procs), maxLeftoversNamed)] {
		list = append(list, schema.Leftover{PID: p.PID, Name: p.Name, ContainerID: inContainer(session, p.PID)})
	}
	return list
}

// inContainer returns the id of the container that a process of the session is in, or empty.
func inContainer(s *cgroup.Session, pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return ""
	}
	parent := s.CgroupParent()
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) < 3 {
			continue
		}
		if i := strings.Index(f[2]+"/", filepath.Clean(parent)+"/"); i >= 0 && parent != "" {
			if at, ok := container.Of(f[2][i+len(parent):]); ok {
				return at.ID
			}
		}
	}
	return ""
}

const remedyProc = "mount -t proc proc /proc in the pid namespace (unshare --mount-proc, bwrap --proc /proc)"

// hostReasons are the cgroup package's reasons in the form of the bundle.
func hostReasons(host *cgroup.Host) []schema.Reason {
	var reasons []schema.Reason
	for _, why := range host.Reasons() {
		reasons = append(reasons,
			schema.Reason{Subject: "cgroup", Code: why.Code, Message: why.Message,
				Remedy: cgroupRemedy(why.Code, why.Remedy)})
	}
	return reasons
}

// cgroupRemedy returns how to make cgroups possible in this place if code says that none can be created, and general
// otherwise.
func cgroupRemedy(code, general string) string {
	switch p := place.Here(); code {
	case "cgroup_not_mounted":
		if p.Contained() {
			return p.Cgroups()
		}
	case "cgroup2_not_writable", "cgroup_v1_not_writable":
		return p.Cgroups()
	}
	return general
}

// caveat is the reason for a controller that is available but limited.
func caveat(c cgroup.Controller) schema.Reason {
	return schema.Reason{Subject: "limits", Code: "unit_not_delegated", Message: c.Reason, Remedy: c.Remedy}
}
