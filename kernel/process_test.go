//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

func init() {
	children["exit-together"] = func([]string) {
		if len(os.Args) > 1 {
			var ready, done sync.WaitGroup
			done.Add(1)
			for range 8 {
				ready.Add(1)
				go func() {
					runtime.LockOSThread()
					ready.Done()
					done.Wait()
					unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
				}()
			}
			ready.Wait()
			done.Done()
			unix.Exit(0)
		}
		times, err := strconv.Atoi(os.Getenv("TIMES"))
		check("times", err)
		for range times {
			check("child", exec.Command("/proc/self/exe", "again").Run())
		}
	}
	children["thread-exec"] = func([]string) {
		runtime.LockOSThread()
		done := make(chan bool)
		go func() { // not the main thread, which is locked
			runtime.LockOSThread()
			check("exec", syscall.Exec("/bin/true", []string{"true", "", "x"}, nil))
		}()
		<-done
	}
	children["joins with threads"] = func(args []string) {
		keepThreads(8)
		go func() { // and is making more while it is moved
			for {
				done := make(chan bool)
				go func() {
					runtime.LockOSThread() // the thread ends with this
					done <- true
				}()
				<-done
			}
		}()
		time.Sleep(20 * time.Millisecond)
		check("join", os.WriteFile(args[0]+"/cgroup.procs", []byte("0"), 0))
		open("/dev/zero")
		time.Sleep(20 * time.Millisecond)
	}
	children["leaves with threads"] = func(args []string) {
		keepThreads(8)
		time.Sleep(20 * time.Millisecond)
		check("leave", os.WriteFile(filepath.Dir(args[0])+"/cgroup.procs", []byte("0"), 0))
	}
	children["forks away"] = func(args []string) {
		dir, err := os.Open(filepath.Dir(args[0]))
		check("open", err)
		c := exec.Command("/bin/true")
		c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		check("fork into the parent cgroup", c.Run())
		os.WriteFile("pid", []byte(strconv.Itoa(c.Process.Pid)), 0o600)
	}
	children["signal"] = func([]string) {
		unix.Kill(os.Getpid(), unix.SIGKILL)
		time.Sleep(time.Minute)
	}
}

func TestExecFromThread(t *testing.T) {
	s, _, err := observed(t, "thread-exec", nil)
	if err != nil {
		t.Fatal(err)
	}
	execs := s.find(schema.KindExec, nil)
	last := execs[len(execs)-1]
	if last.TID == last.Task.TID || last.PID != execs[0].PID || len(last.Argv) != 3 || len(last.Argv[1]) != 0 {
		t.Errorf("%s old tid %d", describe(last), last.TID)
	}
	if last.Task.Start != execs[0].Task.Start {
		t.Errorf("the process changed its identity: %d, then %d", execs[0].Task.Start, last.Task.Start)
	}
}

// Threads that end at the same moment may each find that nobody is left.
func TestThreadsThatExitTogether(t *testing.T) {
	times := 200
	if testing.Short() { // as under emulation
		times = 40
	}
	s, _, err := observed(t, "exit-together", func(_ *session, c *exec.Cmd) {
		c.Env = append(c.Environ(), fmt.Sprint("TIMES=", times))
	})
	if err != nil {
		t.Fatal(err)
	}
	exits := map[uint32]int{}
	for _, e := range s.find(schema.KindExit, nil) {
		exits[e.PID]++
	}
	forks := 0
	for _, e := range s.find(schema.KindFork, func(e *Event) bool { return !e.Thread }) {
		forks++
		if n := exits[e.Child.PID]; n != 1 {
			t.Errorf("process %d has %d exits", e.Child.PID, n)
		}
	}
	if forks < times || len(exits) != forks {
		t.Errorf("%d forks, %d processes that ended", forks, len(exits))
	}
}

// A process that was in the session before it was observed ends like any other.
func TestProcessThatWasThereBefore(t *testing.T) {
	cg := newCgroup(t)
	dir, err := os.Open(cg)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	c := exec.Command("sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	o, err := Open(t.Context(), Config{CgroupPath: cg})
	if err != nil {
		c.Process.Kill()
		c.Wait()
		t.Fatal(err)
	}
	defer o.Close()
	c.Process.Kill()
	c.Wait()
	if err := o.Stop(); err != nil {
		t.Fatal(err)
	}
	var exits []string
	if err := o.Read(func(e *Event) error {
		if e.Kind == schema.KindExit {
			exits = append(exits, fmt.Sprint(int(e.PID) == c.Process.Pid, " ", e.WaitStatus&0x7f))
		}
		return nil
	}, func(uint64) {}); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(exits) != "[true 9]" {
		t.Errorf("exits: %q, want one, by signal 9", exits)
	}
}

// keepThreads returns when so many threads are there, each of a goroutine of its own.
func keepThreads(n int) {
	there := make(chan bool)
	for range n {
		go func() {
			runtime.LockOSThread()
			there <- true
			select {}
		}()
	}
	for range n {
		<-there
	}
}

// A process is moved with all its threads, and forks and exits are counted by threads.
func TestThreadsJoinAndLeave(t *testing.T) {
	for name, leaves := range map[string]bool{"joins with threads": false, "leaves with threads": true} {
		for range 5 {
			s, _, err := observed(t, name, func(s *session, c *exec.Cmd) {
				c.Args = append(c.Args, s.path)
				if !leaves {
					c.SysProcAttr = nil // starts outside
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			r := s.report
			moved := r.JoinedCgroup
			if leaves {
				moved = r.LeftCgroup
			}
			if moved < 9 || r.Forks+r.JoinedCgroup != r.Exits+r.LeftCgroup {
				t.Errorf("%s: %d were moved; %d forks and %d that joined, %d exits and %d that left", name, moved,
					r.Forks, r.JoinedCgroup, r.Exits, r.LeftCgroup)
			}
			if !leaves && len(r.Reasons) != 0 {
				t.Errorf("%s: %+v", name, r.Reasons)
			}
		}
	}
}

// A child that begins outside of the session has left it, although nothing was moved.
func TestForksAway(t *testing.T) {
	s, dir, err := observed(t, "forks away", func(s *session, c *exec.Cmd) { c.Args = append(c.Args, s.path) })
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(string(b))
	parent := s.find(schema.KindExec, nil)[0].PID
	forks := s.find(schema.KindFork, func(e *Event) bool { return int(e.Child.PID) == pid && e.Task.PID == parent })
	left := s.find(schema.KindLeave, func(e *Event) bool { return int(e.PID) == pid && e.PPID == parent })
	if len(forks) != 1 || len(left) != 1 || forks[0].Child.CgroupID != left[0].Task.CgroupID ||
		forks[0].Child.Start != left[0].Task.Start {
		t.Errorf("%d forks, %d that left", len(forks), len(left))
	}
	if s.report.LeftCgroup != 1 {
		t.Errorf("%d left", s.report.LeftCgroup)
	}
}

func TestSignalDeath(t *testing.T) {
	s, _, _ := observed(t, "signal", nil)
	if got := s.find(schema.KindExit, nil); len(got) != 1 || got[0].WaitStatus&0x7f != uint32(unix.SIGKILL) {
		t.Errorf("%d exits", len(got))
	}
}

// TestMountNamespaces: a new process, a call that enters another namespace, and a process
// that is moved into the run tell which mount namespace it is in.
func TestMountNamespaces(t *testing.T) {
	s := observe(t, Config{})
	c := s.command("/bin/sh", "-c", "unshare -m readlink /proc/self/ns/mnt; readlink /proc/self/ns/mnt")
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	s.end()
	var other, own uint32
	if _, err := fmt.Sscanf(string(out), "mnt:[%d]\nmnt:[%d]", &other, &own); err != nil || other == own {
		t.Fatalf("%v: %s", err, out)
	}
	for _, e := range s.find(schema.KindFork, nil) {
		if e.MountNS != own {
			t.Errorf("a process begins in %d, want %d", e.MountNS, own)
		}
	}
	calls := s.find(schema.KindNamespace, nil)
	if len(calls) != 1 || calls[0].MountNS != other {
		t.Errorf("%d calls, want one into %d", len(calls), other)
	}
}

// Somebody moves a process that has ended and that its parent has not reaped, as engines
// do. It has not joined the session again.
func TestADeadProcessIsMoved(t *testing.T) {
	s := observe(t, Config{})
	c := s.command("/bin/true")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, c.Process.Pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	moved := 0
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs") // of version 1, and of version 2 beside it
	for _, procs := range append(roots, filepath.Join(s.path, "cgroup.procs")) {
		if err := os.WriteFile(procs, strconv.AppendInt(nil, int64(c.Process.Pid), 10), 0); err == nil {
			moved++
		}
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	s.end()
	if moved == 0 {
		t.Skip("the kernel refuses to move it")
	}
	if s.report.JoinedCgroup != 0 || s.report.LeftCgroup != 0 || len(s.report.Reasons) != 0 {
		t.Errorf("joined %d, left %d: %+v", s.report.JoinedCgroup, s.report.LeftCgroup, s.report.Reasons)
	}
}
