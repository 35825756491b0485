//go:build linux && (amd64 || arm64)

package kernel

import (
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func init() {
	children["asks-the-kernel"] = func([]string) {
		// Another name each time: the kernel remembers what it could not do.
		unix.Socket(29, unix.SOCK_RAW, 1) // AF_CAN, a module
		unix.RequestKey("user", "assay-none", "anything", unix.KEY_SPEC_PROCESS_KEYRING)
		crash()
	}
	children["crash"] = func([]string) { crash() }
}

// crash ends a child of this process with a core dump.
func crash() {
	check("limit", unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}))
	c := syscall.ProcAttr{Files: []uintptr{0, 1, 2}}
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "kill -SEGV $$"}, &c)
	check("sh", err)
	_, err = syscall.Wait4(pid, nil, 0, nil)
	check("wait", err)
}

// What the kernel starts for a call of the run is told, and of whom; what it starts for
// another is told to be that.
func TestProgramsThatTheKernelStarts(t *testing.T) {
	if os.Getenv("KERNEL_TEST_INNER") == "" {
		t.Skip("it changes which programs the kernel starts: only in the machines of TestOtherKernels")
	}
	if err := os.MkdirAll("/sbin", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/sbin/modprobe", "/sbin/request-key", "/sbin/dump"} {
		// Long enough for whoever asked to begin to wait, or nobody is known to have asked.
		if err := os.WriteFile(name, []byte("#!/bin/sh\nsleep 0.3\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("/proc/sys/kernel/core_pattern", []byte("|/sbin/dump"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := observe(t, Config{})
	c := s.child("asks-the-kernel")
	s.run(c)
	outside := s.child("crash")
	outside.SysProcAttr = nil
	s.run(outside)
	s.end()
	asked := map[uint64][]string{}
	for _, e := range s.find(KindKernelExec, nil) {
		name := e.Value
		if e.Arg(0) == Asked && e.PID != uint32(c.Process.Pid) && name != "/sbin/dump" {
			t.Errorf("%s was started for process %d, want %d", name, e.PID, c.Process.Pid)
		}
		if !slices.Contains(asked[e.Arg(0)], name) {
			asked[e.Arg(0)] = append(asked[e.Arg(0)], name)
		}
	}
	all := slices.Concat(asked[Asked], asked[AskedNot], asked[AskedMaybe])
	for _, name := range []string{"/sbin/modprobe", "/sbin/request-key"} {
		if !slices.Contains(asked[Asked], name) || slices.Contains(asked[AskedMaybe], name) {
			t.Errorf("%s was not started for the run: %v", name, asked)
		}
	}
	// Who crashes waits only until the program has begun, and may not have by then.
	if !slices.Contains(all, "/sbin/dump") || slices.Contains(asked[AskedNot], "/sbin/modprobe") {
		t.Errorf("programs were not started for whom they were: %v", asked)
	}
}
