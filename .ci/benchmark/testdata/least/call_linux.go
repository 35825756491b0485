package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// times are what the calls of each kind took, where LEAST_TIMES asks for them.
var (
	timed = os.Getenv("LEAST_TIMES") != ""
	mu    sync.Mutex
	times = map[string][]time.Duration{}
)

// noted notes what a call of that kind took.
func noted(kind string, start time.Time) {
	if timed {
		mu.Lock()
		defer mu.Unlock()
		times[kind] = append(times[kind], time.Since(start))
	}
}

// report prints, in nanoseconds, when this process began and ended, and by kind the number
// of calls and what they took together.
func report(begin, ended time.Time) {
	if !timed {
		return
	}
	noted("all", begin)
	noted("all after the command", ended)
	for kind, took := range times {
		var sum time.Duration
		for _, t := range took {
			sum += t
		}
		fmt.Fprintf(os.Stderr, "%s\t%d\t%d\n", kind, len(took), sum.Nanoseconds())
	}
	fmt.Fprintf(os.Stderr, "began\t1\t%d\nended\t1\t%d\n", begin.UnixNano(), time.Now().UnixNano())
}

// call makes a system call.
func call(kind string, nr uintptr, args ...uintptr) int {
	var a [6]uintptr
	copy(a[:], args)
	start := time.Now()
	r, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	noted(kind, start)
	if errno != 0 {
		check(kind, errno)
	}
	return int(r)
}

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "least: %s: %v\n", what, err)
		os.Exit(1)
	}
}

// at is the address of a value. Being kept, the value is on the heap, where it does not move,
// and nothing is collected.
func at[T any](v *T) uintptr {
	kept.Store((*byte)(unsafe.Pointer(v)))
	return uintptr(unsafe.Pointer(v))
}

var kept atomic.Pointer[byte]

func text(s string) uintptr {
	b := append([]byte(s), 0)
	return at(&b[0])
}

const here = ^uintptr(99) // AT_FDCWD
