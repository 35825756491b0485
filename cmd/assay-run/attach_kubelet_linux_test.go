package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

// kubelet makes the cgroups of pods, below a directory of its own, with the names of a
// kubelet's cgroup drivers.
type kubelet struct {
	t    *testing.T
	root string
}

func newKubelet(t *testing.T) *kubelet {
	if os.Geteuid() != 0 || !observes() {
		t.Skip("this host cannot record a kernel layer, or the test is not root")
	}
	k := &kubelet{t, filepath.Join(cgroup2(), "kubelet-"+uniqueID())}
	for _, dir := range []string{"kubepods/besteffort",
		"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice"} {
		if err := os.MkdirAll(filepath.Join(k.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if !leaktest.Within(time.Minute, func() bool {
			_ = exec.Command("find", k.root, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
			_, err := os.Stat(k.root)
			return err != nil
		}) {
			t.Errorf("%s cannot be removed", k.root)
		}
	})
	return k
}

func (k *kubelet) dir(uid string, systemd bool) string {
	if systemd {
		return filepath.Join(k.root, "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice",
			"kubelet-kubepods-burstable-pod"+strings.ReplaceAll(uid, "-", "_")+".slice")
	}
	return filepath.Join(k.root, "kubepods/besteffort/pod"+uid)
}

func (k *kubelet) make(dir string) {
	k.t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		k.t.Fatal(err)
	}
}

// start starts a process in a pod that reads a file, and lives on until stdin ends.
func (k *kubelet) start(dir, file string) (end func()) {
	k.t.Helper()
	cmd := exec.Command("sh", "-c", `echo $$ >"$1/cgroup.procs" && cat "$2" && echo ready && exec cat`, "sh", dir, file)
	in, err := cmd.StdinPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	buf := make([]byte, 64)
	if n, err := out.Read(buf); string(buf[:n]) != "ready\n" {
		k.t.Fatalf("the process says %q: %v", buf[:n], err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			in.Close()
			cmd.Wait()
		}
	}
	k.t.Cleanup(end)
	return end
}
