package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/layer"
	"github.com/assay-run/assay-run/kernel/notify"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/place"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// observer is what both tiers are: kernel.Observer and notify.Observer.
type observer interface {
	Read(fn func(*kernel.Event) error, idle func(now uint64)) error
	Stop() error
	Report() kernel.Report
	Present() []kernel.Present
	Close() error
}

// observation is the kernel layer of one run: the observer, and a goroutine
// that takes every event from it to the recorder. The goroutine owns the
// builder and the surface until done delivers.
type observation struct {
	log     *evidence.Log
	session session
	foreign bool   // somebody else's: see kernel.Config
	how     string // one of Kernels
	deny    bool   // see Spec.DenyIOUring
	helpers *helpers
	needed  bool          // without it the command does not start
	ring    int           // bytes
	keep    time.Duration // see Spec.KeepObserver
	checks  *layer.Checks
	bind    func(*kernel.Event, *schema.KernelEvent)
	wrote   func(path []byte, bytes, count uint64, first, last int64) // see layer.Options
	starter func(container string, t uint64) (pid uint32, at uint64)  // see layer.Options

	observer observer         // nil when the layer is off or absent
	notify   *notify.Observer // the same, where it is one
	instead  []kernel.Reason  // why notify is used instead of eBPF
	builder  *layer.Builder
	done     chan error
	asked    chan chan []layer.Survivor // the goroutine answers
	account  layer.Account

	survivors []layer.Survivor // once it is closed
	influence *influence       // nil without a contract
}

// session is what is observed.
type session interface {
	// Path is its cgroup2 directory, empty without one.
	Path() string
	// shared is called when the observer is one that others use too, so that somebody must
	// free our slot if we are killed.
	shared()
	// movedV1 tells of a cgroup of a v1 hierarchy whether it is outside of the session's,
	// and then which controllers it is about.
	movedV1(hierarchy, id uint64, path string) (controllers string, left bool)
}

// openTimeout bounds the self-test, which takes milliseconds, and seconds where a
// hundred runs start at once: it is there for a host that hangs.
const openTimeout = time.Minute

func newObservation(log *evidence.Log, spec *Spec, session session, checks *layer.Checks, bind func(*kernel.Event, *schema.KernelEvent),
	wrote func(path []byte, bytes, count uint64, first, last int64),
) *observation {
	o := &observation{
		log: log, session: session, helpers: newHelpers(spec), how: spec.Kernel, deny: spec.DenyIOUring, needed: spec.observes(), ring: int(spec.KernelBuffer),
		keep: time.Duration(spec.KeepObserver), checks: checks, bind: bind, wrote: wrote,
	}
	if checks != nil {
		o.influence = newInfluence()
	}
	if o.how != KernelOff {
		o.account.Unavailable = &kernel.Unavailable{Reasons: []kernel.Reason{{
			Code: "not_started", Message: "the run failed before observation began", Remedy: "see error in result.json",
		}}}
	}
	return o
}

// open starts the kernel layer, or notes why there is none.
func (o *observation) open(ctx context.Context) error {
	if o.how == KernelOff {
		return nil
	}
	if err := o.choose(ctx); err != nil {
		if o.foreign {
			err = forAttach(err)
		}
		o.account.Unavailable = err
		if o.needed {
			return unobserved(err)
		}
		return nil
	}
	observer := o.observer
	o.done, o.account.Unavailable = make(chan error, 1), nil
	o.asked = make(chan chan []layer.Survivor, 1)
	o.builder = layer.NewBuilder(layer.Options{
		MovedV1: o.session.movedV1,
		Foreign: o.foreign, Present: observer.Present(), Begin: uint64(bootTime()),
		CgroupDir: o.containers(), MountNS: mountNamespace(), RunID: o.log.RunID, Start: uint64(o.log.Start()), Surface: o.log.Surface,
		Sink: o.sink(), Checks: o.checks, Bind: o.bind, Wrote: o.wrote, Starter: o.starter, Helper: o.helpers.executed, Helped: o.helpers.did,
		Shim: func(argv []string) bool { return cgroup.IsShim(argv) || sandbox.IsShim(argv) },
	})
	go func() {
		readErr := observer.Read(func(ev *kernel.Event) error {
			_ = o.builder.Push(ev) // it counts on, and Close tells: reading must not end
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

// hurry begins to take in what the command did last, beside what else its end takes.
func (o *observation) hurry() {
	if k, ok := o.observer.(interface{ Hurry() }); ok {
		k.Hurry()
	}
}

// mountNamespace is the number of our own mount namespace; 0 is unknown.
func mountNamespace() uint32 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/mnt", &st) != nil {
		return 0
	}
	return uint32(st.Ino)
}

// containers is the directory below which the names of cgroups tell containers: that
// of a session, and the one above somebody else's, which may be a container's itself.
func (o *observation) containers() string {
	if o.foreign {
		return filepath.Dir(o.session.Path())
	}
	return o.session.Path()
}

// openObserver opens the observer of a session, with a self-test. It is how doctor
// finds out as well. The error has the remedies of this place.
func openObserver(ctx context.Context, cfg kernel.Config) (*kernel.Observer, error) {
	if cfg.CgroupPath == "" {
		u := &kernel.Unavailable{Reasons: []kernel.Reason{{Code: kernel.CodeNoCgroup2, Message: "the run has no cgroup2 directory of its own, which is what assay-run observes"}}}
		if !place.Here().BPF {
			u.Reasons = append(u.Reasons, kernel.Reason{Code: kernel.CodeNotPermitted, Message: "this process may not load eBPF programs"})
		}
		return nil, withRemedies(u)
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	cfg.SelfTest = true
	observer, err := kernel.Open(ctx, cfg)
	return observer, withRemedies(err)
}

// withRemedies says of an error of kernel.Open how to fix it in this place.
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

// unobserved is why a run that requires the kernel layer does not start.
func unobserved(err error) *runError {
	e := schema.ResultError{Code: "kernel_layer_unavailable", Message: err.Error(), Hint: "run assay-run doctor; without --kernel require the run continues and reports what it could not observe"}
	var u *kernel.Unavailable
	if errors.As(err, &u) && len(u.Reasons) > 0 && u.Reasons[0].Remedy != "" {
		e.Hint = u.Reasons[0].Remedy
	}
	return &runError{source: schema.SourceRunner, exit: ExitRunner, ResultError: e}
}

// sink appends a line to the kernel layer.
func (o *observation) sink() func(*schema.KernelEvent) error {
	var e *schema.KernelEvent // at hand: a function for each line would be garbage for each
	encode := func(dst []byte, seq uint64) []byte {
		e.Seq = seq
		return schema.AppendJSON(dst, e)
	}
	return func(next *schema.KernelEvent) error {
		if e = next; o.influence != nil {
			o.influence.event(e)
		}
		return o.log.Recorder.Append(schema.KernelPath, encode)
	}
}

// close takes in what is left in the kernel once nothing of the run runs any more. What
// the observer has there stays until free.
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
	res.Usage.Processes = new(int64(o.account.Stats.Forks - o.account.Stats.CheckForks)) // only the kernel layer has seen them all
	return nil
}

// free frees what a closed observation has in the kernel. A run calls it when its session
// is removed, which the documents wait for: both take the kernel's lock of all cgroups,
// and the time of a CPU.
func (o *observation) free() {
	if o.observer != nil {
		_ = o.observer.Close() // everything was taken from it: what it could not free goes with this process
	}
}

// observed tells that there is a kernel layer.
func (o *observation) observed() bool { return o.account.Report != nil }

// complete tells that the kernel layer lacks nothing, as far as is known.
func (o *observation) complete() bool {
	var h schema.ObservationHealth
	layer.Health(&h, o.account)
	return h.KernelState == schema.Complete
}

// escaped is how many tasks were moved out of the session, as far as was seen.
func (o *observation) escaped() uint64 {
	if !o.observed() {
		return 0
	}
	return uint64(o.account.Report.LeftCgroup)
}

// correlation is clean when the kernel layer saw the session's cgroup and
// nobody left it.
func (o *observation) correlation() string {
	if o.observed() && o.notify == nil && o.escaped() == 0 {
		return schema.Clean
	}
	return schema.Partial
}

// health says what the kernel layer may claim. Lines that the recorder accepted
// and could not keep were written for the builder, and are dropped.
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
			Message: fmt.Sprintf("a process of the run was moved to the cgroup %s: limits and usage of %s do not cover it from then on", r.LeftV1To, strings.Join(r.LeftV1, ", ")),
			Remedy:  "run the command as a user that cannot write to other cgroups",
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
