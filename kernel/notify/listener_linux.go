//go:build amd64 || arm64

package notify

import (
	"errors"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

// Requests of ioctl(2) on a listener that package unix does not have (linux/seccomp.h).
const (
	notifIDValid  = 0x40082102 // SECCOMP_IOCTL_NOTIF_ID_VALID
	notifSetFlags = 0x40082104 // SECCOMP_IOCTL_NOTIF_SET_FLAGS, since Linux 6.6
)

// listenerNice is the nice value of the listener's thread, if it may be set. All
// processes of the run wait for this thread.
const listenerNice = -10

// maxTurn is how long the listener's goroutine goes on before it gives way to others.
// After 10 ms, the Go runtime tries to interrupt it 50,000 times a second, which costs
// nearly half as much as the listener itself.
const maxTurn = 5 * time.Millisecond

// notification is a struct seccomp_notif with its seccomp_data, and room for fields that
// newer kernels may add.
type notification struct {
	id    uint64
	pid   uint32 // the calling thread
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
	_     [16]uint64
}

// response is a struct seccomp_notif_resp.
type response struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
	_     [16]uint64
}

// listen serves a listener on a thread of its own. The thread ends with stop, with the
// last process that has the filter, or after an error.
func (o *Observer) listen(fd int, h hello) {
	// With this flag the kernel wakes the thread on the CPU of the caller, which sleeps
	// now. Older kernels refuse the flag, and then the calls take longer.
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), notifSetFlags, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	o.mu.Lock()
	o.listener, o.hello = fd, h
	o.served = make(chan struct{})
	o.mu.Unlock()
	go o.watch()
	go o.work(nil)
}

// work serves the listener on a thread of its own. first is an answer that is to be sent
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

var procs sync.Mutex

// moreProcs lets n more goroutines run at a time. The listener's goroutine mostly waits in
// the kernel. Without one more, another goroutine would take its place, and the calls of
// the run would wait for that goroutine.
func moreProcs(n int) {
	procs.Lock()
	defer procs.Unlock()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
}

// errStopped says that stop was called.
var errStopped = errors.New("the observer was stopped")

// serve waits for one notification, records it and answers it. It returns nil if there was
// none, and an error if there will be no more.
//
// It waits in poll(2). SECCOMP_IOCTL_NOTIF_RECV cannot be interrupted: after a signal the kernel
// starts it again, for as long as a process with the filter lives. Where poll finds a
// notification, the ioctl returns at once.
func (o *Observer) serve() error {
	fds := [2]unix.PollFd{{Fd: int32(o.listener), Events: unix.POLLIN}, {Fd: int32(o.stopFD), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds[:], -1); err == unix.EINTR {
		return nil
	} else if err != nil {
		o.fail(err)
		return err
	}
	switch {
	case fds[1].Revents != 0:
		return errStopped
	case fds[0].Revents&unix.POLLIN == 0: // no task has the filter any more
		return unix.ENOENT
	}
	o.n = notification{} // the kernel requires zeroes
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(o.listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&o.n))); errno != 0 {
		switch errno {
		case unix.EINTR:
			return nil
		case unix.ENOENT: // the caller was killed, or no process has the filter
			if hungUp(o.listener) {
				return errno
			}
			return nil
		}
		o.fail(errno)
		return errno
	}
	o.queue.waitForRoom()
	r := response{id: o.n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	o.mu.Lock()
	o.record(&o.n, &r)
	o.mu.Unlock()
	return o.answer(&r)
}

// answer lets a call go on, or fail. The error says that the listener serves no more.
func (o *Observer) answer(r *response) error {
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(o.listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(r)))
	if errno != 0 && errno != unix.ENOENT && errno != unix.EINTR { // ENOENT: the caller was killed
		o.fail(errno)
		return errno
	}
	return nil
}

// hungUp reports whether no task has the listener's filter any more.
func hungUp(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&(unix.POLLHUP|unix.POLLNVAL|unix.POLLERR) != 0
}

// waits reports whether the notification with this id still waits for its answer. If so,
// its task is alive, and its pid has been that task's all the time.
func (o *Observer) waits(id uint64) bool {
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(o.listener), notifIDValid, uintptr(unsafe.Pointer(&id)))
	return errno == 0
}

// fail notes why the listener stops, and closes it. The calls of the run then fail with
// ENOSYS instead of waiting forever.
func (o *Observer) fail(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = why
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
	hook := kernel.HookCompat
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
	case call.Kind == kernel.KindExit:
		o.filtered[hook]++
		p.exiting, p.code = true, int(n.args[0]&0xff)
		o.children(p, n.pid)
	case call.Name == "execve" || call.Name == "execveat":
		o.executes(p, n, call, compat)
	case call.Kind == kernel.KindIOUring && o.cfg.DenyIOUring:
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
		o.filtered[kernel.HookCompat]++
		return
	}
	o.foreign[key] = true
	e := o.event(kernel.KindCompat, kernel.HookCompat, p, n.pid)
	e.Syscall = foreignName(n.arch, n.nr)
	o.emit(e)
}
