package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
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
	before := descriptors()
	code := m.Run()
	if left := leaks(before, home); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "FAIL: left behind:\n%s\n", strings.Join(left, "\n"))
		code = 1
	}
	os.RemoveAll(home)
	os.Exit(code)
}

// leaks names what is left, once what ends by itself has had a moment.
func leaks(before map[string]string, home string) (left []string) {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left = left[:0]
		for fd, to := range descriptors() {
			if before[fd] != to && !strings.Contains(to, "[event") { // the poller's own
				left = append(left, "descriptor "+fd+": "+to)
			}
		}
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for i, s := range strings.Split(string(stacks), "\n\n") {
			if i > 0 && strings.Contains(s, "/runner/gateway") {
				left = append(left, s)
			}
		}
		dirs, _ := filepath.Glob(filepath.Join(home, "*"))
		left = append(left, dirs...)
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// descriptors are those of this process, and what they refer to.
func descriptors() map[string]string {
	m := map[string]string{}
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return m
	}
	for _, e := range dir {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			m[e.Name()] = to
		}
	}
	return m
}
