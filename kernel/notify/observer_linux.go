//go:build amd64 || arm64

package notify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

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
	served  chan struct{} // closed when the listener's thread has ended; nil without a listener
	stopFD  int           // an eventfd that ends the listener's thread
	stopped chan struct{} // closed by Stop
	closed  chan struct{} // closed by Close
	reads   reads
	n       notification // what the listener's thread works on
	inbox   *inbox       // what was received and not worked on

	mu       sync.Mutex // guards what follows
	listener int        // -1 without one
	hello    hello
	refused  *kernel.Unavailable // why there is no listener
	broken   error               // why the listener ended early
	table    *table
	clock    clock
	about    *process      // that mu was locked for
	settled  chan struct{} // to be closed by who settles for Read now
	stuck    int           // goroutines that were given up

	id        uint64
	ev        kernel.Event
	name      []byte // the last that was read
	joined    []byte // and made absolute
	text1     []byte
	lineBuf   []byte
	linkBuf   [maxPath]byte
	foreign   map[foreignCall]bool
	bound     map[string]bound // by the name of the socket in /proc
	inherited bool             // the command was given a socket

	executedOne bool // the command was executed
	emitted     [hooks]uint64
	filtered    [hooks]uint64
	coalesced   [hooks]uint64
	kinds       [256]uint64 // as kernel.Report has them
	threads     uint64
	delivered   uint64

	vanished, unreadable, nested uint64
}

// hooks bounds kernel.HookID.
const hooks = 64

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
	o := &Observer{
		stopFD: stop,
		queue:  newQueue(), table: t, listener: -1, stopped: make(chan struct{}), closed: make(chan struct{}),
		cfg: cfg, lineBuf: make([]byte, maxArguments), foreign: map[foreignCall]bool{}, bound: map[string]bound{},
	}
	o.clock.set()
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

// event begins an event of one of p's tasks. The next event reuses its memory.
func (o *Observer) event(kind schema.KernelKind, hook kernel.HookID, p *process, tid uint32) *kernel.Event {
	now := o.clock.now()
	o.id++
	o.ev = kernel.Event{
		KernelEvent: schema.KernelEvent{Kind: kind, Count: 1, PID: p.pid, TID: tid, Attempted: true, Claimed: true},
		Task:        kernel.Task{PID: p.pid, TID: tid, PPID: p.ppid, Start: p.start, CgroupID: p.cgroup},
		Hook:        hook, ID: o.id, Time: now, First: now, Last: now,
	}
	return &o.ev
}

// emit counts an event and queues it for Read.
func (o *Observer) emit(e *kernel.Event) {
	switch {
	case e.Kind == schema.KindFork:
		e.Attempted, e.Claimed = false, false
		if e.Thread {
			o.threads++
		}
	case e.Kind == schema.KindPrivileged && e.Syscall == "seccomp" && e.Arg(0) == unix.SECCOMP_SET_MODE_FILTER &&
		e.Flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0:
		o.nested++
	}
	how := o.queue.add(e)
	if how == added {
		o.emitted[e.Hook]++
	} else {
		o.coalesced[e.Hook]++
	}
	if how == repeated {
		o.emitted[kernel.HookFlush]++
	}
	if how != counted {
		o.kinds[e.Kind]++
	}
}

// quiet calls f, and counts the notification as filtered if f emits no event of the hook.
func (o *Observer) quiet(hook kernel.HookID, f func()) {
	before := o.emitted[hook]
	f()
	if o.emitted[hook] == before {
		o.filtered[hook]++
	}
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
		o.look()
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
	if o.listener >= 0 {
		unix.Close(o.listener)
		o.listener = -1
	}
	unix.Close(o.stopFD)
	return nil
}

// clock computes CLOCK_BOOTTIME without a system call. Call set first.
type clock struct {
	base time.Time
	boot uint64 // at base
}

// set reads the time. Call it often: now does not count the time that the machine was
// suspended since.
func (c *clock) set() { c.base, c.boot = time.Now(), bootTime() }

func (c *clock) now() uint64 { return c.boot + uint64(time.Since(c.base)) }

func bootTime() uint64 {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // cannot fail
	return uint64(now.Nano())
}

// call reports a system call that is about to be made.
func (o *Observer) call(p *process, n *notification, call *kernel.Call, compat bool) {
	e := o.event(call.Kind, call.Hook, p, n.pid)
	e.Syscall = call.Name
	if call.Name == "clone3" {
		if !o.clone3(e, p, n) {
			o.filtered[call.Hook]++
			return
		}
	}
	call.Arguments(e, n.args, compat)
	switch call.Kind {
	case schema.KindConnect, schema.KindBind, schema.KindSendto:
		o.socket(e, p, n, call, compat)
		return
	case schema.KindListen:
		o.listens(e, p, n)
		return
	case schema.KindChroot, schema.KindMount, schema.KindNamespace:
		o.table.roots++ // the call may change a root: look it up again
		o.table.changing[n.pid] = p
	}
	if call.Text != kernel.NoArg {
		o.text(e, p, n.args[call.Text])
	}
	if call.FD != kernel.NoArg {
		o.onDescriptor(e, p, int32(n.args[call.FD]))
	}
	if call.Path != kernel.NoArg {
		dirfd := int32(unix.AT_FDCWD)
		if call.Dirfd != kernel.NoArg {
			dirfd = int32(n.args[call.Dirfd])
		}
		e.Value, e.Given = o.path(e, p, dirfd, n.args[call.Path])
	}
	if call.Path2 != kernel.NoArg {
		dirfd := int32(unix.AT_FDCWD)
		if call.Dirfd2 != kernel.NoArg {
			dirfd = int32(n.args[call.Dirfd2])
		}
		e.Target, e.TargetGiven = o.path(e, p, dirfd, n.args[call.Path2])
	}
	switch {
	case call.Name == "openat2":
		o.openHow(e, p, n.args[2], n.args[3])
	case call.Kind == schema.KindMemfd:
		e.Value, e.Target, e.UserMemory = e.Target, "", true
	}
	if e.Truncated != 0 && e.Target != "" && (call.Path2 != kernel.NoArg || call.Kind == schema.KindSymlink) {
		e.Truncated |= schema.FieldTarget
	}
	if e.Marks&schema.MarkUnreadable != 0 {
		o.unreadable++
	}
	o.emit(e)
}

// denied reports a call that the observer refuses with EPERM.
func (o *Observer) denied(p *process, n *notification, call *kernel.Call, compat bool) {
	e := o.event(call.Kind, call.Hook, p, n.pid)
	e.Syscall = call.Name
	call.Arguments(e, n.args, compat)
	e.Attempted = false
	e.HasResult, e.Result, e.Errno = true, -int64(unix.EPERM), int32(unix.EPERM)
	o.emit(e)
}

// clone3 replaces the address of a struct clone_args by its flags, and reports whether they may make a
// namespace.
func (o *Observer) clone3(e *kernel.Event, p *process, n *notification) bool {
	var b [8]byte
	read := p.read(b[:], n.args[0])
	if !read {
		e.Marks |= schema.MarkUnreadable
	}
	n.args[0] = le.Uint64(b[:])
	return !read || n.args[0]&newNamespaces != 0
}

// openHow reads a struct open_how (openat2(2)).
func (o *Observer) openHow(e *kernel.Event, p *process, at, size uint64) {
	var how [24]byte
	if size < 24 || !p.read(how[:], at) {
		e.Marks |= schema.MarkUnreadable
		return
	}
	e.Flags, e.Mode, e.Resolve = le.Uint64(how[0:]), uint32(le.Uint64(how[8:])), le.Uint64(how[16:])&math.MaxUint32
}

// text reads a string that is not a path.
func (o *Observer) text(e *kernel.Event, p *process, at uint64) {
	if at == 0 {
		return
	}
	b, cut, ok := p.text(o.text1[:0], at, maxPath)
	o.text1 = b
	e.Target = string(b)
	if cut {
		e.Truncated |= schema.FieldValue
	}
	if !ok {
		e.Marks |= schema.MarkUnreadable
	}
}

// onDescriptor sets the path of what a descriptor refers to.
func (o *Observer) onDescriptor(e *kernel.Event, p *process, fd int32) {
	name, ok := o.link(p, fdName(fd))
	if !ok {
		e.Marks |= schema.MarkUnreadable
		return
	}
	e.Value = deleted(e, name)
}

// deleted is a name of /proc without what it says of a file that has no name any more; e is marked.
func deleted(e *kernel.Event, name string) string {
	name, gone := strings.CutSuffix(name, " (deleted)")
	if gone {
		e.Marks |= schema.MarkDeleted
	}
	return name
}

// path reads the name at an address and makes it absolute as the kernel would, in the
// process's root and working directory. It does not resolve symbolic links, or a ".."
// after a name. given is the name itself if it contains "..", else empty.
func (o *Observer) path(e *kernel.Event, p *process, dirfd int32, at uint64) (path, given string) {
	if at == 0 {
		return "", "" // utimensat on a descriptor; the kernel refuses it in other calls
	}
	name, cut, ok := p.text(o.name[:0], at, maxPath)
	o.name = name
	if cut {
		e.Truncated |= schema.FieldValue
	}
	e.UserMemory = ok
	if !ok {
		e.Marks |= schema.MarkUnreadable
		return "", ""
	}
	base := ""
	if len(name) == 0 || name[0] != '/' {
		what := "cwd"
		if dirfd != unix.AT_FDCWD {
			what = fdName(dirfd)
		}
		if base, ok = o.link(p, what); !ok || base == "" || base[0] != '/' {
			e.Marks |= schema.MarkRelative
			return string(name), ""
		}
		if trimmed, gone := strings.CutSuffix(base, " (deleted)"); gone {
			base = trimmed
			e.Marks |= schema.MarkUnresolved
		}
	} else {
		base = o.rootOf(p)
	}
	path = o.join(e, base, name)
	if bytes.Contains(name, []byte("..")) {
		given = string(name)
	}
	return path, given
}

// join makes a name absolute. A ".." that it leaves marks e.
func (o *Observer) join(e *kernel.Event, base string, name []byte) string {
	dst, unresolved := join(append(o.joined[:0], base...), name)
	o.joined = dst
	if unresolved {
		e.Marks |= schema.MarkUnresolved
	}
	return string(dst)
}

// executes notes a call of execve.
func (o *Observer) executes(p *process, n *notification, call *kernel.Call, compat bool) {
	e := o.event(schema.KindExecFailed, call.Hook, p, n.pid)
	call.Arguments(e, n.args, compat)
	dirfd, argv := int32(unix.AT_FDCWD), n.args[1]
	if call.Dirfd != kernel.NoArg {
		dirfd, argv = int32(n.args[0]), n.args[2]
	}
	o.name = o.name[:0]
	e.Value, e.Given = o.path(e, p, dirfd, n.args[call.Path])
	e.Syscall = call.Name
	x := &execution{asked: *e, filename: string(o.name)}
	if x.filename == "" && call.Dirfd != kernel.NoArg && e.Flags&unix.AT_EMPTY_PATH != 0 {
		if name, ok := o.link(p, fdName(dirfd)); ok {
			x.asked.Value = name
		}
	}
	var cut bool
	if x.asked.Argv, cut = p.vector(argv, compat); cut {
		x.asked.Truncated |= schema.FieldArgv
	}
	x.auxv = bytes.Clone(readAt(p.dir, "auxv", o.table.buf[:4096]))
	p.exec = x
	o.table.pending[p] = true
	o.filtered[call.Hook]++ // settle reports the result
}

// settle finds out whether p's execution succeeded. Its thread tid makes a call now; tid
// is 0 if none does.
func (o *Observer) settle(p *process, tid uint32) {
	x := p.exec
	if x == nil {
		return
	}
	now := readAt(p.dir, "auxv", o.table.buf[:4096])
	switch {
	case len(now) > 0 && !bytes.Equal(now, x.auxv):
		o.executed(p, x)
	case len(now) == 0 && len(x.auxv) > 0 && tid != 0:
		o.concealed(p, x) // only a new program can make it unreadable
	case tid == x.asked.TID:
		o.notExecuted(p, x)
	default:
		return // another thread's call, or the execution is not finished
	}
	p.exec = nil
	delete(o.table.pending, p)
}

// executed reports what p executes, as /proc shows it.
func (o *Observer) executed(p *process, x *execution) {
	e := o.event(schema.KindExec, kernel.HookExec, p, p.pid)
	e.Time, e.First, e.Last = x.asked.Time, x.asked.Time, x.asked.Time
	e.Attempted, e.Claimed = false, false
	e.TID = x.asked.TID
	p.openMemory()
	if !o.executedOne { // the helper's socket is closed
		o.executedOne, o.inherited = true, hasSocket(p.dir)
	}
	if ppid, ok := o.parent(p); ok {
		p.ppid, e.Task.PPID = ppid, ppid
	}
	e.PPID, e.CgroupID = e.Task.PPID, e.Task.CgroupID
	exe, ok := o.link(p, "exe")
	if !ok {
		e.Marks |= schema.MarkUnreadable
	}
	if e.Value = deleted(e, exe); strings.HasPrefix(e.Value, "/memfd:") {
		e.Marks |= schema.MarkMemfd
	}
	var st unix.Statx_t // from the kernel's cache: a FUSE server that is asked may not answer
	if unix.Statx(p.dir, "exe", unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &st) == nil {
		e.Inode, e.FileMode = st.Ino, uint32(st.Mode)
		e.Device = st.Dev_major<<20 | st.Dev_minor
	}
	if cwd, ok := o.link(p, "cwd"); ok {
		e.Cwd = cwd
	}
	e.Target = x.target(e)
	if p.unreadable() {
		e.Marks |= schema.MarkUnreadable
		o.unreadable++
	}
	line := p.memoryFile("cmdline", o.lineBuf)
	if len(line) == maxArguments {
		e.Truncated |= schema.FieldArgv
	}
	e.Argv = cutStrings(line)
	o.environment(e, p)
	o.emit(e)
}

// environment sets the names of the variables in p's environment, and the values that
// bind p to a tool call.
func (o *Observer) environment(e *kernel.Event, p *process) {
	block := p.memoryFile("environ", o.table.buf[:maxEnvironment])
	if len(block) == maxEnvironment {
		e.Truncated |= schema.FieldEnvKeys
	}
	e.EnvKeys = []string{}
	for _, entry := range cutStrings(block) {
		key, value, found := strings.Cut(entry, "=")
		if !found {
			continue
		}
		e.EnvKeys = append(e.EnvKeys, key)
		if len(value) > 128 {
			continue
		}
		switch key {
		case "ASSAY_TOOL_CALL_ID":
			e.CallInEnv = value
		case "TRACEPARENT":
			e.Traceparent = value
		}
	}
}

// notExecuted reports that the execution failed: p still runs its old program. The error
// is not known.
func (o *Observer) notExecuted(p *process, x *execution) {
	e := o.event(schema.KindExecFailed, kernel.HookExecFailed, p, p.pid)
	x.claim(e)
	o.emit(e)
}

// concealed reports that p executes a program whose process the observer may not read:
// the program has the set-user-id bit, or its user cannot read the file.
func (o *Observer) concealed(p *process, x *execution) {
	e := o.event(schema.KindExec, kernel.HookExec, p, p.pid)
	x.claim(e)
	e.Target = x.target(e)
	e.Marks |= schema.MarkUnreadable
	o.unreadable++
	p.openMemory()
	o.emit(e)
}

// abandon reports an execution of a process that ended before its next call. Whether the
// execution succeeded is unknown.
func (o *Observer) abandon(p *process) {
	if x := p.exec; x != nil {
		e := o.event(schema.KindExec, kernel.HookExec, p, p.pid)
		x.claim(e)
		e.Target = x.target(e)
		o.emit(e)
		p.exec = nil
		delete(o.table.pending, p)
	}
}

// adopt makes p a process of the run, and opens the descriptors that it lacks. It calls
// same last, to confirm that p.pid has been the same process all the time. p belongs to
// adopt.
func (o *Observer) adopt(p *process, same func() bool) *process {
	t := o.table
	p.reads = &o.reads
	if !p.open() {
		p.close()
		return nil
	}
	p.start = startTime(p.dir, t.buf)
	p.openMemory()
	if !same() {
		p.close()
		return nil
	}
	_ = unix.EpollCtl(t.ends, unix.EPOLL_CTL_ADD, p.pidfd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(p.pid)})
	t.byPID[p.pid] = p
	parent := o.ancestor(p, maxAncestors)
	if parent == nil && t.first {
		return p // its parent is not known: the layer says that it joined
	}
	e := o.event(schema.KindFork, kernel.HookFork, p, p.pid)
	e.Task = kernel.Task{CgroupID: e.Task.CgroupID}
	if parent != nil {
		if t.roots == 0 {
			p.atRoot = parent.atRoot // nobody has changed a root yet
		}
		e.Task = kernel.Task{PID: parent.pid, TID: parent.pid, PPID: parent.ppid, Start: parent.start,
			CgroupID: parent.cgroup}
	}
	e.Child = kernel.Task{PID: p.pid, TID: p.pid, PPID: e.Task.PID, Start: p.start, CgroupID: p.cgroup}
	e.PID, e.TID, e.PPID, e.CgroupID = p.pid, p.pid, e.Task.PID, p.cgroup
	t.first = true
	o.emit(e)
	return p
}

// ancestor is the parent of p. If the parent has made no call yet, ancestor adopts it,
// provided that it descends from the run's first process.
func (o *Observer) ancestor(p *process, left int) *process {
	if q := o.table.byPID[p.ppid]; q != nil && q.holds(p.ppid) {
		return q
	}
	if left == 0 || !o.table.first || !o.descends(p.ppid, left) {
		return nil
	}
	dir, err := openProc(p.ppid)
	if err != nil {
		return nil
	}
	_, above, _ := status(dir, o.table.buf)
	q := unopened(p.ppid, above)
	q.dir = dir
	return o.adopt(q, func() bool { _, now, _ := status(p.dir, o.table.buf); return now == p.ppid })
}

// descends reports whether pid, or one of its nearest ancestors, is known.
func (o *Observer) descends(pid uint32, left int) bool {
	for ; left > 0 && pid > 1 && pid != uint32(unix.Getpid()); left-- {
		if o.known(pid) {
			return true
		}
		dir, err := openProc(pid)
		if err != nil {
			return false
		}
		_, pid, _ = status(dir, o.table.buf)
		unix.Close(dir)
	}
	return false
}

// children adopts the children of p that are not known yet. p is about to end, and then
// nothing would show whose children they were.
func (o *Observer) children(p *process, tid uint32) {
	for _, thread := range []uint32{p.pid, tid} {
		name := "task/" + strconv.FormatUint(uint64(thread), 10) + "/children"
		for f := range bytes.FieldsSeq(bytes.Clone(readAt(p.dir, name, o.table.buf))) {
			n, err := strconv.ParseUint(string(f), 10, 32)
			pid := uint32(n)
			if err != nil || o.known(pid) {
				continue
			}
			dir, err := openProc(pid)
			if err != nil {
				continue
			}
			child := unopened(pid, p.pid)
			child.dir = dir
			o.adopt(child, func() bool { _, parent, _ := status(dir, o.table.buf); return parent == p.pid })
		}
		if thread == tid {
			break
		}
	}
}

// listen serves a listener on a thread of its own. The thread ends with stop, with the
// last process that has the filter, or after an error.
func (o *Observer) listen(fd int, h hello) {
	// With this flag the kernel wakes the thread on the CPU of the caller, which sleeps
	// now. Older kernels refuse the flag, and then the calls take longer.
	_ = unix.IoctlSetInt(fd, unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	o.mu.Lock()
	o.listener, o.hello = fd, h
	o.served = make(chan struct{})
	o.mu.Unlock()
	o.inbox = newInbox()
	go o.watch()
	go o.receiveAll(fd)
	go o.work(nil)
}

// receiveAll receives each notification at once, on a thread of its own: only until then a signal can interrupt the
// call that waits (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV).
func (o *Observer) receiveAll(fd int) {
	moreProcs(1)
	defer moreProcs(-1)
	runtime.LockOSThread()
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && 20-now > listenerNice {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, listenerNice)
	}
	for {
		n, err := o.receiveOne(fd)
		if err != nil {
			o.inbox.end(err)
			return
		}
		if n.id != 0 {
			o.inbox.put(n)
		}
	}
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
	if first == nil || o.answer(first) == nil {
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
	n, err := o.inbox.take()
	if err != nil {
		if err != errStopped && err != unix.ENOENT {
			o.fail(err)
		}
		return err
	}
	o.n = n
	o.queue.waitForRoom()
	r := response{id: o.n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	o.mu.Lock()
	o.record(&o.n, &r)
	o.mu.Unlock()
	return o.answer(&r)
}

// receiveOne waits for one notification. Its id is 0 if there was none. The error says that there will be no more.
//
// It waits in poll(2). SECCOMP_IOCTL_NOTIF_RECV cannot be interrupted: after a signal the kernel
// starts it again, for as long as a process with the filter lives. Where poll finds a
// notification, the ioctl returns at once.
func (o *Observer) receiveOne(fd int) (n notification, err error) {
	fds := [2]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(o.stopFD), Events: unix.POLLIN}}
	if _, _, errno := unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 2, 0, 0, 0, 0); errno == unix.EINTR {
		return n, nil
	} else if errno != 0 {
		return n, errno
	}
	switch {
	case fds[1].Revents != 0:
		return n, errStopped
	case fds[0].Revents&unix.POLLIN == 0: // no task has the filter any more
		return n, unix.ENOENT
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV,
		uintptr(unsafe.Pointer(&n)))
	switch {
	case errno == 0:
		return n, nil
	case errno == unix.EINTR || errno == unix.ENOENT && !hungUp(fd): // the caller was killed
		return notification{}, nil
	}
	return notification{}, errno
}

// answer lets a call go on, or fail. The error says that the listener serves no more.
func (o *Observer) answer(r *response) error {
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(o.listener), unix.SECCOMP_IOCTL_NOTIF_SEND,
		uintptr(unsafe.Pointer(r)))
	if errno != 0 && errno != unix.ENOENT && errno != unix.EINTR { // ENOENT: the caller was killed
		o.fail(errno)
		return errno
	}
	return nil
}

// waits reports whether the notification with this id still waits for its answer. If so,
// its task is alive, and its pid has been that task's all the time.
func (o *Observer) waits(id uint64) bool {
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(o.listener), unix.SECCOMP_IOCTL_NOTIF_ID_VALID,
		uintptr(unsafe.Pointer(&id)))
	return errno == 0
}

// fail notes why the listener stops, and closes it. The calls of the run then fail with
// ENOSYS instead of waiting forever.
func (o *Observer) fail(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listener < 0 {
		return
	}
	o.broken = why
	_, _ = unix.Write(o.stopFD, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // the receiving thread keeps the listener open
	unix.Close(o.listener)
	o.listener = -1
}

// stop ends the listener's thread.
func (o *Observer) stop() {
	o.queue.close()
	if o.served == nil {
		return
	}
	_, _ = unix.Write(o.stopFD, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // cannot fail: the counter is far from its limit
	<-o.served
}

// record makes events of one notification. The caller holds mu.
func (o *Observer) record(n *notification, r *response) {
	call, compat := callOf(n.arch, n.nr)
	hook := kernel.HookUnmodelled
	if call != nil {
		hook = call.Hook
	}
	p := o.of(n.pid, n.id)
	if p == nil {
		o.vanished++
		o.filtered[hook]++
		return
	}
	o.about = p
	delete(o.table.changing, n.pid)
	o.settle(p, n.pid)
	switch {
	case call == nil:
		o.unknown(p, n)
	case call.Kind == schema.KindExit:
		o.filtered[hook]++
		p.exiting, p.code = true, int(n.args[0]&0xff)
		o.children(p, n.pid)
	case call.Name == "execve" || call.Name == "execveat":
		o.executes(p, n, call, compat)
	case call.Kind == schema.KindIOUring && o.cfg.DenyIOUring:
		r.flags, r.err = 0, -int32(unix.EPERM)
		o.denied(p, n, call, compat)
	default:
		o.call(p, n, call, compat)
	}
}

// unknown counts a call of another instruction set. It reports the first call of each
// number in each process.
func (o *Observer) unknown(p *process, n *notification) {
	key := foreignCall{p.pid, p.start, n.arch, n.nr}
	if o.foreign[key] || len(o.foreign) >= maxForeign {
		o.filtered[kernel.HookUnmodelled]++
		return
	}
	o.foreign[key] = true
	e := o.event(schema.KindCompatSyscall, kernel.HookUnmodelled, p, n.pid)
	e.Syscall = foreignName(n.arch, n.nr)
	e.Call = e.Syscall
	o.emit(e)
}

// of finds the process of the task tid, which waits in the notification id. It returns nil
// if the task was killed before its process was known.
func (o *Observer) of(tid uint32, id uint64) *process {
	t := o.table
	if p := t.threads[tid]; p != nil {
		if p.holds(tid) {
			return p
		}
		delete(t.threads, tid)
	}
	found := t.owner(tid)
	if found == nil {
		return nil
	}
	pid := found.pid
	p := t.byPID[pid]
	if p != nil && !p.holds(pid) {
		o.ended(p)
		p = nil
	}
	if p != nil {
		found.close()
		if !o.waits(id) {
			return nil
		}
		t.forgetThreads()
		t.threads[tid] = p
		if tid != pid {
			e := o.event(schema.KindFork, kernel.HookFork, p, p.pid)
			e.Child, e.TID, e.Thread = kernel.Task{PID: p.pid, TID: tid, Start: p.start}, tid, true
			o.emit(e)
		}
		return p
	}
	p = o.adopt(found, func() bool { return o.waits(id) })
	if p != nil {
		t.threads[tid] = p
	}
	return p
}

// known reports whether the table has the process that pid names now.
func (o *Observer) known(pid uint32) bool {
	p := o.table.byPID[pid]
	return p != nil && p.holds(pid)
}

// ended reports the end of p, and forgets it.
func (o *Observer) ended(p *process) {
	t := o.table
	if t.byPID[p.pid] != p {
		return
	}
	o.abandon(p)
	delete(t.byPID, p.pid)
	of := func(_ uint32, q *process) bool { return q == p }
	maps.DeleteFunc(t.threads, of)
	maps.DeleteFunc(t.changing, of)
	e := o.event(schema.KindExit, kernel.HookExit, p, p.pid)
	e.Attempted, e.Claimed = false, false
	switch status, known := exitStatus(p, t.buf); {
	case known:
		if e.WaitStatus = uint32(status) & 0xff; e.WaitStatus&0x7f == 0 {
			e.WaitStatus = uint32(status) & 0xff00
		}
	case p.exiting:
		e.WaitStatus, e.Claimed = uint32(p.code&0xff)<<8, true
	default:
		e.Attempted = true
	}
	o.emit(e)
	p.close()
}

// look finds the processes that have ended: their pidfds are readable. Read calls it.
func (o *Observer) look() {
	var events [64]unix.EpollEvent
	for {
		// It does not wait, so the Go runtime need not know of it.
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(o.table.ends), uintptr(unsafe.Pointer(&events)),
			uintptr(len(events)), 0, 0, 0)
		if errno != 0 || n == 0 {
			return
		}
		o.mu.Lock()
		for _, ev := range events[:n] {
			if p := o.table.byPID[uint32(ev.Fd)]; p != nil && readable(p.pidfd) {
				o.ended(p)
			}
		}
		o.mu.Unlock()
	}
}

// parent is the parent of p, as it is now.
func (o *Observer) parent(p *process) (ppid uint32, ok bool) {
	if i, ok := info(p.pidfd, pidfdInfoPID); ok {
		return i.ppid, true
	}
	_, ppid, ok = status(p.dir, o.table.buf)
	return ppid, ok
}

// link reads a link in the /proc/PID of p.
func (o *Observer) link(p *process, name string) (string, bool) {
	n, err := unix.Readlinkat(p.dir, name, o.linkBuf[:])
	if err != nil || n <= 0 {
		return "", false
	}
	return string(o.linkBuf[:n]), true
}

// Report returns the account so far.
func (o *Observer) Report() kernel.Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := kernel.Report{Tier: kernel.TierNotify, Delivered: o.delivered, SelfTestNS: 1}
	r.Threads = o.threads
	attached := o.listener >= 0 || len(o.table.byPID) == 0
	native, _ := calls()
	present := map[kernel.HookID]bool{kernel.HookExec: true, kernel.HookFork: true, kernel.HookUnmodelled: true,
		kernel.HookFlush: true}
	for _, c := range native {
		present[c.Hook] = true
	}
	for h := range kernel.HookID(hooks) {
		if !present[h] {
			continue
		}
		s := kernel.HookStatus{Hook: h, Name: "seccomp/" + hookNames[h], Attached: attached,
			SelfTested: h == kernel.HookExec}
		s.Filtered, s.Coalesced, s.Emitted = o.filtered[h], o.coalesced[h], o.emitted[h]
		s.Fired = s.Filtered + s.Coalesced + s.Emitted
		r.Repeats += s.Coalesced
		r.Received += s.Emitted
		r.Hooks = append(r.Hooks, s)
	}
	r.Decoded = r.Received
	for k := range r.Kinds {
		r.Kinds[k] = o.kinds[k]
	}
	r.Forks, r.Exits = o.kinds[schema.KindFork]-o.threads, o.kinds[schema.KindExit]
	r.Claimed = r.Received
	r.Unreadable, r.DescriptorsPassed = o.unreadable, o.inherited
	r.Reasons = o.reasons(&r)
	return r
}

// reasons say why the layer is less than complete: always because of the tier, and because
// of what happened in this run.
func (o *Observer) reasons(r *kernel.Report) (out []kernel.Reason) {
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
	add(o.broken != nil, CodeShim, "run the command again, and report a bug if it happens again",
		"the observer ended before the run, and calls failed from then on: %v", o.broken)
	add(o.unreadable > 0, CodeUnread, better, "the arguments of %s could not be read",
		schema.Count(o.unreadable, "call", "calls"))
	add(o.vanished > 0, CodeVanished, "", "%s",
		schema.Count(o.vanished, "call was of a task that was killed before the observer knew whose it was",
			"calls were of tasks that were killed before the observer knew whose they were"))
	add(r.Kinds[schema.KindIOUring] > 0 && !o.cfg.DenyIOUring, CodeIOUring, "run with --deny-io-uring",
		"the run set up io_uring, whose requests are not observed")
	add(o.nested > 0, CodeNested, "run that program outside of assay-run, or with --kernel ebpf",
		"a program of the run asked for a seccomp listener of its own %d times, which the kernel refuses "+
			"in a notified run", o.nested)
	return out
}

// rootOf is the directory that p's absolute paths begin at. It is empty for the root of
// p's mount namespace.
func (o *Observer) rootOf(p *process) string {
	t := o.table
	if p.atRoot == t.roots {
		return ""
	}
	root, ok := o.link(p, "root")
	if ok && root != "/" {
		return root // and look it up each time: somebody may rename it
	}
	if ok && !t.rootsChange() {
		p.atRoot = t.roots
	}
	return ""
}

// socket reports a call with an address. It does not report a call without one: the peer
// was reported when the socket was connected.
func (o *Observer) socket(e *kernel.Event, p *process, n *notification, call *kernel.Call, compat bool) {
	e.Args = nil
	size := 16 // bytes of a struct msghdr that are read
	if compat {
		size = 8
	}
	address := func(header uint64) (at uint64, length int, ok bool) {
		var b [16]byte
		if !p.read(b[:size], header) {
			return 0, 0, false
		}
		if compat {
			return uint64(le.Uint32(b[:])), int(int32(le.Uint32(b[4:]))), true
		}
		return le.Uint64(b[:]), int(int32(le.Uint32(b[8:]))), true
	}
	one := func(at uint64, length int, ok bool) {
		if ok && (at == 0 || length <= 0) {
			return
		}
		c := *e
		var b *bound
		if ok {
			b, ok = o.address(&c, p, at, length)
		}
		if !ok {
			(&bound{}).set(&c)
			c.Marks |= schema.MarkUnreadable
			o.unreadable++
		} else if c.Kind == schema.KindBind {
			o.bind(b, p, n)
		}
		o.emit(&c)
	}
	o.quiet(call.Hook, func() {
		switch call.Name {
		case "sendmsg":
			one(address(n.args[1]))
		case "sendmmsg":
			stride := uint64(64)
			if compat {
				stride = 32
			}
			for i := range min(n.args[2]&0xffffffff, maxMessages) {
				one(address(n.args[1] + i*stride))
			}
		default:
			one(n.args[call.Path], int(int32(n.args[call.Path+1])), true)
		}
	})
}

// bind keeps the address of a socket, by the name that /proc has for it.
func (o *Observer) bind(b *bound, p *process, n *notification) {
	if name, ok := o.link(p, fdName(int32(n.args[0]))); ok {
		if len(o.bound) >= maxBound {
			clear(o.bound)
		}
		o.bound[name] = *b
	}
}

// listens reports listen(2), at the address that the run asked for with bind, if any.
func (o *Observer) listens(e *kernel.Event, p *process, n *notification) {
	var b bound
	if name, ok := o.link(p, fdName(int32(n.args[0]))); ok {
		b = o.bound[name]
	}
	e.FromUser = b.family != 0
	b.set(e)
	o.emit(e)
}

// address reads a struct sockaddr.
func (o *Observer) address(e *kernel.Event, p *process, at uint64, length int) (*bound, bool) {
	var b [128]byte // size of struct sockaddr_storage: the kernel refuses more
	a := b[:min(length, len(b))]
	if len(a) < 2 || !p.read(a, at) {
		return nil, false
	}
	e.FromUser = true
	is := &bound{family: le.Uint16(a)}
	switch {
	case is.family == unix.AF_INET && len(a) >= 8:
		is.local = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), uint16(a[2])<<8|uint16(a[3]))
	case is.family == unix.AF_INET6 && len(a) >= 24:
		is.local = netip.AddrPortFrom(netip.AddrFrom16([16]byte(a[8:24])), uint16(a[2])<<8|uint16(a[3]))
	case is.family == unix.AF_VSOCK && len(a) >= 12:
		is.vsock = kernel.VsockAddr{Port: le.Uint32(a[4:]), CID: le.Uint32(a[8:])}
	case is.family == unix.AF_UNIX:
		is.name = o.unixName(e, p, a[2:])
	}
	is.set(e)
	return is, true
}

// unixName is the name of a unix socket (unix(7)).
func (o *Observer) unixName(e *kernel.Event, p *process, name []byte) string {
	if len(name) == 0 {
		return ""
	}
	if name[0] == 0 {
		return "@" + string(name[1:])
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	base := o.rootOf(p)
	if len(name) > 0 && name[0] != '/' {
		var ok bool
		if base, ok = o.link(p, "cwd"); !ok || base == "" || base[0] != '/' {
			e.Marks |= schema.MarkRelative
			return string(name)
		}
	}
	return o.join(e, base, name)
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
	o.name, o.text1, o.lineBuf, o.table.buf = nil, nil, make([]byte, maxArguments), make([]byte, len(o.table.buf))
	o.reads.refused = true
	helper := o.settled
	n := o.n
	r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if helper != nil {
		o.settle(o.about, 0)
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
		o.fail(errStuck)
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
	o.clock.set()
	again := false
	for p := range o.table.pending {
		again = again || end || p.exec.asked.Time+uint64(settleTime) < o.clock.now()
	}
	more = len(o.table.pending) > 0
	o.mu.Unlock()
	for again {
		done := make(chan struct{})
		go func() {
			o.mu.Lock()
			o.settled = done
			for p := range o.table.pending {
				o.about = p
				o.settle(p, 0)
				if end {
					o.abandon(p)
				}
			}
			o.settled = nil
			more = len(o.table.pending) > 0
			again = end && more
			o.mu.Unlock()
			close(done)
		}()
		<-done
	}
	return more
}

// maxAncestors bounds how many processes without a call there may be between a process
// that makes one and an ancestor that is known.
const maxAncestors = 64

var le = binary.LittleEndian

const pageSize = 4096 // the smallest page size: no read crosses the end of a page

func fdName(fd int32) string { return "fd/" + strconv.Itoa(int(fd)) }

// hookNames names the hooks that notifications are counted for.
var hookNames = map[kernel.HookID]string{
	kernel.HookExec: "exec", kernel.HookFork: "fork", kernel.HookExit: "exit", kernel.HookOpen: "open",
	kernel.HookExecFailed: "exec_failed",
	kernel.HookRename:     "rename", kernel.HookUnlink: "unlink", kernel.HookLink: "link", kernel.HookMkdir: "mkdir",
	kernel.HookTruncate: "truncate",
	kernel.HookAttr:     "attributes", kernel.HookChdir: "chdir", kernel.HookSocket: "socket",
	kernel.HookPrivilege: "privilege", kernel.HookUnmodelled: "compat", kernel.HookFlush: "repeats",
}

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

// Bounds of what an execution's event holds, in bytes. The eBPF tier has the same.
const (
	maxArguments   = 128 << 10
	maxEnvironment = 64 << 10 // is read; the event holds the names only
)

// execution is a call of execve that the observer let go on. Whether it succeeded shows
// when the process makes its next call: then its memory is another.
type execution struct {
	asked    kernel.Event // the call's event: its path is the call's argument, made absolute
	filename string       // what was passed
	auxv     []byte       // of the process before the call
}

// cutStrings splits a block of strings. Each string ends with a NUL.
func cutStrings(block []byte) []string {
	list := []string{}
	for text := string(block); text != ""; {
		var one string
		one, text, _ = strings.Cut(text, "\x00")
		list = append(list, one)
	}
	return list
}

// target is what was passed to execve where that is not the program of e.
func (x *execution) target(e *kernel.Event) string {
	if x.filename == e.Value {
		return ""
	}
	return x.filename
}

// claim fills e from the call alone, for an execution that nothing else is known of.
func (x *execution) claim(e *kernel.Event) {
	a := &x.asked
	e.Time, e.First, e.Last, e.TID = a.Time, a.Time, a.Time, a.TID
	e.Syscall, e.Value, e.Given, e.Flags, e.Argv = a.Syscall, a.Value, a.Given, a.Flags, a.Argv
	e.UserMemory, e.Truncated, e.Marks = a.UserMemory, a.Truncated, a.Marks
	if e.Kind == schema.KindExec {
		e.PPID, e.CgroupID = e.Task.PPID, e.Task.CgroupID
	}
}
