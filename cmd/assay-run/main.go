// Command assay-run runs a command in its own cgroup, records what it did, and
// seals the evidence into one bundle that anyone can verify offline.
package main

import (
	"os"
	"runtime/debug"
	"time"

	_ "github.com/assay-run/assay-run/cgroup/reexec"
	_ "github.com/assay-run/assay-run/kernel/reexec"
)

func main() {
	lazyCollection()
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// lazyCollection keeps a program that is done in a moment from collecting
// garbage at all: what preparing and sealing a run leave is about 15 MB, and
// a collection costs more than the run of a short command. The limit keeps one
// that is busy from its first moment as small as it is later. What the user set
// holds.
func lazyCollection() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	usual, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(24<<20)
	time.AfterFunc(time.Second, func() {
		debug.SetGCPercent(usual)
		debug.SetMemoryLimit(limit)
	})
}
