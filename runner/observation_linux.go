package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/cgroup/role"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/kernel/notify"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/place"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/facts"
	"github.com/assay-run/assay-run/schema/specfile"
)

// observer is the common part of kernel.Observer and notify.Observer.
type observer interface {
	Read(fn func(*kernel.Event) error, idle func(now uint64)) error
	Stop() error
	Report() kernel.Report
	Present() []kernel.Present
	Close() error
}

// observation is the kernel layer of one run: the observer, and a goroutine that passes each of its events on to the
// recorder. The goroutine owns the builder and the surface until done receives.
type observation struct {
	log     *evidence.Log
	session observedCgroup
	foreign bool          // observe somebody else's cgroup: see kernel.Config
	how     string        // one of specfile.Kernels
	deny    bool          // see specfile.Spec.DenyIOUring
	needed  bool          // the command must not start without it
	ring    int           // bytes
	keep    time.Duration // see specfile.Spec.KeepObserver
	options layer.Options // set before open

	observer observer         // nil if the layer is off or absent
	notify   *notify.Observer // the observer, if it is one by seccomp notification
	instead  []kernel.Reason  // why notify is used in place of eBPF
	builder  *layer.Builder
	done     chan error
	asked    chan chan []layer.Survivor // requests that the goroutine answers
	account  layer.Account

	inherited atomic.Pointer[layer.Inherited] // nil until the command starts
	held      map[uint32][]startDescriptor    // by process that was there at the start

	survivors []layer.Survivor          // set by close
	influence *influence                // nil without a contract
	facts     *facts.Reader             // nil unless the contract or workspace changes need it
	see       func(*schema.KernelEvent) // gets each line; nil for none
}

// observedCgroup is what is observed: the containment of a run, or a cgroup that somebody else made.
type observedCgroup interface {
	// Path is its cgroup2 directory; empty: it has none.
	Path() string
	// shared is called if the observer is shared with others. The implementation must then make sure that our slot is
	// freed if this process is killed.
	shared()
	// explain adds what is known of the cgroup to an error of kernel.Open.
	explain(error) error
}

// openTimeout limits the self-test in case the host hangs. The test takes milliseconds, or seconds if a hundred runs
// start at once.
const openTimeout = time.Minute

// newObservation observes the processes of session. of has the builder's options that depend on other parts; the
// observation sets the rest.
func newObservation(log *evidence.Log, spec *specfile.Spec, session observedCgroup, of layer.Options) *observation {
	h := newHelpers(spec)
	o := &observation{
		log: log, session: session, foreign: of.Foreign, how: spec.Kernel, deny: spec.DenyIOUring,
		needed: spec.Observes() || of.Foreign, ring: int(spec.KernelBuffer), keep: time.Duration(spec.KeepObserver),
		options: of,
	}
	o.options.RunID, o.options.Surface, o.options.Sink = log.RunID, log.Surface, o.sink()
	o.options.Inherited = o.inherited.Load
	o.options.Helper, o.options.Helped, o.options.Own = h.executed, h.did, h.own
	o.options.Shim = func(argv []string) bool { return cgroup.IsShim(argv) || sandbox.IsShim(argv) }
	if of.Checks != nil || spec.WorkspaceChanges || len(spec.Artifacts) > 0 {
		o.facts = facts.NewChangeReader()
	}
	if of.Checks != nil {
		o.influence = &influence{facts: o.facts, read: map[string][]string{}}
	}
	if o.how != specfile.KernelOff {
		o.account.Unavailable = &kernel.Unavailable{Reasons: []kernel.Reason{{
			Code: "not_started", Message: "the run failed before observation began", Remedy: "see error in result.json",
		}}}
	}
	return o
}

// showTo makes see get each line that is recorded. It is called before open.
func (o *observation) showTo(see func(*schema.KernelEvent)) { o.see = see }

// open starts the kernel layer, or records why there is none.
func (o *observation) open(ctx context.Context) error {
	if o.how == specfile.KernelOff {
		return nil
	}
	if err := o.choose(ctx); err != nil {
		o.account.Unavailable = err
		if o.needed {
			return unobserved(err)
		}
		return nil
	}
	observer := o.observer
	o.done, o.account.Unavailable = make(chan error, 1), nil
	o.asked = make(chan chan []layer.Survivor, 1)
	options := o.options
	options.Present, options.Begin, options.Start = observer.Present(), uint64(bootTime()), uint64(o.log.Start())
	options.CgroupDir, options.MountNS, options.Recorder = o.containers(), mountNamespace(), kernel.Self()
	if o.foreign {
		o.held = openDescriptors(options.Present)
		options.Held = make(map[uint32]*layer.Inherited, len(o.held))
		for pid, list := range o.held {
			options.Held[pid] = powers(list)
		}
	}
	o.builder = layer.NewBuilder(options)
	go func() {
		readErr := observer.Read(func(ev *kernel.Event) error {
			_ = o.builder.Push(ev) // the builder counts failures, which Close reports: reading must go on
			return nil
		}, func(now uint64) {
			_ = o.builder.Tick(now)
			select {
			case answer := <-o.asked:
				answer <- o.builder.Survivors()
			default:
			}
		})
		o.done <- errors.Join(readErr, o.builder.Close())
	}()
	return nil
}

// traces reports whether connections are seen with both addresses.
func (o *observation) traces() bool { return o.observer != nil && o.notify == nil }

// hurry starts to read the command's last events during its shutdown.
func (o *observation) hurry() {
	if k, ok := o.observer.(interface{ Hurry() }); ok {
		k.Hurry()
	}
}

// mountNamespace is the number of this process's mount namespace; 0: unknown.
func mountNamespace() uint32 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/mnt", &st) != nil {
		return 0
	}
	return uint32(st.Ino)
}

// containers is the directory below which cgroup names identify containers: the session's, or the parent of an
// attached cgroup, which may be a container's own.
func (o *observation) containers() string {
	if o.foreign {
		return filepath.Dir(o.session.Path())
	}
	return o.session.Path()
}

// openObserver opens and self-tests the observer of a session, for runs and doctor. The error has remedies for this
// place.
func openObserver(ctx context.Context, cfg kernel.Config) (*kernel.Observer, error) {
	if cfg.CgroupPath == "" {
		u := &kernel.Unavailable{Reasons: []kernel.Reason{{Code: kernel.CodeNoCgroup2,
			Message: "the run has no cgroup2 directory of its own, which is what assay-run observes"}}}
		if !place.Here().BPF {
			u.Reasons = append(u.Reasons,
				kernel.Reason{Code: kernel.CodeNotPermitted, Message: "this process may not load eBPF programs"})
		}
		return nil, withRemedies(u)
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	cfg.SelfTest = true
	observer, err := kernel.Open(ctx, cfg)
	return observer, withRemedies(err)
}

// withRemedies adds to an error of kernel.Open how to fix it in this place.
func withRemedies(err error) error {
	var u *kernel.Unavailable
	if !errors.As(err, &u) {
		return err
	}
	fixed := &kernel.Unavailable{Reasons: slices.Clone(u.Reasons), Err: u.Err}
	for i := range fixed.Reasons {
		r, p := &fixed.Reasons[i], place.Here()
		switch {
		case r.Code == kernel.CodeNoCgroup2 && !p.Contained():
			r.Remedy = p.Cgroups()
		case r.Code == kernel.CodeNoCgroup2, r.Code == kernel.CodeNotPermitted, r.Code == kernel.CodeBlocked:
			r.Remedy = p.Observe()
		case r.Code == notify.CodeRefused && p.Contained() && u.Err != unix.EINVAL:
			r.Remedy = p.Listener()
		}
	}
	return fixed
}

// unobserved is the failure of a run that requires the kernel layer and has none.
func unobserved(err error) *runError {
	e := schema.ResultError{Code: "kernel_layer_unavailable", Message: err.Error(),
		Hint: "run assay-run doctor; without --kernel require the run continues and reports what it could not observe"}
	var u *kernel.Unavailable
	if errors.As(err, &u) && len(u.Reasons) > 0 && u.Reasons[0].Remedy != "" {
		e.Hint = u.Reasons[0].Remedy
	}
	return &runError{source: schema.SourceRunner, exit: schema.ExitRunner, ResultError: e}
}

// sink returns a function that appends a line to the kernel layer.
func (o *observation) sink() func(*schema.KernelEvent) error {
	var e *schema.KernelEvent // kept outside the function to avoid an allocation per line
	encode := func(dst []byte, seq uint64) []byte {
		e.Seq = seq
		return schema.AppendJSON(dst, e)
	}
	return func(next *schema.KernelEvent) error {
		if e = next; o.facts != nil {
			if l := o.facts.Read(e); o.influence != nil {
				o.influence.line(l)
			}
		}
		err := o.log.Recorder.Append(schema.KernelPath, encode)
		if err == nil && o.see != nil {
			o.see(e)
		}
		return err
	}
}

// close reads the remaining events. It is called when no process of the run is left. The observer's objects in the
// kernel stay until free.
func (o *observation) close(res *schema.Result) error {
	if o.observer == nil {
		return nil
	}
	if err := errors.Join(o.observer.Stop(), <-o.done); err != nil {
		o.log.Event(schema.Event{Type: schema.RecorderError, Code: "kernel_layer_failed", Message: err.Error()})
	}
	o.survivors = o.builder.Survivors()
	if o.notify != nil && o.notify.Unavailable() != nil {
		o.account.Unavailable = o.without(o.notify.Unavailable())
		return nil
	}
	report := o.observer.Report()
	report.Reasons = append(o.instead, report.Reasons...)
	o.account = layer.Account{
		Foreign: o.foreign,
		Report:  &report, Counts: o.builder.Counts(), Stats: o.builder.Stats(), LeftOut: o.log.Surface.LeftOut(),
	}
	// only the kernel layer has seen them all
	res.Usage.Processes = new(int64(o.account.Stats.Forks - o.account.Stats.CheckForks))
	return nil
}

// wrote returns the program that last wrote or removed a path, once the observation is closed; empty: not known.
func (o *observation) wrote(path string) string {
	if o.facts == nil {
		return ""
	}
	by := o.facts.Changer(path)
	if by == nil || len(by.Exe) > longestProgram {
		return ""
	}
	return schema.Readable(by.Exe)
}

// free frees the observer's objects in the kernel. A run calls it after its session is removed, which the documents
// wait for: both operations take the kernel's lock of all cgroups, and CPU time.
func (o *observation) free() {
	if o.observer != nil {
		_ = o.observer.Close() // all events were read; what cannot be freed ends with this process
	}
}

// observed reports whether there is a kernel layer.
func (o *observation) observed() bool { return o.account.Report != nil }

// complete reports whether the kernel layer is complete as far as is known now.
func (o *observation) complete() bool {
	var h schema.ObservationHealth
	layer.Health(&h, o.account)
	return h.KernelState == schema.Complete
}

// selfTests reports whether the observer tests itself in the session's cgroup.
func (o *observation) selfTests() bool {
	return o.how != specfile.KernelOff && o.how != specfile.KernelNotify
}

// exposure is called once the observation has ended.
func (o *observation) exposure() exposure {
	return exposure{escaped: o.escaped(), complete: o.complete(), tampered: o.tampered(), touched: o.influence}
}

// escaped is how many tasks were seen to be moved out of the session.
func (o *observation) escaped() uint64 {
	if !o.observed() {
		return 0
	}
	return uint64(o.account.Report.LeftCgroup)
}

// correlation is clean if the kernel layer saw the session's cgroup and no task left it.
func (o *observation) correlation() string {
	if o.observed() && o.notify == nil && o.escaped() == 0 {
		return schema.Clean
	}
	return schema.Partial
}

// health reports what the kernel layer may claim. Lines that the recorder accepted but could not keep count as
// dropped.
func (o *observation) health(h *schema.ObservationHealth) {
	if a := &o.account; o.observed() {
		lost := a.Counts.Written - h.Layers[schema.LayerName(schema.KernelPath)].Written
		a.Counts.Written -= lost
		a.Counts.Dropped += lost
		a.Stats.Written -= lost
		a.Stats.Dropped += lost
	}
	if r := o.account.Stats.Reach; len(r.LeftV1) > 0 {
		h.Reasons = append(h.Reasons, schema.Reason{
			Subject: "limits", Code: "limit_evaded",
			Message: fmt.Sprintf("a process of the run was moved to the cgroup %s: limits and usage of %s do not "+
				"cover it from then on", r.LeftV1To, strings.Join(r.LeftV1, ", ")),
			Remedy: "run the command as a user that cannot write to other cgroups",
		})
	}
	before := len(h.Reasons)
	layer.Health(h, o.account)
	for _, reason := range h.Reasons[before:] {
		if reason.Code == layer.CodeLayerDropped {
			o.log.Lose(reason)
		}
	}
}

// choose opens the observer that the run asks for. auto uses eBPF, else seccomp notification if that changes nothing
// for the command.
func (o *observation) choose(ctx context.Context) error {
	if o.how == specfile.KernelNotify {
		return o.openNotify()
	}
	observer, err := openObserver(ctx,
		kernel.Config{CgroupPath: o.session.Path(), RingBytes: o.ring, Keep: o.keep, Foreign: o.foreign,
			ScratchDir: o.log.ScratchDir})
	if err == nil {
		if observer.Shared() {
			o.session.shared()
		}
		o.observer = observer
		return nil
	}
	err = o.session.explain(err)
	var u *kernel.Unavailable
	if o.how != specfile.KernelAuto || o.foreign || o.needed || !errors.As(err, &u) {
		return err
	}
	if !notifies() {
		if notify.Probe() == nil {
			return suggestNotify(u)
		}
		return err
	}
	o.instead = u.Reasons
	if err := o.openNotify(); err != nil {
		var also *kernel.Unavailable
		if errors.As(err, &also) {
			return o.without(also)
		}
		return err
	}
	return nil
}

// notifies reports whether auto may use seccomp notification if it is available.
func notifies() bool { return notify.Privileged() || os.Getuid() == 0 }

func (o *observation) openNotify() error {
	n, err := notify.New(notify.Config{DenyIOUring: o.deny})
	if err != nil {
		return err
	}
	o.observer, o.notify = n, n
	return nil
}

// without explains why neither observer is available.
func (o *observation) without(u *kernel.Unavailable) *kernel.Unavailable {
	return &kernel.Unavailable{Reasons: slices.Concat(o.instead, u.Reasons), Err: u.Err}
}

// suggestNotify names --kernel notify if it would work. auto does not choose it, since set-user-ID programs would
// stop working.
func suggestNotify(u *kernel.Unavailable) *kernel.Unavailable {
	with := *u
	with.Reasons = slices.Clone(u.Reasons)
	if len(with.Reasons) > 0 {
		r := &with.Reasons[0]
		r.Remedy += "; or run with --kernel notify, under which sudo and other setuid programs do not work"
	}
	return &with
}

// launch calls start to start the run's command, through the observer if the observer must run first.
func (o *observation) launch(cmd *exec.Cmd, own []*os.File, start func(*exec.Cmd) error) error {
	o.help(own)
	if o.notify == nil {
		return start(cmd)
	}
	return o.notify.Start(cmd, start)
}

// help tells the observer which sockets assay-run's helper in the session gets, and the command or check does not.
func (o *observation) help(own []*os.File) {
	if k, ok := o.observer.(*kernel.Observer); ok {
		for _, f := range own {
			k.Own(f)
		}
	}
}

// given records what the descriptors that the command inherits allow it to do.
func (o *observation) given(list []startDescriptor) { o.inherited.Store(powers(list)) }

// powers are what a process can do with these descriptors.
func powers(list []startDescriptor) *layer.Inherited {
	all := &layer.Inherited{}
	for _, d := range list {
		if d.Peer != "" {
			all.Sockets = append(all.Sockets, schema.KernelEvent{
				Value: d.Peer, Local: d.Local, Protocol: d.Protocol, Args: []uint64{uint64(d.FD)},
			})
		}
		if d.carries {
			all.Carriers++
		}
		if d.memory != 0 {
			all.Memories = append(all.Memories, d.memory)
		}
	}
	return all
}

// askTimeout limits the wait for a list of live processes. It arrives once the kernel has sent no event for a moment.
const askTimeout = time.Second

// atLarge is how many processes of the run are alive without a recorded end. If the session's cgroups are empty,
// these processes have left them. Those that were kept do not count.
func (o *observation) atLarge(kept map[int]bool) int {
	if o.observer == nil {
		return 0
	}
	survivors := o.survivors
	if !o.observed() { // the goroutine still runs, and owns the builder
		answer := make(chan []layer.Survivor, 1)
		select {
		case o.asked <- answer:
			select {
			case survivors = <-answer:
			case err := <-o.done: // it has failed, and answers no requests
				o.done <- err
			}
		case <-time.After(askTimeout):
		}
	}
	n := 0
	for _, s := range survivors {
		if !kept[s.PID] && isAlive(s) {
			n++
		}
	}
	return n
}

// isAlive reports whether a process exists and is not a zombie. The start time (proc_pid_stat(5)) identifies it: its
// number may be reused, and differs here if it is in a PID namespace.
func isAlive(s layer.Survivor) bool {
	if kernel.HostPIDs() {
		return aliveAs(strconv.Itoa(s.PID), s)
	}
	entries, _ := os.ReadDir("/proc")
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		_, err := strconv.Atoi(e.Name())
		return err == nil && aliveAs(e.Name(), s)
	})
}

func aliveAs(pid string, s layer.Survivor) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return false
	}
	const tick = uint64(time.Second / 100) // USER_HZ
	ticks, err := strconv.ParseUint(string(fields[19]), 10, 64)
	return err == nil && (s.Start == 0 || ticks == s.Start/tick)
}

// tampered says how the evidence was tampered with: the observer was changed, or the run accessed the recorder's
// memory. Empty: no tampering is known.
func (o *observation) tampered() string {
	if !o.observed() {
		return ""
	}
	for _, r := range o.account.Report.Reasons {
		if r.Code == kernel.CodeTampered || r.Code == kernel.CodeHookLost {
			return r.Message
		}
	}
	if n := o.account.Stats.Reach.RecorderTraced; n > 0 {
		return fmt.Sprintf("the run traced the recorder, or could write its memory, %d times", n)
	}
	return ""
}

// influence notes, in the kernel layer, which files of the command a check opened or executed. The observation's
// goroutine feeds it; it is read after that has ended. The note of a check's instance is the check's name.
type influence struct {
	facts   *facts.Reader
	read    map[string][]string // paths in order, by check
	crowded bool
}

// maxInfluencing limits the files of one check.
const maxInfluencing = 1000

// line handles a line of the kernel layer.
func (f *influence) line(l *facts.Line) {
	e := l.Event
	if e.Class != schema.ClassCheck || l.By == nil {
		return
	}
	if e.Check != "" && !e.Baseline {
		l.By.Note = strings.Clone(e.Check)
	}
	check, _ := l.By.Note.(string)
	for i := range l.Acts {
		if a := &l.Acts[i]; check != "" && a.How&(schema.AccessRead|schema.AccessRun) != 0 {
			f.reads(check, a.Name)
		}
	}
}

func (f *influence) reads(check, path string) {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/") ||
		!f.facts.Arrived(path) {
		return
	}
	at, known := slices.BinarySearch(f.read[check], path)
	switch {
	case known:
	case len(f.read[check]) >= maxInfluencing:
		f.crowded = true
	default:
		f.read[check] = slices.Insert(f.read[check], at, strings.Clone(path))
	}
}

// tell lists the influencing files in each check of doc. Protected paths are left out, since they are restored. A
// strict check that passed with the help of such a file proves nothing.
func (f *influence) tell(doc *schema.Contract, protects func(path string) bool, workdir string, strict *strictChecks) {
	home, _ := os.UserHomeDir()
	var doubts []string
	for i := range doc.Results {
		r := &doc.Results[i]
		var configuration, deciding []string
		for _, path := range f.read[r.Name] {
			if protects(path) || strict != nil && strict.covers(path, workdir) {
				continue
			}
			kind := contract.InfluenceKind(path, workdir, home)
			r.InfluencedBy = append(r.InfluencedBy,
				schema.Influence{Path: schema.Readable(path), Kind: kind})
			switch {
			case strict != nil && decisive(kind):
				deciding = append(deciding, path)
			case kind == schema.InfluenceConfiguration:
				configuration = append(configuration, path)
			}
		}
		if len(configuration) > 0 {
			doc.Reasons = append(doc.Reasons,
				"check "+r.Name+" read configuration that the command wrote, which may have changed its result: "+
					firstOf(configuration))
		}
		if len(deciding) == 0 {
			continue
		}
		why := "check " + r.Name + " read what the command had written and may decide the result: " + firstOf(deciding)
		if doc.Verdict == schema.VerdictPassed {
			doubts = append(doubts, why)
		} else {
			doc.Reasons = append(doc.Reasons, why)
		}
	}
	for _, why := range doubts {
		doc.Doubt(why)
	}
	if f.crowded || f.facts.MayMake() {
		doc.Reasons = append(doc.Reasons, "the command wrote, or checks read, more files than influenced_by can list")
	}
}

// firstOf names the first of the files.
func firstOf(paths []string) string {
	slices.Sort(paths)
	return schema.Readable(strings.Join(paths[:min(3, len(paths))], ", "))
}

// helpers recognizes processes of assay-run that an agent starts inside a run: "assay-run mcp", "call" and "hook",
// and their own children. What they do on their own has class runner. What they do for their caller is the agent's:
// it chooses their arguments and environment.
type helpers struct {
	path  string // of this program
	inode uint64
	logs  []string // the run's logs, to which they append
}

func newHelpers(spec *specfile.Spec) *helpers {
	h := &helpers{}
	path, err := os.Executable()
	if err != nil {
		return h
	}
	var st syscall.Stat_t
	if syscall.Stat("/proc/self/exe", &st) != nil {
		return h
	}
	h.path, h.inode = path, st.Ino
	for _, log := range []string{spec.SDKEventLog, spec.PolicyDecisionLog} {
		if at, err := absLog(log); err == nil && log != "" {
			h.logs = append(h.logs, at)
		}
	}
	return h
}

// executed reports whether an exec starts a helper: this program, by path and file, or the shell of a hook.
func (h *helpers) executed(ev *kernel.Event) bool {
	if h.path == "" || len(ev.Argv) < 2 {
		return false
	}
	if h.own(ev) {
		switch name := ev.Argv[1]; name {
		case "mcp", "call", "hook":
			return true
		default:
			return slices.Contains(role.All(), role.Role(name))
		}
	}
	return len(ev.Argv) == 3 && shells[ev.Value] && hookLine().MatchString(ev.Argv[2])
}

// own reports whether an exec starts this program, by path and file.
func (h *helpers) own(ev *kernel.Event) bool {
	return h.path != "" && ev.Inode == h.inode && !facts.Unlinked(&ev.KernelEvent) && ev.Value == h.path
}

// Agents run a hook's command line in a shell. What the shell executes is checked on its own.
var (
	shells = map[string]bool{"/usr/bin/dash": true, "/usr/bin/bash": true, "/bin/dash": true, "/bin/bash": true,
		"/bin/busybox": true}
	hookLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(('[^']*/assay_shell'|[^' ]+/assay_shell) )?'?assay-run hook [a-z-]+'?$`)
	})
)

// moves are the cgroup files that a helper writes to. None of them sets a limit.
var moves = map[string]bool{"cgroup.procs": true, "tasks": true, "cgroup.kill": true, "cgroup.subtree_control": true}

// did reports whether a helper does what e says on its own: it starts and ends, reads its own files, makes a cgroup
// for a call or a server, starts the guard of that, and appends to the run's logs. What was denied to it counts as
// the agent's.
func (h *helpers) did(e *schema.KernelEvent) bool {
	if e.Result == -int64(unix.EACCES) || e.Result == -int64(unix.EPERM) || facts.NameCut(e) {
		return false
	}
	switch e.Kind {
	case schema.KindExec, schema.KindExit, schema.KindMemfd:
		return true
	case schema.KindBind, schema.KindConnect:
		return strings.HasPrefix(e.Value, "unix:@assay-run-guard-")
	case schema.KindOpen, schema.KindWrite, schema.KindMkdir, schema.KindRmdir, schema.KindChmod, schema.KindChown:
	default:
		return false
	}
	reads := e.Kind == schema.KindOpen && !e.Creates() && !e.Writes()
	switch path := e.Value; {
	case facts.InMemory(e) || path == "/dev/null":
		return true
	case strings.HasPrefix(path, "/sys/fs/cgroup/") && strings.Contains(path+"/", "/assay-run/"):
		return reads || e.Kind != schema.KindOpen && e.Kind != schema.KindWrite || moves[filepath.Base(path)]
	case slices.Contains(h.logs, path):
		return true
	case reads:
		return strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/") ||
			strings.HasPrefix(path, "/etc/ssl/certs/")
	}
	return false
}
