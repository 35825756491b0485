package contract

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

// TestMain fails when the tests leave descriptors or goroutines behind.
func TestMain(m *testing.M) {
	if r, w, err := os.Pipe(); err == nil { // makes the runtime open its poller
		r.Close()
		w.Close()
	}
	files := openFiles()
	code := m.Run()
	if code == 0 && files > 0 && openFiles() > files {
		fmt.Printf("FAIL: %d descriptors open, %d before\n", openFiles(), files)
		code = 1
	}
	if code == 0 && !settled(2) {
		buf := make([]byte, 1<<16)
		fmt.Printf("FAIL: goroutines left\n%s\n", buf[:runtime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

// openFiles counts our descriptors; 0 where /proc does not tell.
func openFiles() int {
	fds, _ := os.ReadDir("/proc/self/fd")
	return len(fds)
}

// settled waits for goroutines that are about to end.
func settled(most int) bool {
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if runtime.NumGoroutine() <= most {
			return true
		}
	}
	return false
}
