package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

// lazyCollection turns garbage collection off for the first second: preparing and
// sealing a run leave about 15 MB of garbage, and a collection costs more than a
// short command. The memory limit keeps a busy program small meanwhile: its largest
// resident set is about that, and 15 MiB of the program's own file. A longer run
// then gives the memory back, as there may be a hundred of them. GOGC and GOMEMLIMIT,
// if the user set them, apply instead.
func lazyCollection() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	usual, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(20<<20)
	collectAsUsual = sync.OnceFunc(func() {
		debug.SetGCPercent(usual)
		debug.SetMemoryLimit(limit)
	})
	time.AfterFunc(time.Second, func() {
		// A collection waits for a fork to end, and everything else for the collection. A fork into a
		// cgroup that somebody freezes meanwhile ends only when the runner kills it.
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		collectAsUsual()
		debug.FreeOSMemory()
	})
}

// collectAsUsual ends what lazyCollection began.
var collectAsUsual = func() {}

// expectEvents is called for a run with a kernel layer, which may use more memory than
// others.
//
// The first collection that the memory limit asks for then ends the lazy collection: such a
// run may need most of the limit, and would collect over and over.
func expectEvents() {
	end := collectAsUsual
	runtime.AddCleanup(new([64]byte), func(struct{}) { end() }, struct{}{})
}
