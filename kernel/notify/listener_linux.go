//go:build amd64 || arm64

package notify

import (
	"errors"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
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

// hungUp reports whether no task has the listener's filter any more.
func hungUp(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&(unix.POLLHUP|unix.POLLNVAL|unix.POLLERR) != 0
}

// listener receives notifications and sends the answers. It is safe for concurrent use.
type listener struct {
	stopFD int // an eventfd that ends the receiving thread
	inbox  *inbox

	mu     sync.Mutex // guards what follows; the serving thread alone reads fd without it
	fd     int        // -1 once it is closed
	broken error      // why it was closed early
}

func newListener(fd, stopFD int) *listener {
	// With this flag the kernel wakes the thread on the CPU of the caller, which sleeps
	// now. Older kernels refuse the flag, and then the calls take longer.
	_ = unix.IoctlSetInt(fd, unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	return &listener{stopFD: stopFD, inbox: newInbox(), fd: fd}
}

// state reports whether it still receives, and if not why.
func (l *listener) state() (open bool, broken error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fd >= 0, l.broken
}

// stop ends the receiving thread.
func (l *listener) stop() {
	_, _ = unix.Write(l.stopFD, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // cannot fail: the counter is far from its limit
}

// close closes it.
func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd >= 0 {
		unix.Close(l.fd)
		l.fd = -1
	}
}

// receiveAll receives each notification at once, on a thread of its own: only until then a signal can interrupt the
// call that waits (SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV).
func (l *listener) receiveAll(fd int) {
	moreProcs(1)
	defer moreProcs(-1)
	runtime.LockOSThread()
	if now, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && 20-now > listenerNice {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, listenerNice)
	}
	for {
		n, err := l.receiveOne(fd)
		if err != nil {
			l.inbox.end(err)
			return
		}
		if n.id != 0 {
			l.inbox.put(n)
		}
	}
}

// receiveOne waits for one notification. Its id is 0 if there was none. The error says that there will be no more.
//
// It waits in poll(2). SECCOMP_IOCTL_NOTIF_RECV cannot be interrupted: after a signal the kernel
// starts it again, for as long as a process with the filter lives. Where poll finds a
// notification, the ioctl returns at once.
func (l *listener) receiveOne(fd int) (n notification, err error) {
	fds := [2]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(l.stopFD), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds[:], -1); err == unix.EINTR {
		return n, nil
	} else if err != nil {
		return n, err
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
func (l *listener) answer(r *response) error {
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(l.fd), unix.SECCOMP_IOCTL_NOTIF_SEND,
		uintptr(unsafe.Pointer(r)))
	if errno != 0 && errno != unix.ENOENT && errno != unix.EINTR { // ENOENT: the caller was killed
		l.fail(errno)
		return errno
	}
	return nil
}

// waits reports whether the notification with this id still waits for its answer. If so,
// its task is alive, and its pid has been that task's all the time.
func (l *listener) waits(id uint64) bool {
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(l.fd), unix.SECCOMP_IOCTL_NOTIF_ID_VALID,
		uintptr(unsafe.Pointer(&id)))
	return errno == 0
}

// fail notes why the listener stops, and closes it. The calls of the run then fail with
// ENOSYS instead of waiting forever.
func (l *listener) fail(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fd < 0 {
		return
	}
	l.broken = why
	l.stop() // the receiving thread keeps the listener open
	unix.Close(l.fd)
	l.fd = -1
}
