// Package leaktest makes a test binary fail when its tests leave something on
// the machine: processes, cgroups of runs, descriptors, BPF links, goroutines,
// temporary files, or a standard stream that does not block. A package whose tests start any of these has
//
//	func TestMain(m *testing.M) { os.Exit(leaktest.Of(m).Run()) }
//
// Other test binaries may run on the machine at the same time. So the tests get a
// temporary directory of their own. A process belongs to the tests if its environment,
// command line or working directory names that directory.
package leaktest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// M is a *testing.M.
type M interface{ Run() int }

// Of returns an M that runs m's tests and then looks for what they left.
func Of(m M) M { return &checked{m: m} }

type checked struct {
	m    M
	dir  string            // the temporary directory
	open map[string]string // the descriptors from before
	runs map[string]bool   // the cgroups of runs from before
	// The standard streams that were non-blocking before.
	nonblocking map[int]bool
}

// settle is how long processes and files may take that disappear by themselves.
const settle = 3 * time.Second

func (c *checked) Run() int {
	if !flag.Parsed() {
		flag.Parse()
	}
	if fuzzing() {
		return c.m.Run() // the engine keeps processes and descriptors of its own
	}
	keepInherited()
	outer := os.TempDir()
	var err error
	if c.dir, err = os.MkdirTemp("", "t"); err == nil {
		err = os.Chmod(c.dir, 0o777|os.ModeSticky) // the mode of any temporary directory
	}
	if err == nil {
		err = os.Setenv("TMPDIR", c.dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if r, w, err := os.Pipe(); err == nil { // makes the runtime open its poller, which stays open
		r.Close()
		w.Close()
	}
	c.open, c.runs, c.nonblocking = descriptors(), runs(), nonblocking()
	code := c.m.Run()
	if left := append(c.outputs(), c.look()...); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: the tests left behind:\n%s\n", strings.Join(left, "\n"))
		code = max(code, 1)
	}
	_ = os.Setenv("TMPDIR", outer)
	_ = os.RemoveAll(c.dir)
	return code
}

// look names what the tests left, after waiting for what ends by itself.
func (c *checked) look() (left []string) {
	Within(settle, func() bool {
		left = append(c.processes(), c.cgroups()...)
		left = append(left, c.descriptors()...)
		left = append(left, goroutines()...)
		left = append(left, c.files()...)
		return len(left) == 0
	})
	return left
}

func fuzzing() bool {
	for _, name := range []string{"test.fuzz", "test.fuzzworker"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" && f.Value.String() != "false" {
			return true
		}
	}
	return false
}

// Within calls done until it returns true or the limit is reached, and reports whether it
// returned true. The limit counts only the time that this process sleeps and computes. On
// a busy machine, which delays this process, it takes longer by the clock.
func Within(limit time.Duration, done func() bool) bool {
	const step = 5 * time.Millisecond
	begin := Computed()
	for slept := time.Duration(0); ; slept += step {
		if done() {
			return true
		}
		if slept+Computed()-begin >= limit {
			return false
		}
		time.Sleep(step)
	}
}
