package kernel

import (
	"fmt"
	"os"
	"testing"
)

// children are what this test binary does when it is started as a process to
// be observed, by name.
var children = map[string]func(args []string){}

func TestMain(m *testing.M) {
	if name := os.Getenv("KERNEL_TEST_CHILD"); name != "" {
		children[name](os.Args[1:])
		os.Exit(0)
	}
	code := m.Run()
	if code == 0 {
		code = leaks()
	}
	os.Exit(code)
}

// leaks reports what the tests left open. Replaced where it can be told.
var leaks = func() int { return 0 }

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}
