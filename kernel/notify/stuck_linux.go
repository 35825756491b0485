//go:build amd64 || arm64

package notify

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"
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
