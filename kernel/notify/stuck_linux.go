//go:build amd64 || arm64

package notify

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A page of a process's memory can belong to a file system that does not answer, such as
// a FUSE server that hangs, or one that is itself a process of the run and waits for the
// listener. Who reads such a page waits in the kernel, and cannot be interrupted.
const (
	// looks is how often, lookInterval apart, a read of memory may be found unfinished
	// before its goroutine is given up and another one takes over. A machine that stands
	// still meanwhile adds one look, not many.
	looks        = 6
	lookInterval = 250 * time.Millisecond
	// maxStuck bounds how many goroutines are given up, each with its thread.
	maxStuck = 64
)

var errStuck = errors.New("the memory of too many processes could not be read in time")

// reads counts the beginnings and ends of reads of memory, of which there is one at a
// time: n is odd during a read. mu guards refused.
type reads struct {
	n       atomic.Uint64
	refused bool // no memory is read now
}

func (r *reads) begin() uint64 { return r.n.Add(1) }

// end returns unless the goroutine was given up. Then another one has its place and its
// lock, and it must not go on.
func (r *reads) end(began uint64) {
	if !r.n.CompareAndSwap(began, began+1) {
		runtime.Goexit()
	}
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
	o.names, o.text1, o.lineBuf, o.table.buf = [2][]byte{}, nil, make([]byte, maxArguments), make([]byte, len(o.table.buf))
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
		again = again || end || p.exec.time+uint64(settleTime) < o.clock.now()
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
