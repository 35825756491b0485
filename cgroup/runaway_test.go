//go:build linux

package cgroup_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/cgroup"
)

// counter maps the number in a file that a runaway counts its generations in.
func counter(path string) (*uint64, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*uint64)(unsafe.Pointer(&b[0])), nil
}

// runaway sheds every mark that a process of a run has, and then forks and exits,
// thousands of times a second. Nothing but system calls works in a process that
// Go's runtime did not fork.
func runaway(path string) int {
	n, err := counter(path)
	if err != nil {
		return 1
	}
	_ = unix.Setrlimit(unix.RLIMIT_LOCKS, &unix.Rlimit{Cur: 1 << 40, Max: unix.RLIM_INFINITY})
	_, _ = unix.Setsid()
	runtime.LockOSThread()
	for {
		pid, _, _ := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if pid != 0 {
			_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		*n++
	}
}

// When Wait says that a group is empty, it is, also where no cgroup holds it
// together and its processes run away from a look through /proc.
func TestRunawayIsGoneWhenWaitSaysSo(t *testing.T) {
	rounds := 8
	if testing.Short() || !layertest.IsHost() {
		rounds = 2
	}
	for range rounds {
		path := filepath.Join(t.TempDir(), "generations")
		n, err := counter(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		s := newSession(t, cgroup.Limits{})
		guard, err := s.Guard(nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = guard.Release() })
		cmd := role(s, "begin runaway", path)
		if err := s.Agent().Start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if !leaktest.Within(time.Minute, func() bool { return atomic.LoadUint64(n) > 1000 }) {
			t.Fatal("it does not run away")
		}
		if err := s.Agent().Kill(); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err = s.Agent().Wait(ctx)
		cancel()
		then := atomic.LoadUint64(n)
		time.Sleep(50 * time.Millisecond)
		now := atomic.LoadUint64(n)
		if err != nil {
			t.Errorf("after %d generations, %d of them in 50 ms: %v", now, now-then, err)
		} else if now != then {
			t.Errorf("Wait returned, and %d more generations came after", now-then)
		}
		if err := s.Remove(); err != nil {
			t.Error(err)
		}
		_ = guard.Release()
	}
}
