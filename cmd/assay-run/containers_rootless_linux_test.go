package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/schema"
)

// forUsers copies this program to where every user can execute it.
func forUsers(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(dir, "assay-run")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// The Podman of an ordinary user, in a run that root records: the user may make no cgroup
// there, so the container stays in the run's own, is recorded in full, and ends with it.
func TestRootlessContainersOfARootRun(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	e, dir := enginetest.Rootless(t), t.TempDir()
	mark := uniqueID()
	cmd := withEngine(t, e, dir, `
cd
$E run --rm --network=none $IMAGE sh -c 'grep ^0:: /proc/self/cgroup; touch /tmp/made-inside; exit 3' || echo exit $?
$E run --detach --network=none --env MARK=`+mark+` $IMAGE sh -c 'exec tail -f /dev/null' > /dev/null
`, "--user", e.User, "--containers", "--kernel", "require", "--require", "complete")
	cmd.Path = forUsers(t)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "0::/assay-run/") || !strings.HasSuffix(lines[0], "/agent") ||
		lines[1] != "exit 3" {
		t.Errorf("printed:\n%s", out)
	}
	inside := false
	kernelEvents(t, opened(t, dir), func(ev *schema.KernelEvent) {
		inside = inside || ev.Value == "/tmp/made-inside" && ev.Marks&schema.MarkMountNamespace != 0
	})
	if !inside {
		t.Error("what the container did is not recorded, or is told to be the host's")
	}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		if env, _ := os.ReadFile(f); strings.Contains(string(env), mark) {
			t.Errorf("%s is of the container, and outlived the run", f)
		}
	}
}

// A Podman that asks systemd for cgroups, as it does by default, takes only slices. In a run
// that is no slice, --containers has it make the cgroups itself.
func TestPodmanThatAsksSystemdForCgroups(t *testing.T) {
	e, dir := enginetest.Podman(t), t.TempDir()
	conf := valueIn(e.Env, "CONTAINERS_CONF")
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(conf, []byte(strings.Replace(string(text), `"cgroupfs"`, `"systemd"`, 1)),
		0o600); err != nil {
		t.Fatal(err)
	}
	cmd := withEngine(t, e, dir, `
echo $ASSAY_RUN_CGROUP_PARENT
$E run --rm --network=none $IMAGE grep ^0:: /proc/self/cgroup
`, "--containers", "--kernel", "off")
	var said strings.Builder
	cmd.Stderr = &said // Podman 5 warns of cgroups v1
	out, err := cmd.Output()
	parent, in, _ := strings.Cut(string(out), "\n")
	if err != nil || !strings.HasPrefix(in, "0::"+parent+"/libpod-") {
		t.Errorf("%v\n%s%s", err, out, said.String())
	}
	nothingLeft(t, parent)
}

// valueIn is the value of a variable in an environment.
func valueIn(env []string, key string) string {
	for _, kv := range env {
		if value, ok := strings.CutPrefix(kv, key+"="); ok {
			return value
		}
	}
	return ""
}

// The user of a rootless Podman without root: where no cgroup can be made, --containers says what to do. In
// a delegated cgroup, the container gets into the run, and only eBPF is missing.
func TestRootlessContainersOfAUsersRun(t *testing.T) {
	e, program := enginetest.Rootless(t), forUsers(t)
	run := func(script string, delegated bool) (string, error) {
		cmd := e.Execute(program, "--containers", "--force", "-o", "run.tar.gz", "--", "sh", "-ec", script)
		cmd.Env = append(cmd.Env, "IMAGE="+enginetest.Image, "XDG_STATE_HOME=")
		own := *cmd.SysProcAttr
		own.UseCgroupFD = delegated
		cmd.SysProcAttr = &own
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("true", false); err == nil ||
		!strings.Contains(out, `the run has no cgroup of its own; run it as root: sudo assay-run --user "$USER"`) {
		t.Errorf("without a cgroup: %v\n%s", err, out)
	}
	hideHierarchy(t) // which would keep the run from removing its cgroups
	out, err := run("echo $ASSAY_RUN_CGROUP_PARENT; podman run --rm --network=none $IMAGE grep ^0:: /proc/self/cgroup",
		true)
	parent, _, _ := strings.Cut(out[strings.Index(out, "/"):], "\n")
	if err != nil || !strings.Contains(out, "0::"+parent+"/libpod-") {
		t.Errorf("in a delegated cgroup: %v\n%s", err, out)
	}
	nothingLeft(t, parent)
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// hideHierarchy mounts a cgroup hierarchy where only root may look.
func hideHierarchy(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hidden")
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "hierarchy")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", at, "cgroup", 0, "none,name="+filepath.Base(dir)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at, 0); err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
}

// Root attaches to the containers of a user's Podman as to its own.
func TestAttachToARootlessContainer(t *testing.T) {
	e := enginetest.Rootless(t)
	e.Serve()
	e.Run("run", "--detach", "--network=none", "--cgroup-parent="+e.Delegated, "--name=runs", enginetest.Image, "tail",
		"-f", "/dev/null")
	t.Run("before its start", func(t *testing.T) {
		id := e.Run("create", "--network=none", "--cgroup-parent="+e.Delegated, "--name=early", enginetest.Image, "sh",
			"-c", "cat /etc/group; exec touch /tmp/made")
		bundle := filepath.Join(t.TempDir(), "b.tar.gz")
		a := attachTo(t, e, "attached to", "--container", "early", "--require", "complete", "-o", bundle)
		e.Run("start", "--attach", "early")
		a.ends(0)
		b := attachedBundle(t, bundle)
		if b.health.KernelLayer != schema.Complete || !b.opened("/etc/group") || !b.opened("/tmp/made") {
			t.Errorf("the layer is %s: %+v\n%s", b.health.KernelLayer, b.health.Reasons, b)
		}
		for i := range b.events {
			if ev := &b.events[i]; ev.ContainerID != id && ev.Kind != schema.KindFlow {
				t.Errorf("it is not told to be of the container: %s", schema.AppendJSON(nil, ev))
				break
			}
		}
		if got := b.result.Labels; got["container_id"] != id || got["container_name"] != "early" ||
			got["container_engine"] != "podman" {
			t.Errorf("the labels are %v", got)
		}
	})
	t.Run("in its middle", func(t *testing.T) {
		e.Run("run", "--detach", "--network=none", "--cgroup-parent="+e.Delegated, "--name=late", enginetest.Image,
			"sh", "-c", "until [ -e /tmp/go ]; do sleep 0.05; done; touch /tmp/done; exec tail -f /dev/null")
		bundle := filepath.Join(t.TempDir(), "b.tar.gz")
		a := attachTo(t, e, "attached to", "--container", "late", "-o", bundle)
		e.Run("exec", "late", "sh", "-c", "touch /tmp/go; until [ -e /tmp/done ]; do :; done")
		a.cmd.Process.Signal(syscall.SIGINT)
		a.ends(0)
		if b := attachedBundle(t, bundle); !b.has("attached_late") || !b.opened("/tmp/done") {
			t.Errorf("the layer is %s: %+v\n%s", b.health.KernelLayer, b.health.Reasons, b)
		}
		if got := e.Run("inspect", "--format={{.State.Running}}", "late"); got != "true" {
			t.Error("the container did not outlive attach")
		}
	})
	t.Run("that has no cgroup", func(t *testing.T) {
		e.Run("create", "--network=none", "--name=shared", enginetest.Image, "tail", "-f", "/dev/null")
		for _, state := range []string{"created", "started"} {
			a := attachTo(t, e, "its engine gives it no cgroup of its own", "--container", "shared")
			a.ends(125)
			if !strings.Contains(a.said(), "as root, assay-run --user USER --containers -- podman run") {
				t.Errorf("%s: no remedy:\n%s", state, a.said())
			}
			e.Run("start", "shared")
		}
	})
	t.Run("of the user who called sudo", func(t *testing.T) {
		uid := fmt.Sprint(e.Execute("true").SysProcAttr.Credential.Uid)
		cmd := self(t, t.TempDir(), "attach", "--engine", "podman", "--container", "runs", "--", "true")
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR=", "SUDO_UID=")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "set CONTAINER_HOST=unix://"+e.Socket) {
			t.Errorf("root is not told of the user's Podman: %v\n%s", err, out)
		}
		cmd = self(t, t.TempDir(), "attach", "--engine", "podman", "--container", "runs", "--", "true")
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR=", "SUDO_UID="+uid)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "attached to") {
			t.Errorf("the user's Podman is not found: %v\n%s", err, out)
		}
	})
	t.Run("by the user", func(t *testing.T) {
		cmd := e.Execute(forUsers(t), "attach", "--container", "runs")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "hint: run it as root: sudo assay-run attach ...") {
			t.Errorf("no remedy: %v\n%s", err, out)
		}
	})
}
