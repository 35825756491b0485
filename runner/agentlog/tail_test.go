//go:build linux

package agentlog_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/runner/agentlog"
)

// tail is a Follower with what it delivered.
type tail struct {
	*agentlog.Follower
	path string

	mu       sync.Mutex
	lines    []string
	at       []agentlog.Arrival
	restarts int
}

func boot() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}

func follow(t *testing.T, path string) *tail {
	t.Helper()
	f := &tail{path: path}
	var err error
	f.Follower, err = agentlog.Follow(agentlog.Options{
		Path: path, Now: boot,
		Line: func(line []byte, n int, at agentlog.Arrival) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lines = append(f.lines, fmt.Sprintf("%d:%.20s", n, line))
			f.at = append(f.at, at)
			if strings.HasPrefix(string(line), "bad") {
				return errors.New("it is bad")
			}
			return nil
		},
		Restart: func() { f.restarts++ },
		Precise: func() bool { return true },
		Old:     true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func codes(a agentlog.Account) []string {
	out := []string{}
	for _, p := range a.Problems {
		out = append(out, p.Code)
	}
	return out
}

func TestMain(m *testing.M) { os.Exit(leaktest.Of(m).Run()) }
