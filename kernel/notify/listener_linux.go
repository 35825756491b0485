//go:build amd64 || arm64

package notify

import (
	"errors"
	"runtime"
	"sync"
	"time"

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
