//go:build linux

package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/cgroup"
)

// inCgroup2 starts an inner suite in a cgroup2 directory of its own.
func inCgroup2(t *testing.T, cmd *exec.Cmd) (dir string) {
	t.Helper()
	if os.Getenv("CGROUP_TEST_INNER") != "" {
		t.Skip("this is the inner run")
	}
	mode := cgroup.Probe().Mode()
	if os.Geteuid() != 0 || mode != cgroup.Hybrid && mode != cgroup.Unified {
		t.Skip("it takes root and cgroup2")
	}
	dir = newSession(t, cgroup.Limits{}).Agent().Path()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(d.Fd())}
	return dir
}

// TestContainer runs the suite as in a container with namespaces of its own: its
// cgroup looks like the root of cgroup2, which is writable there or, as Docker
// mounts it without --privileged, is not.
func TestContainer(t *testing.T) {
	layertest.Host(t)
	for _, c := range []struct{ mount, want, changed string }{
		{"rw", "unified", "Host|Child|Daemon|Nothing|Sweep|RemoveTakes|Nested"},
		{"ro", "none", "Host|Child|Daemon|Nothing"},
	} {
		t.Run(c.mount, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe", "role=container", c.mount, "inner", "-test.short", "-test.v",
				"-test.timeout=60s", inner(c.changed))
			cmd.Env = append(os.Environ(), "CGROUP_TEST_INNER=container", "CGROUP_TEST_WANT="+c.want)
			dir := inCgroup2(t, cmd)
			cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWCGROUP
			innerSuite(t, cmd)
			nothingInside(t, dir)
		})
	}
}

// TestDelegatedSubtree runs the suite as an ordinary user who owns a cgroup, as
// systemd's Delegate=yes gives one.
func TestDelegatedSubtree(t *testing.T) {
	layertest.Host(t)
	cmd := exec.Command("/proc/self/exe", "role=nobody", "/proc/self/exe", "-test.short", "-test.v",
		"-test.timeout=60s", inner("Host|Child|Daemon|Nothing|Sweep|RemoveTakes|Nested"))
	tmp, err := os.MkdirTemp("", "cgroup-delegated-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	cmd.Env = append(os.Environ(), "CGROUP_TEST_INNER=delegated", "CGROUP_TEST_WANT="+string(cgroup.Probe().Mode()),
		"TMPDIR="+tmp)
	cmd.Dir = "/"
	dir := inCgroup2(t, cmd)
	for _, name := range []string{tmp, dir, filepath.Join(dir, "cgroup.procs"),
		filepath.Join(dir, "cgroup.subtree_control"), filepath.Join(dir, "cgroup.threads")} {
		if err := os.Chown(name, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	innerSuite(t, cmd)
	nothingInside(t, dir)
}

// nothingInside looks for cgroups below dir. A runner that the suite killed in the
// microseconds of its probe leaves an empty directory of sessions, which the next run's
// Sweep removes: see TestProbeAndSweepTakeAnEmptyParent.
func nothingInside(t *testing.T, dir string) {
	t.Helper()
	left, _ := filepath.Glob(filepath.Join(dir, "*/"))
	for _, l := range left {
		st, err := os.Stat(l)
		if err == nil && st.IsDir() && (filepath.Base(l) != "assay-run" || os.Remove(l) != nil) {
			t.Errorf("left behind: %s", l)
		}
	}
}

// asContainer mounts what a container sees, in namespaces of its own, and
// becomes a shell that runs this test binary again: its process 1 has to reap
// what becomes an orphan.
func asContainer(args []string) int {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if args[0] == "ro" {
		flags |= unix.MS_RDONLY
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("proc", "/proc", "proc", 0, "")
	}
	for err == nil && under("/sys/fs/cgroup") {
		err = unix.Unmount("/sys/fs/cgroup", unix.MNT_DETACH)
	}
	if err == nil {
		err = unix.Mount("cgroup", "/sys/fs/cgroup", "cgroup2", flags, "")
	}
	exe, eerr := os.Executable()
	if err = errors.Join(err, eerr); err == nil {
		err = syscall.Exec("/bin/sh", append([]string{"sh", "-c", `"$0" "$@"; exit $?`, exe}, args[2:]...),
			os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// under reports whether something is mounted at a directory.
func under(dir string) bool {
	mounts, err := os.ReadFile("/proc/self/mounts")
	return err == nil && strings.Contains(string(mounts), " "+dir+" ")
}
