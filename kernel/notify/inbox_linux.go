//go:build amd64 || arm64

package notify

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inbox holds notifications that were received, in order, until the listener's thread takes them. Each is of a task
// that waits, so that there are never more than tasks. A thread that waits for one sleeps on a futex, since Go takes
// long to wake a goroutine that is locked to its thread: with sync.Cond, a program that only opens files takes 1.8
// times as long under notify.
type inbox struct {
	mu    sync.Mutex
	list  []notification
	ended error
	state uint32 // changes with each put
}

func newInbox() *inbox { return &inbox{} }

func (b *inbox) put(n notification) {
	b.mu.Lock()
	b.list = append(b.list, n)
	b.mu.Unlock()
	b.wake()
}

// end lets take return err after the last notification.
func (b *inbox) end(err error) {
	b.mu.Lock()
	b.ended = err
	b.mu.Unlock()
	b.wake()
}

func (b *inbox) wake() {
	atomic.AddUint32(&b.state, 1)
	const futexWakePrivate = 1 | 128
	_, _, _ = unix.RawSyscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&b.state)), futexWakePrivate, 1)
}

// take waits for a notification, or for the end.
func (b *inbox) take() (n notification, err error) {
	for {
		state := atomic.LoadUint32(&b.state)
		b.mu.Lock()
		if len(b.list) > 0 {
			n, b.list = b.list[0], b.list[1:]
			b.mu.Unlock()
			return n, nil
		}
		err = b.ended
		b.mu.Unlock()
		if err != nil {
			return n, err
		}
		const futexWaitPrivate = 0 | 128
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&b.state)), futexWaitPrivate, uintptr(state),
			0, 0, 0)
	}
}
