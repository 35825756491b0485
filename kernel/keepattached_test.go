//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An observer that is to stay keeps programs attached to a cgroup of its own, which goes
// with it, also when its maker is killed.
func TestKeptObserverKeepsProgramsAttached(t *testing.T) {
	newCgroup(t) // skips where nothing can be loaded
	p := myPlace(t)
	idle := p.idleCgroup()
	gone := func(when string) {
		t.Helper()
		if _, err := os.Lstat(idle); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, %s: %v", when, idle, err)
		}
	}
	if err := StartObserver(); err != nil {
		t.Fatal(err)
	}
	stop := func() bool {
		_ = os.Remove(p.keep())
		lock := must(lockDir(p.lock(), unix.LOCK_SH))
		defer lock.Close()
		return p.removeIfLast(lock)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			stop()
		}
	})
	var st unix.Stat_t
	if err := unix.Stat(idle, &st); err != nil {
		t.Fatal(err)
	}
	for _, name := range idlePrograms {
		i, err := identifyPin(filepath.Join(p.dir(), pinName("idle", name)))
		if err != nil || i.Cgroup != st.Ino {
			t.Errorf("%s is attached to cgroup %d, want %d: %v", name, i.Cgroup, st.Ino, err)
		}
	}
	s := observe(t, Config{})
	s.end()
	if err := s.o.Close(); err != nil {
		t.Fatal(err)
	}
	if r := s.report; len(r.Reasons) != 0 || !r.Shared {
		t.Errorf("a session beside it: %v", r.Reasons)
	}

	// What another maker left does not take it away.
	left := p.dir() + newInfix + "1"
	sweep := func() {
		if err := os.Mkdir(left, 0o700); err != nil {
			t.Fatal(err)
		}
		home := must(lockDir(p.home, unix.LOCK_EX))
		p.sweepUnfinished()
		home.Close()
	}
	sweep()
	if err := unix.Stat(idle, &st); err != nil {
		t.Error(err)
	}
	if stopped = stop(); !stopped {
		t.Fatal("it is still in use")
	}
	gone("stopped")

	if err := os.Mkdir(idle, 0o755); err != nil {
		t.Fatal(err)
	}
	sweep()
	gone("its maker killed")
}
