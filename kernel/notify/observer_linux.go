//go:build amd64 || arm64

package notify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/role"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// How long Read waits: for more while events come, for an execution to settle, for the
// next event after that, and for the next event after sleepAfter waits without one. To
// wake Read costs as much as some notifications. An execution must be reported within
// the time that package layer holds events to order them, which is 20 ms.
const (
	gather        = 15 * time.Millisecond
	settleTime    = 5 * time.Millisecond
	pollInterval  = 20 * time.Millisecond
	sleepInterval = 500 * time.Millisecond
	sleepAfter    = 5
)

// Observer observes one command and all that it starts. New makes it, Start starts the
// command, Read delivers the events on the caller's goroutine, Stop ends the observation,
// and Close frees it. Call each of these once. Report may be called at any time from any
// goroutine.
type Observer struct {
	cfg     Config
	queue   *queue
	stopFD  int           // an eventfd that ends the listener's threads
	served  chan struct{} // closed when the listener's thread has ended; nil without a listener
	stopped chan struct{} // closed by Stop
	closed  chan struct{} // closed by Close
	n       notification  // what the listener's thread works on

	mu         sync.Mutex // guards what follows
	listener   *listener  // nil without one
	hello      hello
	refused    *kernel.Unavailable // why there is no listener
	table      *table
	tally      *tally
	events     *events
	names      *names
	executions *executions
	lives      *lives
	reports    *reports
	delivered  uint64

	reads   *reads
	about   *process      // that mu was locked for
	settled chan struct{} // to be closed by who settles for Read now
	stuck   int           // goroutines that were given up
}

// New makes an observer for one command. The error is a [*kernel.Unavailable].
func New(cfg Config) (*Observer, error) {
	if err := Probe(); err != nil {
		return nil, err
	}
	t, err := newTable()
	if err != nil {
		return nil, &kernel.Unavailable{Reasons: []kernel.Reason{{Code: CodeShim, Message: err.Error()}}, Err: err}
	}
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, &kernel.Unavailable{Reasons: []kernel.Reason{{Code: CodeShim, Message: "eventfd: " + err.Error()}},
			Err: err}
	}
	o := &Observer{cfg: cfg, queue: newQueue(), stopFD: stop, stopped: make(chan struct{}),
		closed: make(chan struct{}), table: t, tally: new(tally), names: newNames(t), reads: new(reads)}
	o.events = newEvents(o.queue, o.tally)
	o.executions = newExecutions(t, o.events, o.names)
	o.lives = newLives(t, o.events, o.executions, o.reads)
	o.reports = newReports(t, o.events, o.names)
	return o, nil
}

// refuse notes why the command runs unobserved.
func (o *Observer) refuse(u *kernel.Unavailable) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = u
}

// Unavailable is why the command is not observed. It is nil if the command is observed.
func (o *Observer) Unavailable() *kernel.Unavailable {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused
}

// Read calls fn with every event, and returns once Stop has been called and every earlier
// event was delivered, or when fn returns an error. An event is valid until fn returns.
// Whenever no event has come for a moment, Read calls idle with the time in nanoseconds of
// CLOCK_BOOTTIME.
func (o *Observer) Read(fn func(*kernel.Event) error, idle func(now uint64)) error {
	var events []kernel.Event
	deliver := func() (int, error) {
		events = o.queue.take(events)
		for i := range events {
			o.delivered++
			if err := fn(&events[i]); err != nil {
				return i, err
			}
		}
		return len(events), nil
	}
	unsettled := false
	for quiet := 0; ; {
		// While events come, the listener's thread need not wake this goroutine.
		wake, interval := o.queue.wake, pollInterval
		switch {
		case quiet > sleepAfter:
			interval = sleepInterval
		case unsettled:
			interval = settleTime
		case quiet == 0:
			wake, interval = nil, gather
		}
		quiet++
		stopped := false
		select {
		case <-o.stopped:
			stopped = true
		case <-wake:
			quiet = 0
			continue
		case <-time.After(interval):
		}
		unsettled = o.settleSilent(stopped)
		o.lives.look(&o.mu)
		n, err := deliver()
		if err != nil {
			return err
		}
		if stopped {
			_, err := deliver()
			return err
		}
		if n == 0 {
			idle(bootTime())
		} else {
			quiet = 0
		}
	}
}

// Present is nil: the observer sees the command from its first call on.
func (o *Observer) Present() []kernel.Present { return nil }

// Stop stops serving the listener, so the calls of a process that still runs then fail.
// Read delivers the remaining events and returns.
func (o *Observer) Stop() error {
	o.stop()
	select {
	case <-o.stopped:
	default:
		close(o.stopped)
	}
	return nil
}

// Close frees everything. Read must have returned. Report keeps working.
func (o *Observer) Close() error {
	close(o.closed)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.table.byPID {
		p.close()
	}
	clear(o.table.byPID)
	if o.table.ends >= 0 {
		unix.Close(o.table.ends)
		o.table.ends = -1
	}
	if o.listener != nil {
		o.listener.close()
	}
	unix.Close(o.stopFD)
	return nil
}

// listen serves a listener on a thread of its own. The thread ends with stop, with the
// last process that has the filter, or after an error.
func (o *Observer) listen(fd int, h hello) {
	l := newListener(fd, o.stopFD)
	o.mu.Lock()
	o.listener, o.hello = l, h
	o.served = make(chan struct{})
	o.mu.Unlock()
	go o.watch()
	go l.receiveAll(fd)
	go o.work(nil)
}

// work records and answers what was received, on a thread of its own. first is an answer that is to be sent
// before, if any.
func (o *Observer) work(first *response) {
	moreProcs(1)
	defer moreProcs(-1)
	runtime.LockOSThread() // and never unlock: the thread has a priority of its own
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && 20-now > listenerNice {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, listenerNice)
	}
	if first == nil || o.listener.answer(first) == nil {
		o.serveAll()
	}
	close(o.served) // not where this goroutine was given up
}

// serveAll serves the listener until stop.
func (o *Observer) serveAll() {
	for turn := time.Now(); ; {
		if err := o.serve(); err != nil {
			return
		}
		if time.Since(turn) > maxTurn {
			runtime.Gosched()
			turn = time.Now()
		}
	}
}

// serve takes one notification, records it and answers it. The error says that there will be no more.
func (o *Observer) serve() error {
	n, err := o.listener.inbox.take()
	if err != nil {
		if err != errStopped && err != unix.ENOENT {
			o.listener.fail(err)
		}
		return err
	}
	o.n = n
	o.queue.waitForRoom()
	r := response{id: o.n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	o.mu.Lock()
	o.record(&o.n, &r)
	o.mu.Unlock()
	return o.listener.answer(&r)
}

// stop ends the listener's thread.
func (o *Observer) stop() {
	o.queue.close()
	if o.served == nil {
		return
	}
	o.listener.stop()
	<-o.served
}

// record makes events of one notification. The caller holds mu.
func (o *Observer) record(n *notification, r *response) {
	call, compat := callOf(n.arch, n.nr)
	hook := kernel.HookUnmodelled
	if call != nil {
		hook = call.Hook
	}
	p := o.lives.of(n.pid, n.id, o.listener)
	if p == nil {
		o.tally.vanished++
		o.tally.filter(hook)
		return
	}
	o.about = p
	delete(o.table.changing, n.pid)
	o.executions.settle(p, n.pid)
	switch {
	case call == nil:
		o.reports.unknown(p, n)
	case call.Kind == schema.KindExit:
		o.tally.filter(hook)
		p.exiting, p.code = true, int(n.args[0]&0xff)
		o.lives.children(p, n.pid)
	case call.Name == "execve" || call.Name == "execveat":
		o.executions.asked(p, n, call, compat)
	case call.Kind == schema.KindIOUring && o.cfg.DenyIOUring:
		r.flags, r.err = 0, -int32(unix.EPERM)
		o.reports.denied(p, n, call, compat)
	default:
		o.reports.call(p, n, call, compat)
	}
}

// Start calls start with cmd changed to load the filter first, and observes the command
// from its first call on. If the kernel refuses the filter, the command runs without it,
// and Unavailable says why. The error is start's, or an *os.PathError as exec.Cmd.Start
// returns it if the command cannot be executed. cmd.Process is the command's process.
func (o *Observer) Start(cmd *exec.Cmd, start func(*exec.Cmd) error) error {
	if !role.Notify.Available() {
		return ErrNoShim
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("start notified: %w", err)
	}
	defer unix.Close(fds[0])
	theirs := os.NewFile(uintptr(fds[1]), "notify control")
	defer theirs.Close()
	path, args, extra := cmd.Path, cmd.Args, cmd.ExtraFiles
	argv := args
	if len(argv) == 0 {
		argv = []string{path}
	}
	cmd.Path = "/proc/self/exe"
	cmd.Args = append(role.Notify.Args(strconv.Itoa(3+len(extra)), path), argv...)
	cmd.ExtraFiles = append(append([]*os.File{}, extra...), theirs)
	err = start(cmd)
	cmd.Path, cmd.Args, cmd.ExtraFiles = path, args, extra
	if err != nil {
		return err
	}
	theirs.Close()
	h, fd, err := receive(fds[0])
	if err != nil {
		o.refuse(&kernel.Unavailable{Reasons: []kernel.Reason{{Code: CodeShim,
			Message: "the helper process ended before it could load the seccomp filter"}}, Err: err})
		return nil // the caller waits for the process and sees its end
	}
	if fd >= 0 {
		o.listen(fd, h)
	} else {
		o.refuse(unavailable(h.errno))
	}
	h, _, err = receive(fds[0])
	if err != nil {
		return nil // exec closed the socket, or the shim's death, which the caller sees when it waits
	}
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = time.Millisecond // nobody will use the pipes
	}
	_ = cmd.Wait()
	return &os.PathError{Op: "fork/exec", Path: path, Err: syscall.Errno(h.errno)}
}

// Report returns the account so far.
func (o *Observer) Report() kernel.Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	open, broken := false, error(nil)
	if o.listener != nil {
		open, broken = o.listener.state()
	}
	r := kernel.Report{Tier: kernel.TierNotify, Delivered: o.delivered, SelfTestNS: 1}
	o.tally.report(&r, open || len(o.table.byPID) == 0)
	r.DescriptorsPassed = o.executions.inherited
	r.Reasons = o.reasons(&r, broken)
	return r
}

// reasons say why the layer is less than complete: always because of the tier, and because
// of what happened in this run.
func (o *Observer) reasons(r *kernel.Report, broken error) (out []kernel.Reason) {
	add := func(is bool, code, remedy, format string, args ...any) {
		if is {
			out = append(out, kernel.Reason{Code: code, Message: fmt.Sprintf(format, args...), Remedy: remedy})
		}
	}
	const better = "run where eBPF is allowed: assay-run doctor says what is missing"
	add(true, CodeTier, better,
		"calls were observed by seccomp notification, before they were made: their results are unknown, and another "+
			"thread may have changed their arguments")
	add(o.hello.privilege, CodePrivileges, "run as root with CAP_SYS_ADMIN, or where eBPF is allowed",
		"no-new-privs was set for the command, so sudo and other setuid programs did not raise privileges")
	add(broken != nil, CodeShim, "run the command again, and report a bug if it happens again",
		"the observer ended before the run, and calls failed from then on: %v", broken)
	add(o.tally.unreadable > 0, CodeUnread, better, "the arguments of %s could not be read",
		schema.Count(o.tally.unreadable, "call", "calls"))
	add(o.tally.vanished > 0, CodeVanished, "", "%s",
		schema.Count(o.tally.vanished, "call was of a task that was killed before the observer knew whose it was",
			"calls were of tasks that were killed before the observer knew whose they were"))
	add(r.Kinds[schema.KindIOUring] > 0 && !o.cfg.DenyIOUring, CodeIOUring, "run with --deny-io-uring",
		"the run set up io_uring, whose requests are not observed")
	add(o.tally.nested > 0, CodeNested, "run that program outside of assay-run, or with --kernel ebpf",
		"a program of the run asked for a seccomp listener of its own %d times, which the kernel refuses "+
			"in a notified run", o.tally.nested)
	return out
}

// watch takes over from a goroutine that is stuck in a read of memory, until Close.
func (o *Observer) watch() {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	last, found := uint64(0), 0
	for {
		select {
		case <-o.closed:
			return
		case <-tick.C:
		}
		now := o.reads.n.Load()
		if now%2 == 0 || now != last {
			last, found = now, 0
			continue
		}
		if found++; found >= looks && o.reads.n.CompareAndSwap(now, now+1) {
			o.takeOver()
		}
	}
}

// takeOver does the work of a goroutine that was given up, whose lock of mu it has, and
// without the memory of the process that it was about.
func (o *Observer) takeOver() {
	o.stuck++
	// The read may still write to these.
	o.names.renew()
	o.executions.renew()
	o.table.renew()
	o.reads.refused = true
	helper := o.settled
	n := o.n
	r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if helper != nil {
		o.executions.settle(o.about, 0)
	} else {
		o.record(&n, &r)
	}
	o.reads.refused = false
	o.about.silent = true
	o.settled = nil
	o.mu.Unlock()
	if helper != nil {
		close(helper)
		return
	}
	if o.stuck > maxStuck {
		o.listener.fail(errStuck)
		close(o.served)
		return
	}
	go o.work(&r)
}

// settleSilent settles the executions of processes that make no call for some milliseconds.
// At the end it also reports the executions that cannot be settled. A helper does it, which
// may get stuck. more reports whether executions are left.
func (o *Observer) settleSilent(end bool) (more bool) {
	o.mu.Lock()
	o.events.clock.set()
	more = len(o.executions.pending) > 0
	again := more && end || o.executions.due(o.events.clock.now())
	o.mu.Unlock()
	for again {
		done := make(chan struct{})
		go func() {
			o.mu.Lock()
			o.settled = done
			for p := range o.executions.pending {
				o.about = p
				o.executions.settle(p, 0)
				if end {
					o.executions.abandon(p)
				}
			}
			o.settled = nil
			more = len(o.executions.pending) > 0
			again = end && more
			o.mu.Unlock()
			close(done)
		}()
		<-done
	}
	return more
}

var le = binary.LittleEndian

const pageSize = 4096 // the smallest page size: no read crosses the end of a page

// ErrNoShim is returned by Observer.Start in a program that cannot start the helper
// process.
var ErrNoShim = errors.New(
	`this program cannot start the helper process that seccomp notification needs: import _ "github.com/assay-run/assay-run/kernel/reexec" in its main package`)

// receive returns the shim's next message, and its descriptor or -1.
func receive(socket int) (h hello, fd int, err error) {
	buf, oob := make([]byte, helloSize), make([]byte, unix.CmsgSpace(4))
	var n, oobn int
	for {
		n, oobn, _, _, err = unix.Recvmsg(socket, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil || n < helloSize {
		return h, -1, errors.Join(err, errors.New("the helper process is gone"))
	}
	fd = -1
	if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
		for i := range messages {
			if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) > 0 {
				fd = fds[0]
			}
		}
	}
	return decodeHello(buf), fd, nil
}
