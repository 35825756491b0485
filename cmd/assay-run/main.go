// Command assay-run runs a command in its own cgroup, records what it did, and
// seals the evidence into one bundle that anyone can verify offline.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	_ "github.com/assay-run/assay-run/cgroup/reexec"
	"github.com/assay-run/assay-run/cmd/internal/console"
	_ "github.com/assay-run/assay-run/kernel/reexec"
	_ "github.com/assay-run/assay-run/runner/engine/reexec"
	"github.com/assay-run/assay-run/schema"
)

func main() {
	lazyCollection()
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

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

// release is set by the linker for released builds.
var release = ""

func version() string { return console.Version(release) }

// printDocument writes a JSON document to stdout.
func (a *app) printDocument(v any) error { return schema.PrintDocument(a.stdout, v) }

// faults are the invalid values of flags. They are kept until all flags have been
// read, so that the user sees all of them at once.
type faults []error

func (f faults) err() error { return errors.Join(f...) }

// gather makes the flags of a set report invalid values to f.
func (f *faults) gather(fs *pflag.FlagSet) {
	fs.VisitAll(func(flag *pflag.Flag) {
		if flag.DefValue == "0s" || flag.DefValue == "[]" {
			flag.DefValue = "" // not worth showing in the help
		}
		flag.Value = lenient{flag.Value, flag.Name, f}
	})
}

// lenient is a flag's value that accepts any text and records what is wrong with it.
type lenient struct {
	pflag.Value
	name   string
	faults *faults
}

func (l lenient) Set(s string) error {
	if err := l.Value.Set(s); err != nil {
		*l.faults = append(*l.faults, fmt.Errorf("--%s: %w", l.name, err))
	}
	return nil
}
