package main

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const scratchName = "assay-run-bench-*"

// supervise measures in a process of its own, so that its directories are removed however it
// ends. It returns that process's exit code, or 128+n after signal n.
func supervise(args []string) int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	own := []string{"measure"}
	for _, parent := range []string{os.TempDir(), "/dev/shm"} {
		sweep(parent)
		dir, err := os.MkdirTemp(parent, scratchName)
		check(err)
		lock, err := locked(dir)
		check(err)
		defer lock.Close()
		defer os.RemoveAll(dir)
		own = append(own, dir)
	}
	self, err := os.Executable()
	check(err)
	cmd := exec.Command(self, append(own, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	runtime.LockOSThread() // the kernel takes the thread's end for the parent's death
	cmd.SysProcAttr = ownGroup()
	check(cmd.Start())
	defer end(cmd.Process.Pid)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
		return cmd.ProcessState.ExitCode()
	case s := <-signals:
		return 128 + int(s.(syscall.Signal))
	}
}

// end ends what is left of a process group. It leaves a run time to clean up.
func end(group int) {
	_ = syscall.Kill(-group, syscall.SIGTERM)
	for range 100 {
		if errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
}

// sweep removes the directories that killed benchmarks have left in parent. It leaves those
// of benchmarks that still run, and those of other users.
func sweep(parent string) {
	for _, dir := range glob(filepath.Join(parent, scratchName)) {
		if lock, err := locked(dir); err == nil {
			_ = os.RemoveAll(dir)
			lock.Close()
		}
	}
}

// locked locks dir. The lock ends with this process.
func locked(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
