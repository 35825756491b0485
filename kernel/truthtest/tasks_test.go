//go:build linux && amd64

package truthtest

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/assay-run/assay-run/schema"
)

// nobody is the user of the attacks that are not root's.
const nobody = 65534

// attack runs a case of testdata/reach.py against the process of that id, or "recorder", with further options
// of the run, in front of which can stand a command.
func attack(t *testing.T, name, target string, front, options []string) recording {
	t.Helper()
	need(t, "python3", "unshare")
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("testdata/reach.py")
	if err != nil {
		t.Fatal(err)
	}
	run, bundle := prepare(t, dir, nil, "/usr/bin/python3", "-S", "-c", string(script), name, target)
	// a reason is no failure here
	run.Args = slices.DeleteFunc(run.Args, func(a string) bool { return a == "--kernel" || a == "require" })
	run.Args = slices.Insert(run.Args, 1, options...)
	if len(front) > 0 {
		run.Args = append(slices.Clone(front), append([]string{run.Path}, run.Args[1:]...)...)
		run.Path = must(exec.LookPath(front[0]))
	}
	out, err := run.CombinedOutput()
	if err != nil && run.ProcessState.ExitCode() != 125 { // which is the judgement of a run that traced the recorder
		t.Fatalf("%v\n%s", err, out)
	}
	r := readBundle(t, bundle)
	r.out = string(out)
	return r
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// acts are the calls on other processes, and the signals, that had a result of 0.
func (r *recording) acts() (list []string) {
	for i := range r.events {
		e := &r.events[i]
		switch {
		case e.Class != schema.ClassAgent || e.Result < 0:
		case e.Kind == schema.KindSignal:
			list = append(list, e.Kind.String()+" "+e.Value)
		case e.Kind == schema.KindPrivileged && (e.Call != "fcntl" || len(e.Args) > 2):
			list = append(list, e.Call)
		}
	}
	return list
}

// What a run does to a process outside is recorded, whoever it runs as, and so is a signal that
// the kernel sends because the run asked for it. A sandbox keeps such processes out of reach.
func TestActsOnProcessesOutside(t *testing.T) {
	idle := []string{"sleep", "600"}
	for _, c := range []struct {
		name  string
		other []string
		want  []string
	}{
		{"limited", idle, []string{"prlimit64"}},
		{"overrun", []string{"sh", "-c", "while :; do :; done"}, []string{"prlimit64", "signal SIGXCPU"}},
		{"priority", idle, []string{"setpriority"}},
		{"scheduled", idle, []string{"sched_setaffinity", "sched_setscheduler", "ioprio_set"}},
		{"owned", idle, []string{"fcntl", "signal SIGCONT"}},
		{"resized", []string{"/usr/bin/python3", "-S", "-c", onTerminal}, []string{"signal SIGWINCH"}},
		{"waited_for_timers", []string{"/usr/bin/python3", "-S", "-c", withTimers}, nil},
		{"own_only", idle, nil},
	} {
		for _, as := range []struct {
			name    string
			options []string
		}{{"root", nil}, {"user", []string{"--user", "nobody"}}} {
			t.Run(c.name+"/"+as.name, func(t *testing.T) {
				need(t, c.other[0])
				other := exec.Command(c.other[0], c.other[1:]...)
				if as.options != nil {
					other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
				}
				if err := other.Start(); err != nil {
					t.Fatal(err)
				}
				defer other.Wait()
				defer other.Process.Kill()
				r := attack(t, c.name, strconv.Itoa(other.Process.Pid), nil, as.options)
				r.claims(t)
				if d := cmp.Diff(c.want, slices.Compact(r.acts()), cmpopts.EquateEmpty()); d != "" {
					t.Errorf("acts (-want +got):\n%s", d)
				}
			})
		}
	}
}

// A process on a terminal of its own, whose size it is told of.
const onTerminal = `
import fcntl, os, signal
master, slave = os.openpty()
os.dup2(slave, 0)
os.setsid()
fcntl.ioctl(0, 0x540E, 0)  # TIOCSCTTY
signal.signal(signal.SIGWINCH, lambda *a: None)
while True:
    signal.pause()
`

// A process with two timers, which end at any time, whoever runs then.
const withTimers = `
import ctypes, signal
signal.signal(signal.SIGALRM, lambda *a: None)
libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
assert libc.timer_create(1, None, ctypes.byref(timer)) == 0
assert libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 1000000, 0, 1000000), None) == 0
signal.setitimer(signal.ITIMER_REAL, .001, .001)
while True:
    signal.pause()
`

// A run can have the kernel kill what is in the cgroup of others.
func TestCgroupsOfOthersKilled(t *testing.T) {
	need(t, "sleep")
	top := unified()
	if top == "" {
		t.Skip("no cgroup2 hierarchy is mounted")
	}
	dir := must(os.MkdirTemp(top, "truth-"))
	defer os.Remove(dir)
	group := must(os.Open(dir))
	defer group.Close()
	other := exec.Command("sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(group.Fd())}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	r := attack(t, "killed_by_cgroup", strconv.Itoa(other.Process.Pid), nil, nil)
	r.claims(t)
	if d := cmp.Diff([]string{"signal SIGKILL"}, r.acts()); d != "" {
		t.Errorf("acts (-want +got):\n%s", d)
	}
}

// On the recorder they speak against the layer, also where the recorder is in a PID namespace: its
// number there is another process's outside.
func TestActsOnTheRecorder(t *testing.T) {
	namespace := []string{"unshare", "--pid", "--fork", "--mount-proc"}
	for _, c := range []struct {
		name, reason string
	}{
		{"limited", "runner_signalled"},
		{"owned", "runner_signalled"},
		{"stop", "runner_signalled"},
		{"guard", "runner_signalled"},
		{"priority", "runner_changed"},
		{"everyone", "runner_changed"},
		{"oom_score", "runner_changed"},
		{"taken_from", "runner_changed"},
		{"ptrace", "outside_process_traced"},
	} {
		for where, front := range map[string][]string{"host": nil, "namespace": namespace} {
			t.Run(c.name+"/"+where, func(t *testing.T) {
				r := attack(t, c.name, "recorder", front, nil)
				var codes []string
				for _, reason := range r.health.Reasons {
					if reason.Subject == "kernel" {
						codes = append(codes, reason.Code)
					}
				}
				if !slices.Contains(codes, c.reason) || r.health.KernelLayer == schema.Complete {
					t.Errorf("the layer is %s: %s; want %s", r.health.KernelLayer, strings.Join(codes, ", "), c.reason)
				}
			})
		}
	}
	t.Run("sandbox", func(t *testing.T) {
		r := attack(t, "unreachable", "recorder", nil, []string{"--mode", "workspace-write"})
		r.claims(t)
		if !strings.Contains(r.out, "nobody") {
			t.Errorf("a sandboxed command found the recorder: %s", r.out)
		}
	})
}
