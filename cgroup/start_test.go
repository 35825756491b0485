//go:build linux

package cgroup_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/cgroup"
)

// ways are the limits that make Start take each of its ways to a child.
func ways(t *testing.T) map[string]cgroup.Limits {
	w := map[string]cgroup.Limits{"without limits": {}}
	for _, c := range cgroup.Probe().Controllers() {
		if c.Name == "pids" && c.Available {
			w["with a pids limit"] = cgroup.Limits{Pids: 100}
		}
	}
	return w
}

func TestStartIsLikeExec(t *testing.T) {
	for name, limits := range ways(t) {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, limits)
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			see := func(start func(*exec.Cmd) error) (d description) {
				null, err := os.Open(os.DevNull)
				if err != nil {
					t.Fatal(err)
				}
				defer null.Close()
				cmd := &exec.Cmd{
					Path: "/proc/self/exe", Args: []string{"another name", "role=describe", "", "a b", "ü\xff"},
					Env: []string{"A=1", "EMPTY=", "=odd", "B=x\ny", cgroup.MarkerKey + "=" + s.RunID()}, Dir: dir,
					ExtraFiles: []*os.File{null, nil, null}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
				}
				var out strings.Builder
				cmd.Stdout, cmd.Stderr = &out, os.Stderr
				if err := start(cmd); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Wait(); err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal([]byte(out.String()), &d); err != nil {
					t.Fatalf("%v: %s", err, out.String())
				}
				return d
			}
			want := see((*exec.Cmd).Start)
			if diff := cmp.Diff(want, see(s.Agent().Start)); diff != "" {
				t.Errorf("exec.Cmd (-) and Group.Start (+) differ:\n%s", diff)
			}
		})
	}
}

func TestStartErrorsAreExecs(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, limits := range ways(t) {
		s := newSession(t, limits)
		for path, want := range map[string]error{
			filepath.Join(dir, "missing"):                       syscall.ENOENT,
			put("plain", "#!/bin/sh\n", 0o644):                  syscall.EACCES,
			put("garbage", "\x00\x01\x02", 0o755):               syscall.ENOEXEC,
			put("interpreter", "#!/no/such/interpreter", 0o755): syscall.ENOENT,
			dir: syscall.EACCES,
			filepath.Join(put("file", "", 0o644), "not-a-child"): syscall.ENOTDIR,
		} {
			cmd := exec.Command(path)
			err := s.Agent().Start(cmd)
			var pathErr *os.PathError
			if !errors.Is(err, want) || !errors.As(err, &pathErr) || pathErr.Path != path {
				t.Errorf("%s: starting %s: %v, want %v of that path", name, filepath.Base(path), err, want)
			}
			if cmd.Path != path {
				t.Errorf("%s: cmd.Path is now %s", name, cmd.Path)
			}
		}
		if err := s.Agent().Start(exec.Command("no-such-command-in-the-path")); !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("%s: starting an unknown command: %v", name, err)
		}
		drained(t, s.Agent())
	}
}

// TestStartLeavesTheProcessWhereItIs: on v1 a thread of ours joins the group to
// start a command, and whoever asks meanwhile where we are is not misled.
func TestStartLeavesTheProcessWhereItIs(t *testing.T) {
	where := func() string {
		b, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := where()
	rounds := 50
	if !layertest.IsHost() {
		rounds = 5
	}
	for range rounds {
		s := newSession(t, cgroup.Limits{})
		cmd := role(s, "exit", "0")
		started := make(chan error, 1)
		go func() { started <- s.Agent().Start(cmd) }()
		for waiting := true; waiting; {
			select {
			case err := <-started:
				if err != nil {
					t.Fatal(err)
				}
				waiting = false
			default:
			}
			if now := where(); now != before {
				t.Fatalf("we are in\n%s, not in\n%s", now, before)
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWithoutClone3 runs the suite where clone3 fails, as under Docker's
// seccomp profile, so that every start goes through the shim.
func TestWithoutClone3(t *testing.T) {
	layertest.Host(t)
	if os.Getenv("CGROUP_TEST_INNER") != "" {
		t.Skip("this is the inner run")
	}
	cmd := exec.Command("/proc/self/exe", "role=noclone3", "inner",
		"-test.run=^Test(Child|Daemon|Start|Signal|Exit|Pids|Memory|NoClone3)", "-test.v")
	cmd.Env = append(os.Environ(), "CGROUP_TEST_INNER=noclone3")
	innerSuite(t, cmd)
}

func TestNoClone3IsTold(t *testing.T) {
	if os.Getenv("CGROUP_TEST_INNER") != "noclone3" {
		t.Skip("clone3 is only missing in the inner run of TestWithoutClone3")
	}
	h := cgroup.Probe()
	if h.Mode() == cgroup.None || h.Mode() == cgroup.Legacy {
		return
	}
	for _, r := range h.Reasons() {
		if r.Code == "clone_into_cgroup_unavailable" {
			return
		}
	}
	t.Errorf("reasons are %v", h.Reasons())
}

// TestOrdinaryUser runs the suite as a user who may write no cgroup.
func TestOrdinaryUser(t *testing.T) {
	layertest.Host(t)
	if os.Getenv("CGROUP_TEST_INNER") != "" {
		t.Skip("this is the inner run")
	}
	if os.Geteuid() != 0 {
		t.Skip("the whole suite runs as an ordinary user already")
	}
	tmp, err := os.MkdirTemp("", "cgroup-user-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chown(tmp, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.v",
		inner("Host|Child|Daemon|Signal|Stopped|Frozen|Exit|Groups|TwoSessions|Nothing|Runaway|Runners|Guard|AStopped"))
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "CGROUP_TEST_INNER=user", "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	innerSuite(t, cmd)
}

// TestLegacy runs the suite where only v1 hierarchies are to be seen.
func TestLegacy(t *testing.T) {
	layertest.Host(t)
	if os.Getenv("CGROUP_TEST_INNER") != "" {
		t.Skip("this is the inner run")
	}
	if os.Geteuid() != 0 || cgroup.Probe().Mode() != cgroup.Hybrid {
		t.Skip("it takes root and v1 hierarchies")
	}
	cmd := exec.Command("/proc/self/exe", "role=legacy", "inner", "-test.short", "-test.v", "-test.timeout=30s",
		inner("Host|Child|Daemon|Pids|Fork|Memory|CPU|RemoveTakes|Sweep|Nothing|Frozen|Engines|StartLeaves"))
	cmd.Env = append(os.Environ(), "CGROUP_TEST_INNER=legacy", "CGROUP_TEST_WANT=legacy memory pids cpu io")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	innerSuite(t, cmd)
}

const nobody = 65534

// inner is the -test.run of an inner suite: the tests of which its environment changes what they assert, or in a
// night all.
func inner(changed string) string {
	if layertest.IsNight() {
		return "-test.run=^Test"
	}
	return "-test.run=^Test(" + changed + ")"
}

// innerSuite runs this test binary in another way.
func innerSuite(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.WaitDelay = time.Second // what it leaves behind is a failure, not a wait
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestChildStartsInsideItsGroup") {
		t.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "--- ") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
