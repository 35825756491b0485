package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"
)

// lazyCollection turns garbage collection off for the first second. Preparing and sealing a run
// leave about 15 MB of garbage, and collecting it costs more than a short command does. A memory
// limit of 20 MiB bounds a busy program meanwhile: it then collects all the same. After the second
// the program returns unused memory, as a hundred runs may share the host. lazyCollection does
// nothing if the user set GOGC or GOMEMLIMIT.
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

// collectAsUsual turns Go's usual garbage collection on again.
var collectAsUsual = func() {}

// expectEvents is called for a run with a kernel layer, which may use more memory than others. From
// then on, the first collection that the memory limit forces ends the lazy collection. Such a run
// may need most of the limit, and would otherwise collect over and over.
func expectEvents() {
	end := collectAsUsual
	runtime.AddCleanup(new([64]byte), func(struct{}) { end() }, struct{}{})
}
