//go:build linux

package cgroup_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/cgroup"
)

// play is the main function of the programs that the tests start.
func play(role string, args []string) int {
	self := func(role string, attr *syscall.SysProcAttr, args ...string) *exec.Cmd {
		return &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{"child", "role=" + role}, args...),
			Env: []string{}, SysProcAttr: attr, Stdout: os.Stdout}
	}
	switch role {
	case "exit":
		n, _ := strconv.Atoi(args[0])
		return n
	case "sleep":
		fmt.Println(os.Getpid())
		forever()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		fmt.Println(os.Getpid())
		forever()
	case "daemon":
		// Fork twice, and leave a setsid'ed process with nothing in its environment.
		return run(self("daemon2", &syscall.SysProcAttr{Setsid: true}))
	case "daemon2":
		if err := self("sleep", &syscall.SysProcAttr{Setsid: true}).Start(); err != nil {
			return 1
		}
	case "begin runaway":
		if err := self("runaway", &syscall.SysProcAttr{Setsid: true}, args[0]).Start(); err != nil {
			return 1
		}
	case "runaway":
		return runaway(args[0])
	case "burn":
		fmt.Println(os.Getpid())
		for end := time.Now().Add(time.Second); time.Now().Before(end) || leaktest.Computed() < 100*time.Millisecond; {
		}
	case "hog":
		fmt.Println(os.Getpid())
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		var kept [][]byte
		for range 512 {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			kept = append(kept, b)
		}
		runtime.KeepAlive(kept)
	case "nest":
		return nest(args)
	case "describe":
		return describe(args)
	case "sweep":
		swept, err := cgroup.Probe().Sweep(nil)
		fmt.Println(swept, err)
	case "churn":
		n, _ := strconv.Atoi(args[1])
		return churn(args[0], n)
	case "noclone3":
		return noClone3(args)
	case "legacy":
		return asLegacy(args)
	case "nobody":
		return asNobody(args)
	case "container":
		return asContainer(args)
	case "runner":
		return runnerRole(args[0])
	case "shell":
		// A session like a user's: a bystander, and a runner whose command stays in it.
		bystander := self("sleep", nil)
		bystander.Stdout = nil
		runner := exec.Command("/proc/self/exe", "role=homely runner", args[0])
		runner.Stdout = os.Stdout
		said, err := runner.StdinPipe()
		if err := errors.Join(err, bystander.Start(), runner.Start()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Println(bystander.Process.Pid, runner.Process.Pid)
		said.Close()                      // the command tells its own number after these
		go func() { _ = runner.Wait() }() // a zombie would still tell of its session
		os.Stdout.Close()
		forever()
	case "homely runner":
		return homelyRunner(args[0])
	}
	return 0
}

func run(cmd *exec.Cmd) int {
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func forever() { time.Sleep(time.Hour) }

// nest makes cgroups two deep inside each of the given ones, and moves there.
func nest(dirs []string) int {
	for _, d := range dirs {
		deep := filepath.Join(d, "made by the agent", "deep")
		err := os.MkdirAll(deep, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(deep, "cgroup.procs"), []byte("0"), 0)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
	fmt.Println(os.Getpid())
	forever()
	return 0
}

// description is what a program can see of how it was started.
type description struct {
	Args, Env []string
	Dir       string
	FDs       []string
	Leader    bool // of its session
	Group     bool // leader of its process group
	Ignored   string
	Blocked   string
	NoFile    unix.Rlimit
}

func describe(args []string) int {
	var d description
	cmdline, _ := os.ReadFile("/proc/self/cmdline")
	env, _ := os.ReadFile("/proc/self/environ")
	d.Args, d.Env = strings.Split(string(cmdline), "\x00"), strings.Split(string(env), "\x00")
	d.Dir, _ = os.Getwd()
	for fd := range 64 {
		// the Go runtime's own
		if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil &&
			!strings.HasPrefix(name, "anon_inode") && !strings.HasPrefix(name, "/sys/fs/cgroup") {
			kind, _, _ := strings.Cut(name, ":")
			d.FDs = append(d.FDs, fmt.Sprintf("%d %s", fd, kind))
		}
	}
	sid, _ := unix.Getsid(0)
	d.Leader, d.Group = sid == os.Getpid(), unix.Getpgrp() == os.Getpid()
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			d.Ignored = strings.TrimSpace(v)
		}
		if v, ok := strings.CutPrefix(line, "SigBlk:"); ok {
			d.Blocked = strings.TrimSpace(v)
		}
	}
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &d.NoFile)
	b, _ := json.Marshal(d)
	fmt.Println(string(b))
	return 0
}

// noClone3 makes clone3 fail with ENOSYS, as Docker's seccomp profile does,
// and becomes this test binary again.
func noClone3(args []string) int {
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x00050000 | uint32(unix.ENOSYS)}, // SECCOMP_RET_ERRNO
		{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000},                       // SECCOMP_RET_ALLOW
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, 1 /* SECCOMP_SET_MODE_FILTER */, 0,
			uintptr(unsafe.Pointer(&prog))); errno != 0 {
			err = errno
		}
	}
	if err == nil {
		err = syscall.Exec("/proc/self/exe", args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "seccomp:", err)
	return 1
}

// churn makes and removes sessions and sweeps, as runners do that come and go.
func churn(id string, times int) int {
	for i := range times {
		h := cgroup.Probe()
		swept, err := h.Sweep(nil)
		// others may die meanwhile
		mine := func(s cgroup.Swept) bool { return strings.HasPrefix(s.RunID, id[:len(id)-1]) }
		if err != nil || slices.ContainsFunc(swept, mine) {
			fmt.Println("sweep:", swept, err)
			return 1
		}
		s, err := h.NewSession(fmt.Sprintf("%s-%d", id, i), cgroup.Limits{})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		cmd := role(s, "exit", "7")
		err = s.Agent().Start(cmd)
		if err == nil {
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 7 {
				err = fmt.Errorf("exit code %d", code)
			}
		}
		if err = errors.Join(err, s.Remove()); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	return 0
}

// asLegacy takes cgroup2 away, in a mount namespace of its own, and becomes
// this test binary again.
func asLegacy(args []string) int {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Unmount("/sys/fs/cgroup/unified", 0)
	}
	if err == nil {
		err = syscall.Exec("/proc/self/exe", args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// asNobody becomes a program as an ordinary user.
func asNobody(args []string) int {
	err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(nobody), syscall.Setuid(nobody))
	if err == nil {
		err = syscall.Exec(args[0], args, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// runnerRole does what the runner does, and waits to be killed. Whatever it
// starts holds its stdout, and nothing else does.
func runnerRole(id string) int {
	h := cgroup.Probe()
	s, err := h.NewSession(id, cgroup.Limits{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := s.Guard(nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, name := range []string{"stubborn", "daemon", "sleep"} {
		cmd := role(s, name)
		cmd.Stdout = os.Stdout
		if err := s.Agent().Start(cmd); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if name == "daemon" {
			_ = cmd.Wait()
		}
	}
	forever()
	return 0
}

// homelyRunner starts a command that stays in the runner's session, prints its
// pid and waits to be killed.
func homelyRunner(id string) int {
	_, _ = io.Copy(io.Discard, os.Stdin) // whoever started it has something to say first
	s, err := cgroup.Probe().NewSession(id, cgroup.Limits{})
	if err == nil {
		_, err = s.Guard(nil)
	}
	if err == nil {
		cmd := role(s, "sleep")
		cmd.Stdout = os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		err = s.Agent().Start(cmd)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	forever()
	return 0
}
