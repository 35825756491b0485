//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

const cgroupRoot = "/sys/fs/cgroup/unified"

// session is a cgroup, an observer on it and the events read so far.
type session struct {
	t    testing.TB
	path string
	dir  *os.File
	o    *Observer
	done chan error

	counting bool     // keep no events
	count    int      // of events
	events   []*Event // valid after end
	report   Report
}

func newCgroup(t testing.TB) string {
	root := cgroupRoot
	if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
		root = "/sys/fs/cgroup"
	}
	path, err := os.MkdirTemp(root, "assay-test-")
	if err != nil {
		t.Skipf("cannot make a cgroup2 directory: %v", err)
	}
	os.Chmod(path, 0o755)
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			t.Errorf("session cgroup: %v", err)
		}
	})
	return path
}

// emulated is set in the virtual machines of TestOtherKernels. To load an observer takes seconds there, so the tests
// keep one, as "assay-run observe start" does.
var emulated = os.Getenv("KERNEL_TEST_INNER") != ""

// loadsItself is set while a test runs that must find no observer that is kept.
var loadsItself bool

// withoutKeptObserver has the test load its observers itself, as the first run on a host does.
func withoutKeptObserver(t testing.TB) {
	t.Helper()
	if !emulated {
		return
	}
	if _, used, err := StopObserver(); used > 0 || err != nil {
		t.Fatalf("%d observers of earlier tests are in use: %v", used, err)
	}
	loadsItself = true
	t.Cleanup(func() { loadsItself = false })
}

func observe(t testing.TB, cfg Config) *session {
	t.Helper()
	return start(&session{t: t}, cfg)
}

func start(s *session, cfg Config) *session {
	t := s.t
	t.Helper()
	*s = session{t: t, counting: s.counting, path: newCgroup(t), done: make(chan error, 1)}
	cfg.CgroupPath = s.path
	if emulated && !loadsItself {
		if err := StartObserver(); err != nil {
			t.Fatal(err)
		}
	}
	o, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.o = o
	t.Cleanup(func() { o.Close() })
	s.dir, err = os.Open(s.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.dir.Close() })
	go func() {
		s.done <- o.Read(func(e *Event) error {
			s.count++
			if !s.counting {
				s.events = append(s.events, clone(e))
			}
			return nil
		}, func(uint64) {})
	}()
	return s
}

// command prepares a program to run in the session.
func (s *session) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(s.dir.Fd())}
	c.Stderr = os.Stderr
	return c
}

// child runs one of the children of this test binary in the session.
func (s *session) child(name string, args ...string) *exec.Cmd {
	c := s.command("/proc/self/exe", args...)
	c.Env = append(os.Environ(), "KERNEL_TEST_CHILD="+name)
	c.Dir = s.t.TempDir()
	return c
}

func (s *session) run(c *exec.Cmd) {
	s.t.Helper()
	if out, err := c.Output(); err != nil {
		s.t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
}

// end stops the observer and checks the account.
func (s *session) end() {
	s.t.Helper()
	if err := s.o.Stop(); err != nil {
		s.t.Fatal(err)
	}
	if err := <-s.done; err != nil {
		s.t.Fatal(err)
	}
	s.report = s.o.Report()
	checkAccount(s.t, s.report)
}

func checkAccount(t testing.TB, r Report) {
	t.Helper()
	var emitted, coalesced uint64
	for _, h := range r.Hooks {
		emitted += h.Emitted
		coalesced += h.Coalesced
		for cpu, c := range h.PerCPU {
			if c.Fired != c.Filtered+c.Coalesced+c.Emitted+c.Dropped {
				t.Errorf("%s on CPU %d: fired %d != filtered %d + coalesced %d + emitted %d + dropped %d",
					h.Name, cpu, c.Fired, c.Filtered, c.Coalesced, c.Emitted, c.Dropped)
			}
		}
	}
	if r.Received != emitted {
		t.Errorf("received %d of %d emitted", r.Received, emitted)
	}
	if r.Received != r.Decoded+r.Malformed || r.Malformed != 0 {
		t.Errorf("received %d != decoded %d + malformed %d", r.Received, r.Decoded, r.Malformed)
	}
	if r.Decoded+r.FinalRepeats+r.Endpoints != r.Delivered+r.Joined+r.SelfTest {
		t.Errorf("decoded %d + %d final != delivered %d + joined %d + self-test %d",
			r.Decoded, r.FinalRepeats, r.Delivered, r.Joined, r.SelfTest)
	}
	if r.Repeats != coalesced {
		t.Errorf("%d repeats delivered, %d coalesced", r.Repeats, coalesced)
	}
}

func (s *session) dump() string {
	var b strings.Builder
	for _, e := range s.events {
		fmt.Fprintln(&b, describe(e))
	}
	for _, h := range s.report.Hooks {
		if h.Fired > 0 || !h.Attached {
			fmt.Fprintf(&b, "%+v\n", h)
		}
	}
	fmt.Fprintf(&b, "%+v\n", s.report.Reasons)
	return b.String()
}

func describe(e *Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s pid=%d tid=%d n=%d ret=%d", e.Kind, e.Syscall, e.PID, e.TID, e.Count, e.Result)
	for _, f := range []struct {
		name string
		v    any
	}{
		{"value", e.Value}, {"target", e.Target}, {"user", e.UserMemory}, {"copy", e.KernelCopy},
		{"cwd", e.Cwd}, {"interp", e.Interp}, {"flags", e.Flags},
		{"mode", e.Mode}, {"bytes", e.BytesOut}, {"bytes_in", e.BytesIn}, {"child", e.Child.PID}, {"thread", e.Thread},
		{"status", e.WaitStatus}, {"peer", e.Peer}, {"own", e.Own}, {"truncated", int(e.Truncated)},
		{"marks", e.Marks.String()}, {"repeat", e.Repeat}, {"tool", e.CallInEnv}, {"trace", e.Traceparent},
	} {
		switch f.v {
		case "", uint64(0), uint32(0), int(0), false:
			continue
		case netip.AddrPort{}:
			continue
		}
		fmt.Fprintf(&b, " %s=%v", f.name, f.v)
	}
	if e.Argv != nil {
		fmt.Fprintf(&b, " argv=%q", e.Argv)
	}
	return b.String()
}

func clone(e *Event) *Event {
	c := *e
	return &c
}

// find returns the events of a kind that match.
func (s *session) find(k schema.KernelKind, match func(*Event) bool) []*Event {
	var out []*Event
	for _, e := range s.events {
		if e.Kind == k && (match == nil || match(e)) {
			out = append(out, e)
		}
	}
	return out
}

func path(p string) func(*Event) bool {
	return func(e *Event) bool { return e.Value == p }
}

func TestShell(t *testing.T) {
	s := observe(t, Config{})
	dir := t.TempDir()
	c := s.command("/bin/sh", "-c", "echo hi > out; cat out nope; ls '' >/dev/null; mv out in; true; exit 3", "", "arg")
	c.Dir = dir
	c.Env = append(os.Environ(), "ASSAY_TOOL_CALL_ID=call-1")
	c.Stderr = nil
	c.Run()
	s.end()
	if testing.Verbose() {
		t.Log(s.dump())
	}
	out := filepath.Join(dir, "out")
	if got := s.find(schema.KindOpen, path(out)); len(got) != 2 || got[0].Flags&syscall.O_CREAT == 0 ||
		!got[0].KernelObject() {
		t.Errorf("opens of %s: %d", out, len(got))
	}
	if got := s.find(schema.KindOpen, path(filepath.Join(dir, "nope"))); len(got) != 1 ||
		got[0].Errno != int32(syscall.ENOENT) || !got[0].KernelCopy {
		t.Errorf("opens of nope: %d", len(got))
	}
	execs := s.find(schema.KindExec, nil)
	if len(execs) != 4 {
		t.Fatalf("%d execs, want sh, cat, ls, mv", len(execs))
	}
	if got := strings.Join(execs[0].Argv, "|"); !strings.HasSuffix(got, "exit 3||arg") || execs[0].Cwd != dir ||
		execs[0].CallInEnv != "call-1" {
		t.Errorf("exec of the shell: %s", describe(execs[0]))
	}
	if got := strings.Join(execs[2].Argv, "|"); got != "ls|" {
		t.Errorf("exec of ls: %q", got)
	}
	exits := s.find(schema.KindExit, nil)
	if last := exits[len(exits)-1]; last.WaitStatus != 3<<8 || last.PID != execs[0].PID ||
		last.Task.Start != execs[0].Task.Start {
		t.Errorf("last exit: %s", describe(last))
	}
}

// observed runs a child in a session and returns the finished session and where it ran.
func observed(t *testing.T, name string, prepare func(s *session, c *exec.Cmd)) (*session, string, error) {
	t.Helper()
	s := observe(t, Config{})
	c := s.child(name)
	if prepare != nil {
		prepare(s, c)
	}
	c.Stdout = os.Stdout
	err := c.Run()
	s.end()
	dir, _ := filepath.EvalSymlinks(c.Dir)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.dump())
		}
	})
	return s, dir, err
}

// Whether an open made the file is told by the kernel, each time anew.
func TestAnOpenTellsWhetherItMadeTheFile(t *testing.T) {
	s := observe(t, Config{})
	c := s.command("/bin/sh", "-c",
		"echo 1 >>old; echo 1 >new; echo 2 >new; rm new; echo 3 >new; mktemp tmp.XXXXXX; (set -C; echo "+
			"4 >alone); cat old")
	c.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(c.Dir, "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	s.end()
	got := map[string]string{}
	for _, e := range s.find(schema.KindOpen, nil) {
		if name, ok := strings.CutPrefix(e.Value, c.Dir+"/"); ok {
			got[strings.Split(name, ".")[0]] += fmt.Sprint(e.Count, e.Created, " ")
		}
	}
	want := map[string]string{"old": "1 false 1 false ", "new": "1 true 1 false 1 true ", "tmp": "1 true ",
		"alone": "1 true "}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
