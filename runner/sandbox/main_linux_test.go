package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/leaktest"
	_ "github.com/assay-run/assay-run/runner/sandbox/reexec"
	"github.com/assay-run/assay-run/runner/sandbox/startup"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// The test binary plays three parts: the runner of a sandbox, as the user that a case chooses, an attacker inside
// (attacks), and the tests themselves.
const (
	roleRunner = "__runner"
	roleAttack = "__attack"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case roleRunner:
			os.Exit(runnerMain(os.Args[2]))
		case roleAttack:
			os.Exit(attackMain(os.Args[2:]))
		}
	}
	os.Setenv("TMPDIR", "/var/tmp") // some cases have a /tmp of their own
	os.Exit(leaktest.Of(m).Run())
}

// job is a runner's task.
type job struct {
	Settings sandboxfile.Settings
	// SRT are settings in srt's notation, instead of Settings.
	SRT      string
	Evidence []string
	Protect  []string
	Reach    []string
	Dir      string
	Home     string
	Args     []string
	Env      []string
	Fail     string
	Probe    bool
	// NoUserns forbids user namespaces by a seccomp filter, as Docker's does.
	NoUserns bool
	// NoNamespaces forbids all of them.
	NoNamespaces bool
	// Forbidden are system calls that fail with EPERM, as somebody else's filter may have it.
	Forbidden []uint32
	// Fresh is the fresh directory of a strict command whose working directory is seen at movedTo.
	Fresh string
	// Cgroup is where it runs.
	Cgroup string
	// Layer keeps the layer of a private home.
	Layer string
	// Audit asks for Landlock's denials from the audit.
	Audit bool
	// Without names layers that are left out, to see a case fail.
	Without []string
	// Keep leaves a descriptor of / open across exec.
	Keep bool

	netns int // a network namespace to be in; 0 is ours
}

// movedTo is the path of the working directory for a job with Fresh.
const movedTo = "/tmp/moved"

// outcome is the result of a job.
type outcome struct {
	Layers   []Layer
	Ops      []string
	Err      string
	Layer    string // of the LayerError
	Errno    int    // of a command that could not be executed
	Code     int
	Signal   int
	Appeared []schema.StartupChange
	Home     *Home
	Blocked  []string
	Refused  []Refusal
	Lost     uint64
	Unsure   bool
	out      string
}

func (o *outcome) layer(name string) Layer {
	for _, l := range o.Layers {
		if l.Layer == name {
			return l
		}
	}
	return Layer{Layer: name}
}

// who is the user that runs a case.
type who struct {
	name     string
	uid      int // 0: root
	noUserns bool
}

var everybody = []who{{name: "root"}, {name: "user", uid: testUID},
	{name: "user without namespaces", uid: testUID, noUserns: true}}

// testUID is an ordinary user with no account.
const testUID = 23456

// can skips what only root can do: become another user.
func (w who) can(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 && w.uid != os.Geteuid() {
		t.Skip("only root can be others")
	}
}

// run runs a job as w, who owns everything in j.Dir.
func (w who) run(t *testing.T, j job) *outcome {
	t.Helper()
	w.can(t)
	j.NoUserns = w.noUserns
	spec, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	r, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	cmd := exec.Command(binary(t), roleRunner, string(spec))
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &out, []*os.File{pw}
	cmd.Env = append(os.Environ(), j.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if w.uid != os.Geteuid() {
		chown(t, j.Dir, w.uid)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)}
	}
	timer := time.AfterFunc(5*time.Minute, func() { cmd.Process.Kill() })
	defer timer.Stop()
	start := cmd.Start
	if j.netns != 0 {
		start = func() error {
			return onThread(func() error { return errors.Join(unix.Setns(j.netns, unix.CLONE_NEWNET), cmd.Start()) })
		}
	}
	runErr := start()
	if runErr == nil {
		runErr = cmd.Wait()
	}
	pw.Close()
	o := &outcome{out: out.String()}
	if err := json.NewDecoder(r).Decode(o); err != nil {
		t.Fatalf("the runner said nothing (%v, %v):\n%s", err, runErr, o.out)
	}
	o.out = out.String()
	return o
}

// chown gives a directory to a user.
func chown(t *testing.T, dir string, uid int) {
	t.Helper()
	who{uid: uid}.can(t)
	if uid == os.Geteuid() {
		return
	}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// binary is a copy of this program that everybody can execute.
func binary(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(scratch(t), "sandbox.test")
	if err := os.Link(self, path); err != nil {
		data, err := os.ReadFile(self)
		if err == nil {
			err = os.WriteFile(path, data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// scratch is a directory outside of /tmp, which sandboxes may write.
func scratch(t *testing.T) string {
	t.Helper()
	base := "/var/tmp"
	dir, err := os.MkdirTemp(base, "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func runnerMain(spec string) int {
	result := os.NewFile(3, "result")
	unix.CloseOnExec(3)
	var j job
	o := outcome{}
	err := json.Unmarshal([]byte(spec), &j)
	if err == nil {
		err = j.perform(&o)
	}
	if err != nil {
		o.Err = err.Error()
		var l *LayerError
		if errors.As(err, &l) {
			o.Layer = l.Layer
		}
		var p *os.PathError
		var errno syscall.Errno
		if errors.As(err, &p) && errors.As(err, &errno) {
			o.Errno = int(errno)
		}
	}
	if err := json.NewEncoder(result).Encode(&o); err != nil {
		return 1
	}
	return 0
}

func (j *job) perform(o *outcome) error {
	if j.Cgroup != "" {
		if err := os.WriteFile(j.Cgroup+"/cgroup.procs", []byte("0"), 0); err != nil {
			return err
		}
	}
	if j.NoUserns || j.NoNamespaces {
		flags := uint32(unix.CLONE_NEWUSER)
		if j.NoNamespaces {
			flags |= unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET
		}
		if err := forbidNamespaces(flags); err != nil {
			return err
		}
	}
	if len(j.Forbidden) > 0 {
		if err := forbid(j.Forbidden); err != nil {
			return err
		}
	}
	if j.SRT != "" {
		settings, err := sandboxfile.ParseSRT([]byte(j.SRT))
		if err != nil {
			return err
		}
		j.Settings = *settings
	}
	env := os.Environ()
	j.Settings.HomeLayer = j.Layer
	p, err := Resolve(&j.Settings, Context{Dir: j.Dir, Home: j.Home, Env: env, Evidence: j.Evidence, Protect: j.Protect,
		Reach: j.Reach})
	if err != nil {
		return err
	}
	if j.Fresh != "" {
		p = p.Strict(j.Fresh).Away(Away{At: movedTo, Carried: map[string]string{"/usr/share": j.Fresh}})
	}
	s, err := New(p, Options{Cgroup: j.Cgroup, Audit: j.Audit, Blocked: func(b Blocked) {
		o.Blocked = append(o.Blocked, b.Op+" "+cmp.Or(b.Socket, b.Addr.String()))
	}})
	if err != nil {
		return err
	}
	defer func() {
		s.Close()
		o.Home = p.Home
		o.Refused, o.Lost, o.Unsure = s.Refusals()
	}()
	s.fail, s.probe, s.without = j.Fail, j.Probe, j.Without
	if j.Keep {
		if _, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
			return err
		}
	}
	path, err := exec.LookPath(j.Args[0])
	if err != nil {
		return err
	}
	cmd := &exec.Cmd{Path: path, Args: j.Args, Env: append(s.Environ(env), fmt.Sprintf("RUNNER=%d", os.Getpid())),
		Dir: j.Dir, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	cmd, err = s.Start(cmd, (*exec.Cmd).Start, false)
	o.Layers, o.Ops = s.Layers(), s.ops
	if err != nil {
		if cmd != nil {
			_ = cmd.Wait()
		}
		return err
	}
	last := unix.WaitStatus(0x137f) // stopped: neither exited nor signaled
	own := s.States() == nil
	for !own && !last.Exited() && !last.Signaled() {
		st, ok := <-s.States()
		if !ok {
			return errors.New("the end of the command was not told")
		}
		last = st
	}
	err = cmd.Wait()
	if own {
		last = unix.WaitStatus(cmd.ProcessState.Sys().(syscall.WaitStatus))
	}
	o.Code, o.Signal = last.ExitStatus(), int(last.Signal())
	if before, where := p.Obeyed(); before != nil {
		o.Appeared = startup.Search(context.Background(), *where).Since(before)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return err
}

// forbidNamespaces makes every way to create such namespaces fail with EPERM, for this process and its children.
func forbidNamespaces(flags uint32) error {
	p := []bpf.Instruction{bpf.LoadAbsolute{Off: offNumber, Size: 4}}
	p = append(p, on(unix.SYS_CLONE, bitsSet(0, flags))...)
	p = append(p, on(unix.SYS_UNSHARE, bitsSet(0, flags))...)
	return loadFilter(append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1},
		deny(unix.ENOSYS), bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
}

// forbid makes system calls fail with EPERM, for this process and its children.
func forbid(calls []uint32) error {
	p := []bpf.Instruction{bpf.LoadAbsolute{Off: offNumber, Size: 4}}
	for _, n := range calls {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: n, SkipTrue: 1}, deny(unix.EPERM))
	}
	return loadFilter(append(p, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
}

// loadFilter puts a seccomp program on every thread.
func loadFilter(p []bpf.Instruction) error {
	raw, err := bpf.Assemble(p)
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		program[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

// shell is a job for a shell script in a new directory.
func shell(t *testing.T, script string) job {
	t.Helper()
	dir := filepath.Join(scratch(t), "work")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return job{Settings: sandboxfile.Settings{Mode: sandboxfile.WorkspaceWrite}, Dir: dir, Home: "/nonexistent",
		Args: []string{"/bin/bash", "-c", script}}
}
