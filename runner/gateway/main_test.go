package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

// TestMain fails when the tests left descriptors, goroutines or socket
// directories.
func TestMain(m *testing.M) {
	home, err := os.MkdirTemp("/dev/shm", "gateway-test-")
	if err != nil {
		home, err = os.MkdirTemp("", "")
	}
	if err == nil {
		err = os.Setenv("XDG_RUNTIME_DIR", home)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := leaktest.Of(m).Run()
	if left, _ := filepath.Glob(filepath.Join(home, "*")); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "FAIL: socket directories are left:", left)
		code = 1
	}
	os.RemoveAll(home)
	os.Exit(code)
}
