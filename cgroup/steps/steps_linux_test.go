package steps

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/cgroup/role"
	"golang.org/x/sys/unix"
)

// A test binary with this variable is linked with our entry point, and knows no other way to
// execute a list.
const entryOnly = "STEPS_ENTRY_ONLY"

func init() {
	if os.Getenv(entryOnly) == "" {
		Enter()
	}
}

func TestMain(m *testing.M) {
	if os.Args[0] == role.Name {
		os.Exit(program())
	}
	os.Exit(m.Run())
}

// program writes, if it is asked, a list that TestTheEntryPoint wants to see executed.
func program() int {
	l := New()
	switch {
	case len(os.Args) == 2 && os.Args[1] == "make":
		parentAndChild(l)
	case len(os.Args) == 2 && os.Args[1] == "make program":
		onward(l)
	default:
		dumpable, _ := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		fmt.Printf("main %q, dumpable %d\n", os.Args[1:], dumpable)
		return 0
	}
	if _, err := os.Stdout.Write(l.image()); err != nil {
		return 1
	}
	return 0
}

// onward is a list after which the process goes on as a program.
func onward(l *List) {
	l.Call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0)
	l.Call(unix.SYS_RT_SIGACTION, unix.SIGUSR1, l.Bytes(append([]byte{ignore}, make([]byte, 31)...)), 0, 8)
	l.Program()
}

func parentAndChild(l *List) {
	pid, status, n, made := l.Word(0), l.Word(0), l.Word(0), l.Word(0)
	child, loop, end := l.Label(), l.Label(), l.Label()
	l.Call(unix.SYS_CLONE, unix.SIGCHLD, 0, 0, 0, 0).Into(pid)
	l.If(Value(pid), ^uint64(0), 0, child)
	l.Call(unix.SYS_WAIT4, Value(pid), status, 0, 0)
	l.Make(made, Value(status), 8, 0xff, 0)
	l.At(loop) // one line each time
	l.Call(unix.SYS_WRITE, 1, "parent\n", 7)
	l.Make(n, Value(n), 0, ^uint64(0), 1)
	l.If(Value(n), ^uint64(0), 3, end)
	l.Goto(loop)
	l.At(end)
	l.Call(unix.SYS_EXIT_GROUP, Value(made))
	l.At(child)
	l.Call(unix.SYS_EXECVE, "/bin/sh", l.Strings([]string{"sh", "-c", `echo "child ${VARIABLE}"; exit 7`}), l.Environ())
}

// run executes what a list is in a process of this binary, and returns its output and status.
func run(t *testing.T, l *List) (string, int) {
	t.Helper()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: Args(3, "test"), ExtraFiles: []*os.File{f},
		Env: []string{"VARIABLE=of the environment"}}
	return outcome(cmd)
}

func outcome(cmd *exec.Cmd) (string, int) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); cmd.ProcessState == nil {
		return err.Error(), -1
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func TestAListOfSteps(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		list func(l *List)
		out  string
		code int
	}{
		{"the end of the list is status 125", func(*List) {}, "", 125},
		{"an argument is a number, an address or a word", func(l *List) {
			n := l.Word(2)
			l.Call(unix.SYS_WRITE, 1, "abc", Value(n))
			l.Call(unix.SYS_EXIT_GROUP, 3)
		}, "ab", 3},
		{"a result is the argument of another call", func(l *List) {
			fd := l.Word(99)
			l.Call(unix.SYS_OPENAT, unix.AT_FDCWD, dir+"/file", unix.O_CREAT|unix.O_WRONLY, 0o600).Into(fd)
			l.Call(unix.SYS_WRITE, Value(fd), "x", 1)
			l.Call(unix.SYS_EXIT_GROUP, Value(fd))
		}, "", 3},
		{"an error that is ignored leaves the word", func(l *List) {
			fd := l.Word(42)
			l.Call(unix.SYS_OPENAT, unix.AT_FDCWD, dir+"/absent", 0, 0).Into(fd).Ignore(unix.EACCES, unix.ENOENT)
			l.Call(unix.SYS_EXIT_GROUP, Value(fd))
		}, "", 42},
		{"an error leads to its label", func(l *List) {
			absent, other := l.Label(), l.Label()
			l.Call(unix.SYS_OPENAT, unix.AT_FDCWD, dir+"/absent", 0, 0).On(other, unix.EACCES).On(absent, unix.ENOENT)
			l.At(other)
			l.Call(unix.SYS_EXIT_GROUP, 1)
			l.At(absent)
			l.Call(unix.SYS_EXIT_GROUP, 2)
		}, "", 2},
		{"any error leads to a label", func(l *List) {
			any := l.Label()
			l.Call(unix.SYS_CLOSE, 77).On(any, AnyErrno)
			l.Call(unix.SYS_EXIT_GROUP, 1)
			l.At(any)
			l.Call(unix.SYS_EXIT_GROUP, 2)
		}, "", 2},
		{"an error of its own does not lead to that of any", func(l *List) {
			any := l.Label()
			l.Call(unix.SYS_CLOSE, 77).On(any, AnyErrno).Ignore(unix.EBADF)
			l.Call(unix.SYS_EXIT_GROUP, 1)
			l.At(any)
			l.Call(unix.SYS_EXIT_GROUP, 2)
		}, "", 1},
		{"what was not foreseen ends the list", func(l *List) {
			l.Call(unix.SYS_CLOSE, 77)
			l.Call(unix.SYS_EXIT_GROUP, 1)
		}, "", 125},
		{"a part of a word", func(l *List) {
			w := l.Word(0x1234)
			l.Make(w, Value(w), 8, 0xff, 1)
			l.Call(unix.SYS_EXIT_GROUP, Value(w))
		}, "", 0x13},
		{"a word that looks like an error is none", func(l *List) {
			w, not := l.Word(0), l.Label()
			l.Set(w, -1)
			l.If(Value(w), ^uint64(0), 0, not)
			l.Call(unix.SYS_EXIT_GROUP, 5)
			l.At(not)
		}, "", 5},
		{"environment and arguments of a program", func(l *List) {
			l.Call(unix.SYS_EXECVE, "/bin/sh", l.Strings([]string{"sh", "-c", `echo "$0, $VARIABLE"; exit 4`, "name"}),
				l.Environ())
		}, "name, of the environment\n", 4},
		{"a pointer in the data", func(l *List) {
			iov := l.Space(16)
			l.Pointer(iov, l.text("text"))
			l.data[iov+8] = 4
			l.Call(unix.SYS_WRITEV, 1, iov, 1)
			l.Call(unix.SYS_EXIT_GROUP, 0)
		}, "text", 0},
		{"the list's own descriptor is closed", func(l *List) {
			closed := l.Label()
			l.Call(unix.SYS_FCNTL, 3, unix.F_GETFD).On(closed, unix.EBADF)
			l.Call(unix.SYS_EXIT_GROUP, 1)
			l.At(closed)
			l.Call(unix.SYS_EXIT_GROUP, 0)
		}, "", 0},
		{"the process goes on as a program", onward, "main [\"test\"], dumpable 0\n", 0},
		{"signals do what they do after exec", func(l *List) {
			l.Call(unix.SYS_KILL, Value(pidOf(l)), unix.SIGTERM)
			l.Call(unix.SYS_EXIT_GROUP, 1)
		}, "", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := New()
			c.list(l)
			if out, code := run(t, l); out != c.out || code != c.code {
				t.Errorf("%q, status %d; want %q, %d", out, code, c.out, c.code)
			}
		})
	}
}

func pidOf(l *List) Ref {
	pid := l.Word(0)
	l.Call(unix.SYS_GETPID).Into(pid)
	return pid
}

// failing is a list in which steps 1, 2 and 3 fail, and which sends that to standard output.
func failing(l *List) {
	second, third, tell := l.Label(), l.Label(), l.Label()
	l.Call(unix.SYS_GETPID)
	l.OnError(second)
	l.Call(unix.SYS_CLOSE, 77)
	l.Call(unix.SYS_EXIT_GROUP, 1)
	l.At(second)
	l.OnError(third)
	l.Call(unix.SYS_OPENAT, unix.AT_FDCWD, "/absent", 0, 0)
	l.At(third)
	l.OnError(tell)
	l.Fail(unix.EXDEV)
	l.At(tell)
}

var theFailures = []Failure{{1, unix.EBADF}, {3, unix.ENOENT}, {4, unix.EXDEV}}

func TestFailures(t *testing.T) {
	l := New()
	failing(l)
	size := l.Word(0)
	l.Set(l.Failures(), 0x21736579)
	l.Make(size, Value(l.Failures()+8), 0, ^uint64(0), 16)
	l.Call(unix.SYS_WRITE, 1, l.Failures(), Value(size))
	out, _ := run(t, l)
	if !strings.HasPrefix(out, "yes!") || len(out) != 16+3*8 {
		t.Fatalf("%q", out)
	}
	if got := ParseFailures([]byte(out)[16:]); !slices.Equal(got, theFailures) {
		t.Errorf("%v, want %v", got, theFailures)
	}
	l = New()
	failing(l)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if got := l.Run(); !slices.Equal(got, theFailures) {
		t.Errorf("in a thread of this process: %v, want %v", got, theFailures)
	}
}

// A step that fails again and again is not written down more often than there is room.
func TestMoreFailuresThanSteps(t *testing.T) {
	l := New()
	n, again, end := l.Word(0), l.Label(), l.Label()
	l.OnError(again)
	l.At(again)
	l.Make(n, Value(n), 0, ^uint64(0), 1)
	l.If(Value(n), ^uint64(0), 100, end)
	l.Fail(unix.EXDEV)
	l.At(end)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if got := l.Run(); len(got) != 3 || got[2] != (Failure{2, unix.EXDEV}) {
		t.Errorf("%v", got)
	}
}

// link makes this test binary anew, with our entry point.
func link(t *testing.T, program, arch string) {
	t.Helper()
	build := exec.Command("go", "test", "-c", "-ldflags=-s -w -E="+Entry, "-o", program, ".")
	build.Env = append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0")
	if out, code := outcome(build); code != 0 {
		t.Fatal(out)
	}
}

// TestTheEntryPoint executes a list in a program whose entry point is this package's, for
// this machine and, by qemu-user, for the other one.
func TestTheEntryPoint(t *testing.T) {
	layertest.Host(t)
	for arch, emulator := range map[string]string{"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"} {
		t.Run(arch, func(t *testing.T) {
			var under []string
			if arch != runtime.GOARCH {
				path, err := exec.LookPath(emulator)
				if err != nil {
					t.Skipf("%s is not installed", emulator)
				}
				under = []string{path, "-0", role.Name}
			}
			dir := t.TempDir()
			program := filepath.Join(dir, "program")
			link(t, program, arch)
			start := func(args []string, list *os.File) *exec.Cmd {
				cmd := &exec.Cmd{Path: program, Args: args,
					Env: []string{"VARIABLE=of the environment", entryOnly + "=1"}}
				if under != nil {
					cmd.Path, cmd.Args = under[0], append(append(under, program), args[1:]...)
				}
				if list != nil {
					cmd.ExtraFiles = []*os.File{list}
				}
				return cmd
			}
			lists := map[string]*os.File{}
			for _, which := range []string{"make", "make program"} {
				made, code := outcome(start([]string{role.Name, which}, nil))
				if code != 0 {
					t.Fatal(made)
				}
				file := filepath.Join(dir, which)
				if err := os.WriteFile(file, []byte(made), 0o600); err != nil {
					t.Fatal(err)
				}
				f, err := os.Open(file)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				lists[which] = f
			}
			const arg = string(role.Steps)
			main := func(dumpable int, args ...string) string {
				return fmt.Sprintf("main %q, dumpable %d\n", args, dumpable)
			}
			for _, c := range []struct {
				list string
				args []string
				out  string
				code int
			}{
				{"make", Args(3, "test"), "child of the environment\nparent\nparent\nparent\n", 7},
				{"make", []string{role.Name, arg, "x", "test"}, main(1, arg, "x", "test"), 0},
				{"make", []string{role.Name, arg, "3"}, main(1, arg, "3"), 0},
				{"make", []string{role.Name, arg + "s", "3", "test"}, main(1, arg+"s", "3", "test"), 0},
				{"make", []string{role.Name, arg, "9", "test"}, "", 125},
				{"make program", Args(3, "test"), main(0, "test"), 0},
				{"make program", Args(3, "test", "and", "more"), main(0, "test", "and", "more"), 0},
			} {
				if out, code := outcome(start(c.args, lists[c.list])); out != c.out || code != c.code {
					t.Errorf("%q: %q, status %d; want %q, %d", c.args, out, code, c.out, c.code)
				}
			}
		})
	}
}

// TestAFileWithCapabilities: they are for what the program does, not for a list of whoever
// starts it.
func TestAFileWithCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file capabilities")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	link(t, program, runtime.GOARCH)
	for at := dir; at != "/"; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err == nil && info.Mode()&1 == 0 {
			if err := os.Chmod(at, info.Mode()|1); err != nil {
				t.Fatal(err)
			}
		}
	}
	start := func(env ...string) (string, int) {
		l := New() // exits with 9, or 10 if it may send raw packets
		l.Call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP).On(l.Label(), unix.EPERM)
		l.Call(unix.SYS_EXIT_GROUP, 10)
		l.At(1)
		l.Call(unix.SYS_EXIT_GROUP, 9)
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd := &exec.Cmd{Path: program, Args: Args(3, "test"), ExtraFiles: []*os.File{f}, Env: env}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 23456, Gid: 23456}}
		return outcome(cmd)
	}
	if out, code := start(entryOnly + "=1"); code != 9 {
		t.Fatalf("without capabilities the list was not executed: %q, status %d", out, code)
	}
	// struct vfs_cap_data of linux/capability.h: revision 2, effective, CAP_NET_RAW.
	capability := []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	if err := unix.Setxattr(program, "security.capability", capability, 0); err != nil {
		t.Skipf("the file system of %s has no capabilities: %v", dir, err)
	}
	if out, code := start(entryOnly + "=1"); !strings.HasPrefix(out, `main ["__steps" "3" "test"]`) || code != 0 {
		t.Errorf("the entry point executed a list with the file's capabilities: %q, status %d", out, code)
	}
	if out, code := start("A=b"); code != 9 {
		t.Errorf("Enter executed a list with the file's capabilities: %q, status %d", out, code)
	}
}
