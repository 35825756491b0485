package kernel

import (
	"fmt"
	"os"
	"testing"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

// children are what this test binary does when it is started as a process to
// be observed, by name.
var children = map[string]func(args []string){}

func TestMain(m *testing.M) {
	if name := os.Getenv("KERNEL_TEST_CHILD"); name != "" {
		children[name](os.Args[1:])
		os.Exit(0)
	}
	os.Exit(leaktest.Of(m).Run())
}

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}
