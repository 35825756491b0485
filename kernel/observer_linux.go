//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel/internal/backlog"
	"github.com/assay-run/assay-run/kernel/internal/exercise"
	"github.com/assay-run/assay-run/schema"
)

// Observer observes one session. Open makes it, Read drains it on a goroutine
// of the caller's, Stop ends it, Close frees it. Report may be called at any
// time from any goroutine; Read only once.
//
// Everything it holds in the kernel hangs on file descriptors, so the kernel
// frees it all when this process dies, however it dies.
type Observer struct {
	loaded *loaded
	rd     *reader
	dec    *decoder

	foreign    bool     // Config.Foreign
	scratchDir string   // Config.ScratchDir
	selfCgroup uint64   // cgroup id of the self-test, 0 without one
	early      [][]byte // records of other processes that the self-test drained

	mu       sync.Mutex // guards what follows
	stopped  bool
	closed   bool
	lost     []string // links found gone
	tampered []string // what else was found changed
	ended    bool     // Read has returned
	tested   [hookCount]bool
	spared   [hookCount]bool // nothing on this host makes them fire
	testErr  error
	testTime time.Duration
	final    []HookStatus // counters as they stood at the end

	watch *time.Timer // calls look

	bpf    bpfCalls
	tally  tally
	served served
}

// tally counts on the user side. Only Read writes it.
type tally struct {
	received, decoded, malformed, delivered, joined, selfTest atomic.Uint64
	repeats, finalRepeats, endpoints                          atomic.Uint64
	left, entered, ioUring                                    atomic.Uint64
	unfollowed                                                [256]atomic.Uint64 // requests by operation
	passed                                                    atomic.Uint32      // how descriptors were passed

	mu     sync.Mutex
	events Tally
}

// Open loads and attaches the programs for the cgroup in cfg and tests them in
// it. Errors are an [*Unavailable] when this host cannot observe. ctx bounds
// the self-test.
func Open(ctx context.Context, cfg Config) (_ *Observer, err error) {
	l, err := load(cfg)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	o := &Observer{loaded: l, rd: l.rd, dec: newDecoder(), served: served{}, foreign: cfg.Foreign,
		scratchDir: cfg.ScratchDir}
	if cfg.SelfTest {
		o.selfTest(ctx, cfg.CgroupPath)
	}
	o.watch = time.AfterFunc(checkInterval, o.look)
	return o, nil
}

// Shared reports whether the programs are those that runs share: Report.Shared.
func (o *Observer) Shared() bool { return o.loaded.lease != nil }

// look calls check every checkInterval.
func (o *Observer) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return
	}
	o.check()
	o.watch.Reset(checkInterval)
}

// check notes links that are gone and other changes to the observer. The caller holds mu.
func (o *Observer) check() {
	add := func(to *[]string, what ...string) {
		for _, w := range what {
			if w != "" && !slices.Contains(*to, w) {
				*to = append(*to, w)
			}
		}
	}
	add(&o.lost, o.loaded.lostLinks()...)
	add(&o.tampered, o.loaded.tampered()...)
}

// Hurry makes Read deliver at once what has come so far, rather than within 20 ms. It may be called until Close.
func (o *Observer) Hurry() { _ = o.rd.wake() }

// Stop checks that all programs are still attached, detaches them, and lets Read deliver what is left and return. Call
// it when the session's tasks are gone: what they do later is not seen.
func (o *Observer) Stop() error {
	stopped, err := o.detach()
	if !stopped {
		return nil
	}
	pins := o.loaded.tamperedPins() // without mu, which Read needs to return
	o.mu.Lock()
	defer o.mu.Unlock()
	if pins != "" {
		o.tampered = append(o.tampered, pins)
	}
	return err
}

// detach ends the session, and then Read. It reports whether it was the first to do so.
func (o *Observer) detach() (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return false, nil
	}
	o.stopped = true
	o.watch.Stop()
	o.check()
	return true, errors.Join(o.loaded.detach(), o.rd.flush())
}

// Close frees everything. Read must have returned. Report keeps working.
func (o *Observer) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil
	}
	if o.final == nil {
		o.final = o.hooks()
	}
	o.closed = true
	o.stopped = true
	o.watch.Stop()
	return o.loaded.close()
}

// readEndpoints delivers the bytes sent to and received from each remote endpoint, as one event for all clients of a
// port that the session listened on. Which process they belong to is not known.
func (o *Observer) readEndpoints(fn func(*Event) error) error {
	now := bootTime()
	id := uint64(1)<<62 + 1
	ports := map[netip.AddrPort]*Event{}
	deliver := func(e *Event) error {
		o.tally.endpoints.Add(1)
		e.ID = id
		id++
		return o.deliver(e, fn)
	}
	err := o.loaded.slot.eachEndpoint(func(k *endpoint, v *traffic) error {
		e := &Event{
			KernelEvent: schema.KernelEvent{Kind: schema.KindFlow, Count: v.Packets, BytesOut: v.Out, BytesIn: v.In},
			Hook:        HookSkbOut, Time: now, Task: Task{CgroupID: v.Cgroup}, First: v.First, Last: v.Last,
		}
		peer := addrPort(k.Family, k.Addr[:], k.Port)
		port, ok := o.served[Unmapped(peer)]
		if !ok || k.Proto != unix.IPPROTO_TCP {
			e.SetEnds(k.Family, k.Proto, netip.AddrPort{}, peer)
			return deliver(e)
		}
		if all := ports[port]; all != nil {
			all.Count, all.BytesOut, all.BytesIn, all.Peers = all.Count+e.Count, all.BytesOut+e.BytesOut,
				all.BytesIn+e.BytesIn, all.Peers+1
			all.First, all.Last = min(all.First, e.First), max(all.Last, e.Last)
			return nil
		}
		e.SetEnds(k.Family, k.Proto, port, netip.AddrPort{})
		e.Peers = 1
		ports[port] = e
		return nil
	})
	for _, e := range ports {
		if err != nil {
			break
		}
		err = deliver(e)
	}
	return err
}

// Present are the processes that were in the cgroup when observation began, as /proc describes them now. Of a process
// that has ended since, only the ids are set.
func (o *Observer) Present() []Present {
	list := slices.Clone(o.loaded.present)
	for i := range list {
		list[i].describe()
	}
	return list
}

// Read hands every event to fn until Stop has been called and everything
// observed before it has been delivered, the slots' repeats last. It returns
// early with fn's error, or with one of the ring's. The Event is reused: see there.
//
// Whenever nothing has come for 20 ms, idle is called with the time, nanoseconds
// of CLOCK_BOOTTIME: whoever holds events back for their order can let them go.
//
// Another goroutine empties the rings meanwhile, so that they do not fill up however long fn takes. What waits for fn
// is in memory, or else in a file: see Config.ScratchDir.
func (o *Observer) Read(fn func(*Event) error, idle func(now uint64)) error {
	for _, raw := range o.early {
		if err := o.one(raw, fn); err != nil {
			return err
		}
	}
	o.early = nil
	q, pumped := backlog.New(o.scratchDir), make(chan struct{})
	go func() {
		defer close(pumped)
		q.Close(o.pump(q))
	}()
	err := q.Each(func(raw []byte) error { return o.one(raw, fn) }, idle)
	if err != nil {
		_ = o.rd.flush() // so that pump ends
		<-pumped
		return err
	}
	err = errors.Join(o.unfinished(0, fn), o.readRepeats(fn), o.readEndpoints(fn))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	return err
}

// pump empties the rings into q until the reading ends. It keeps to one thread, and gives that a higher priority than
// all others have: see priority.
func (o *Observer) pump(q *backlog.Queue) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := newPriority()
	defer p.close()
	came := 0
	put := func(raw []byte) error {
		came++
		q.Put(raw)
		return nil
	}
	drain := func() error {
		defer q.Flush()
		return o.rd.drain(put)
	}
	for quiet := 0; ; {
		ending := o.rd.stop.Load() // before the last look at the rings
		if ending {
			o.settle()
		}
		if err := drain(); err != nil || ending {
			return err
		}
		if quiet++; came > 0 {
			p.came(came)
			came, quiet = 0, 0
		}
		interval := pollInterval
		if quiet > sleepAfter {
			interval = sleepInterval
			o.loaded.slot.sleep()
			if err := drain(); err != nil { // what came before it could wake us
				return err
			}
		}
		more, err := o.rd.wait(interval)
		if err != nil {
			return err
		}
		if !more {
			if err := drain(); err != nil { // what did not wake us
				return err
			}
			q.Mark(bootTime())
			q.Flush()
		}
	}
}

// settle waits until no program runs for the session any more, if one can: a program that began before the session
// ended runs on, and what it counts after the last drain would be missing. Requests of io_uring can end after their
// process.
func (o *Observer) settle() {
	events, _ := os.ReadFile(filepath.Join(o.loaded.cgroup.Name(), "cgroup.events"))
	_, requests := o.counts(HookIOUring)
	if requests.Fired == 0 && !bytes.Contains(events, []byte("populated 1")) {
		return
	}
	// It waits for an RCU grace period, which no program outlasts. If the kernel refuses, the report counts what is
	// missing.
	const global = 1 // MEMBARRIER_CMD_GLOBAL
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
}

// one decodes and delivers one raw record.
func (o *Observer) one(raw []byte, fn func(*Event) error) error {
	o.tally.received.Add(1)
	e, err := o.dec.decode(raw)
	if err != nil {
		o.tally.malformed.Add(1)
		return nil
	}
	o.tally.decoded.Add(1)
	if e == nil {
		o.tally.joined.Add(1)
		return o.unfinished(maxRequests, fn)
	}
	return o.deliver(e, fn)
}

// unfinished delivers the io_uring requests whose end did not come, except for the newest keep.
func (o *Observer) unfinished(keep int, fn func(*Event) error) error {
	for e := o.dec.abandoned(keep); e != nil; e = o.dec.abandoned(keep) {
		o.tally.joined.Add(^uint64(0)) // its record is an event after all
		if err := o.deliver(e, fn); err != nil {
			return err
		}
	}
	return nil
}

// deliver hands over an event unless it is the self-test's.
func (o *Observer) deliver(e *Event, fn func(*Event) error) error {
	if e.Repeat {
		o.tally.repeats.Add(e.Count)
	}
	if o.isSelfTest(e) {
		o.tally.selfTest.Add(1)
		return nil
	}
	switch e.Kind {
	case schema.KindAccept, schema.KindConnect:
		o.served.see(e)
	case schema.KindBPF, schema.KindMmapShared:
		o.bpf.see(e)
	case schema.KindLeave:
		o.tally.left.Add(e.Tasks)
	case schema.KindJoin:
		o.tally.entered.Add(e.Tasks)
	case schema.KindIOUringOp:
		if unfollowed(e.Arg(0)) {
			o.tally.unfollowed[e.Arg(0)&255].Add(1)
		}
	}
	if e.Syscall == uringSyscall {
		o.tally.ioUring.Add(1)
	}
	o.tally.mu.Lock()
	o.tally.events.Count(e)
	o.tally.mu.Unlock()
	o.tally.delivered.Add(1)
	return fn(e)
}

func (o *Observer) isSelfTest(e *Event) bool {
	if o.selfCgroup == 0 {
		return false
	}
	return e.Task.CgroupID == o.selfCgroup || e.Kind == schema.KindFork && e.Child.CgroupID == o.selfCgroup
}

// readRepeats delivers what the coalescing slots still count.
func (o *Observer) readRepeats(fn func(*Event) error) error {
	return o.loaded.slot.eachRepeat(func(i uint32, s *repeatSlot) error {
		e, err := o.dec.replay(i, s.Id, s.Last, [5]uint64{s.Count, s.First, s.Last, s.Bytes, s.BytesIn})
		if err != nil {
			o.tally.malformed.Add(1)
			o.tally.received.Add(1)
			return nil
		}
		o.tally.finalRepeats.Add(1)
		return o.deliver(e, fn)
	})
}

// Report returns the account so far.
func (o *Observer) Report() Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	hooks := o.final
	if hooks == nil {
		if hooks = o.hooks(); o.stopped && o.ended { // they stay as they are
			o.final = hooks
		}
	}
	t := &o.tally
	t.mu.Lock()
	events := t.events
	t.mu.Unlock()
	r := Report{
		Tally:    events,
		Hooks:    slices.Clone(hooks),
		Received: t.received.Load(), Decoded: t.decoded.Load(), Malformed: t.malformed.Load(),
		Delivered: t.delivered.Load(), Joined: t.joined.Load(), SelfTest: t.selfTest.Load(),
		Repeats: t.repeats.Load(), FinalRepeats: t.finalRepeats.Load(), Endpoints: t.endpoints.Load(),
		Forks: hooks[HookFork].Fired, Exits: hooks[HookExit].Fired,
		LeftCgroup: t.left.Load(), JoinedCgroup: t.entered.Load(),
		IOUringUsed:         t.ioUring.Load() > 0,
		DescriptorsPassed:   t.passed.Load()&(cameFromOutside|wentOutside|cameUnseen) != 0,
		DescriptorsReceived: t.passed.Load()&cameFromOutside != 0, DescriptorsUnseen: t.passed.Load()&cameUnseen != 0,
		IOUringUnseen: !hooks[HookIOUring].Attached && events.Kinds[schema.KindIOUring] > 0,
		SelfTestNS:    int64(o.testTime), Shared: o.loaded.lease != nil, Found: o.loaded.foundPinned,
		Present: len(o.loaded.present), MapsInDoubt: o.bpf.doubt(),
	}
	if o.loaded.alone != nil {
		r.Alone = firstLine(o.loaded.alone.Error())
	}
	for op := range t.unfollowed {
		if t.unfollowed[op].Load() > 0 {
			r.IOUringUnfollowed = append(r.IOUringUnfollowed, uint8(op))
		}
	}
	// What is sent by io_uring is not looked at.
	r.Unnamed = unnamed(t.passed.Load())
	r.Reasons = o.reasons(&r)
	return r
}

// Own says over which socket assay-run talks to its own helper in the session: what is passed over it is not passed to
// the run, nor by it. Of several the last counts. Another file than a socket changes nothing.
func (o *Observer) Own(f *os.File) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if cookie, err := unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE); err == nil {
				o.loaded.slot.own(cookie)
			}
		})
	}
}

// hooks reads the counters. The caller holds mu.
func (o *Observer) hooks() []HookStatus {
	out := make([]HookStatus, hookCount)
	ways := o.loaded.slot.passed()
	o.tally.passed.Or(uint32(ways))
	misses := o.loaded.misses()
	for h := range out {
		s := &out[h]
		*s = o.loaded.status(HookID(h))
		s.SelfTested = o.tested[h]
		if slices.Contains(o.lost, hooks[h].progs[0]) {
			s.Attached, s.Detail = false, "detached before the run ended"
		}
		s.RecursionMisses = misses[hooks[h].progs[0]] - o.loaded.before[hooks[h].progs[0]]
		s.PerCPU, s.Counts = o.counts(HookID(h))
	}
	return out
}

// counts reads a hook's counters of each CPU, and adds them up.
func (o *Observer) counts(h HookID) (each []Counts, all Counts) {
	cells := o.loaded.slot.cells()
	each = make([]Counts, o.loaded.cpus)
	for cpu := range each {
		c := &cells[cpu*hookCells+int(h)]
		each[cpu] = Counts{c.Fired, c.Filtered, c.Coalesced, c.Emitted, c.Dropped, c.FailedReads}
		all.add(each[cpu])
	}
	return each, all
}

// missing is how many records that were sent did not come, or came twice.
func (o *Observer) missing(r *Report) uint64 {
	var emitted, droppedNet uint64
	for _, h := range r.Hooks {
		emitted += h.Emitted
		switch h.Hook {
		case HookConnect4, HookConnect6, HookSendmsg4, HookSendmsg6, HookBind4, HookBind6, HookTCP, HookSkbIn,
			HookSkbOut:
			droppedNet += h.Dropped
		}
	}
	seen := &o.rd.seen
	n := seen.missing
	if gaps := seen.highest - min(seen.highest, seen.nets); gaps > droppedNet {
		n += gaps - droppedNet
	}
	return max(n, max(emitted, r.Received)-min(emitted, r.Received))
}

// reasons judges the report.
func (o *Observer) reasons(r *Report) []Reason {
	var out []Reason
	add := func(code, remedy, format string, args ...any) {
		out = append(out, Reason{code, fmt.Sprintf(format, args...), remedy})
	}
	var dropped, misses, unread uint64
	for i := range r.Hooks {
		h := &r.Hooks[i]
		dropped += h.Dropped
		unread += h.FailedReads
		misses += h.RecursionMisses
		if h.Required && !h.Attached {
			add(CodeHookMissing, "run assay-run doctor, and provide what it says is missing",
				"hook %s is not attached: %s", h.Name, h.Detail)
		} else if hooks[i].selfTested && o.testTime > 0 && o.testErr == nil && !h.SelfTested && !o.spared[i] {
			add(CodeHookSilent, again, "hook %s did not fire in the self-test", h.Name)
		}
	}
	switch {
	case o.testErr == nil:
	case cgroupsFull(o.testErr):
		add(CodeFull, "raise cgroup.max.descendants and cgroup.max.depth of the cgroups above, or remove "+
			"cgroups that nobody uses",
			"the self-test could make no cgroup, so nothing shows that the hooks fire: %v", o.testErr)
	default:
		add(CodeSelfTest, again, "the self-test could not run, so nothing shows that the hooks fire: %v", o.testErr)
	}
	if dropped > 0 {
		add(CodeDrops, "give the recorder more CPU time, or use a larger --kernel-buffer",
			"%s found no room in the ring buffer", schema.Count(dropped, "event", "events"))
	}
	if misses > 0 {
		add(CodeMisses, "run the command again", "the kernel skipped a program %s because it was already running",
			schema.Count(misses, "time", "times"))
	}
	if unread > 0 {
		add(CodeFailedReads, "give the host more memory, or run the command again", "%s a field that could not be read",
			schema.Count(unread, "event lacks", "events lack"))
	}
	if Self() == 0 {
		add(CodeProcessIDs, "start assay-run with the host's process ids, or as root",
			"assay-run does not know its own process id in the first PID namespace, so it cannot tell what "+
				"the run does to it")
	}
	if r.Malformed > 0 {
		add(CodeMalformed, again, "%s could not be decoded", schema.Count(r.Malformed, "record", "records"))
	}
	if o.ended {
		if missing := o.missing(r); missing > 0 {
			add(CodeMissing, "make sure that no other process reads the observer's ring buffers", "%s emitted",
				schema.Count(missing, "record is missing although it was", "records are missing although they were"))
		}
	}
	if n := o.bpf.count(); n > 0 {
		add(CodeBPF, "run the command without CAP_SYS_ADMIN and CAP_BPF",
			"the run changed BPF objects that it did not create, %s", schema.Count(n, "time", "times"))
	}
	for _, what := range o.tampered {
		add(CodeTampered, "run the command without root, or without CAP_SYS_ADMIN and CAP_BPF",
			"somebody changed the observer: %s", what)
	}
	for _, name := range o.lost {
		add(CodeHookLost, "keep others from detaching BPF programs: run the command without CAP_SYS_ADMIN and CAP_BPF",
			"program %s was detached before the run ended", name)
	}
	// Of processes that were there before, no fork was seen.
	late := o.foreign && (r.Present > 0 || o.loaded.usedBefore)
	switch {
	case late && r.Present > 0:
		add(CodeAttachedLate, remedyLate, "%s before assay-run attached: what happened until then was not recorded",
			schema.Count(r.Present, "process was running", "processes were running"))
	case late:
		add(CodeAttachedLate, remedyLate,
			"processes had run in the cgroup before assay-run attached: what they did was not recorded")
	}
	began, ended := r.Forks+r.JoinedCgroup, r.Exits+r.LeftCgroup
	if alive := o.foreign && began > ended; o.stopped && began != ended && !late && !alive {
		add(CodeUnmatched, again, "%s began and %d ended, so some were not seen", schema.Count(began, "task", "tasks"),
			ended)
	}
	if r.LeftCgroup > 0 {
		add(CodeLeftCgroup, "run the command as a user that cannot write to other cgroups",
			"%s moved or forked out of the session cgroup, where nothing records them",
			schema.Count(r.LeftCgroup, "task was", "tasks were"))
	}
	return out
}

// selfTest runs the exerciser in a cgroup below the session's and notes which hooks saw it. An error goes to the
// report; it does not end the observation.
func (o *Observer) selfTest(ctx context.Context, session string) {
	start := time.Now()
	defer func() { o.testTime = time.Since(start) }()
	if err := o.runSelfTest(ctx, session); err != nil {
		o.testErr = err
		return
	}
	received, err := o.drainSelfTest()
	if err != nil {
		o.testErr = err
		return
	}
	for h := range o.tested {
		_, c := o.counts(HookID(h))
		o.tested[h] = c.Fired > 0 && (c.Emitted == 0 || received[h])
	}
}

func (o *Observer) runSelfTest(ctx context.Context, session string) (err error) {
	// A fork into a frozen cgroup does not return, and until it does, Go's garbage collector stops this
	// process.
	events, _ := os.ReadFile(filepath.Join(session, "cgroup.events"))
	if bytes.Contains(events, []byte("frozen 1")) {
		return fmt.Errorf("the cgroup %s is frozen", session)
	}
	path, err := os.MkdirTemp(session, "selftest-") // others may test in the same cgroup
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	dir, id, err := openCgroup(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	o.selfCgroup = id
	threads, err := os.OpenFile(filepath.Join(path, "cgroup.threads"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer threads.Close()
	list, err := exercise.List().File()
	if err != nil {
		return err
	}
	defer list.Close()
	c := exec.CommandContext(ctx, "/proc/self/exe")
	c.Args = exercise.Args()
	c.Env = []string{"GOMAXPROCS=1", "GOGC=off"} // where Go starts in it, for a millisecond
	c.ExtraFiles = []*os.File{exercise.Threads - 3: threads, exercise.Exercise - 3: list}
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	err = c.Run()
	lacks := c.ProcessState.ExitCode()
	if err != nil && lacks&^(exercise.NoIPv6|exercise.NoTCP) != 0 {
		return fmt.Errorf("run the self-test in %s: %w", path, err)
	}
	if lacks&exercise.NoIPv6 != 0 {
		o.spared[HookConnect6], o.spared[HookSendmsg6], o.spared[HookBind6] = true, true, true
	}
	o.spared[HookTCP] = lacks&exercise.NoTCP != 0
	return nil
}

// drainSelfTest reads the self-test's records from the ring and returns which hooks they are of. It keeps the records
// of other processes for Read.
func (o *Observer) drainSelfTest() (received [hookCount]bool, err error) {
	err = o.rd.drain(func(raw []byte) error {
		hook, others := o.origin(raw)
		if hook < hookCount {
			received[hook] = true // also by a record of another process: it shows as much
		}
		if others {
			o.early = append(o.early, bytes.Clone(raw))
			return nil
		}
		return o.one(raw, nil)
	})
	if err != nil {
		return received, fmt.Errorf("read the ring buffer: %w", err)
	}
	// Its loopback traffic must not pass for the run's.
	return received, deleteFrom(o.loaded.slot.maps["endpoints"], func(v []byte) bool {
		return (*traffic)(unsafe.Pointer(unsafe.SliceData(v))).Cgroup == o.selfCgroup
	})
}

// origin returns the hook of a raw record, and whether it is of a process outside of the self-test; hookCount and
// false for a malformed one.
func (o *Observer) origin(raw []byte) (hook HookID, others bool) {
	var r record
	if !r.parse(raw) {
		return hookCount, false
	}
	own := r.u64(offCgroup) == o.selfCgroup || schema.KernelKind(r.u16(offKind)) == schema.KindFork &&
		r.arg(3) == o.selfCgroup
	return HookID(r.u16(offHook)), !own
}

// again is the remedy where nothing is known to be wrong with the host.
const again = "run the command again, and report a bug if it happens again"

// remedyLate is what catches a foreign process's first instruction.
const remedyLate = "attach to a container that is created and not started yet"

// pollInterval bounds how long a record waits in a ring that is too empty to wake the reader. After sleepAfter polls
// without a record, the reader sleeps until the next record wakes it: there may be a hundred idle sessions.
const (
	pollInterval = 20 * time.Millisecond
	sleepAfter   = 5
)

// sleepInterval bounds how long a record waits that was written as the reader fell asleep, and so did not wake it.
var sleepInterval = 500 * time.Millisecond

func bootTime() uint64 {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail
	return uint64(now.Nano())
}

// cgroupsFull reports whether a cgroup could not be made because of a limit of one above
// (EAGAIN), or because no id is left (ENOSPC).
func cgroupsFull(err error) bool {
	e, ok := errors.AsType[*os.PathError](err)
	return ok && e.Op == "mkdir" && (errors.Is(e, unix.EAGAIN) || errors.Is(e, unix.ENOSPC))
}

// maxAccepted bounds the peers of accepted connections that are remembered. It is more
// than there are endpoints whose bytes are counted.
const maxAccepted = 1 << 16

// served has the session's own address of each TCP connection that it accepted, by the peer's. Only Read uses it.
type served map[netip.AddrPort]netip.AddrPort

// see notes an accepted connection, and one that the session opened itself.
func (s served) see(e *Event) {
	peer := Unmapped(e.Peer)
	switch {
	case e.SockType != unix.SOCK_STREAM || e.Errno != 0 || !peer.IsValid():
	case e.Kind == schema.KindConnect:
		delete(s, peer)
	case e.Own.IsValid() && len(s) < maxAccepted:
		s[peer] = Unmapped(e.Own)
	}
}

// HostPIDs reports whether this process is in the first PID namespace, whose inode
// number is fixed: PROC_PID_INIT_INO in include/linux/proc_ns.h.
func HostPIDs() bool {
	var st unix.Stat_t
	return unix.Stat("/proc/self/ns/pid", &st) == nil && st.Ino == 0xEFFFFFFC
}

// Self is this process's id in the first PID namespace, as events have it; 0 if unknown. A BPF program asks the kernel,
// since /proc shows ids of the namespace that it was mounted in.
var Self = sync.OnceValue(func() uint32 {
	if HostPIDs() {
		return uint32(os.Getpid())
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Syscall, Flags: unix.BPF_F_SLEEPABLE, License: "GPL",
		Instructions: asm.Instructions{
			asm.FnGetCurrentPidTgid.Call(),
			asm.RSh.Imm(asm.R0, 32),
			asm.Return(),
		}})
	if err != nil {
		return 0
	}
	defer prog.Close()
	id, err := prog.Run(&ebpf.RunOptions{})
	if err != nil {
		return 0
	}
	return id
})

// usedBefore reports whether anything has ever run in a cgroup or below, by its CPU time; true if that is unknown.
func usedBefore(session string) bool {
	stat, err := os.ReadFile(filepath.Join(session, "cpu.stat"))
	return err != nil || !slices.Contains(strings.Split(string(stat), "\n"), "usage_usec 0")
}

func (p *Present) describe() {
	dir := "/proc/" + strconv.FormatUint(uint64(p.PID), 10)
	p.Exe, _ = os.Readlink(dir + "/exe")
	p.Cwd, _ = os.Readlink(dir + "/cwd")
	var ns unix.Stat_t
	if unix.Stat(dir+"/ns/mnt", &ns) == nil {
		p.MountNS = uint32(ns.Ino)
	}
	if line, _ := os.ReadFile(dir + "/cmdline"); len(line) > 0 {
		for arg := range bytes.SplitSeq(bytes.TrimSuffix(line, []byte{0}), []byte{0}) {
			p.Argv = append(p.Argv, string(arg))
		}
	}
	// The name in parentheses may contain anything: proc_pid_stat(5).
	stat, _ := os.ReadFile(dir + "/stat")
	if f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(f) > 1 {
		ppid, _ := strconv.ParseUint(string(f[1]), 10, 32)
		p.PPID = uint32(ppid)
	}
}
