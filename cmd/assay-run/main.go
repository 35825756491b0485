// Command assay-run runs a command in its own cgroup, records what it did, and
// seals the evidence into one bundle that anyone can verify offline.
package main

import (
	"os"
	"runtime/debug"
	"time"
)

func main() {
	lazyCollection()
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// lazyCollection keeps a program that is done in a moment from collecting
// garbage at all: what preparing and sealing a run leave is about 15 MB, and
// a collection costs more than the run of a short command. A GOGC that the user
// set holds.
func lazyCollection() {
	if os.Getenv("GOGC") != "" {
		return
	}
	usual := debug.SetGCPercent(400) // a first collection at 16 MB instead of 4
	time.AfterFunc(time.Second, func() { debug.SetGCPercent(usual) })
}
