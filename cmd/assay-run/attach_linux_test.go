package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// attached is an attach under way.
type attached struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr string // a file
	state  string
}

// attachTo starts attach with an engine's socket, and returns once it says so.
func attachTo(t *testing.T, e *enginetest.Engine, until string, args ...string) *attached {
	t.Helper()
	if !observes() {
		t.Skip("this host cannot record a kernel layer")
	}
	dir := t.TempDir()
	a := &attached{t: t, stderr: filepath.Join(dir, "stderr"), state: filepath.Join(dir, "state")}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a.cmd = exec.Command(exe, append([]string{"attach"}, args...)...)
	a.cmd.Args[0] = "assay-run"
	a.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+a.state, "DOCKER_HOST=unix:///none",
		"CONTAINER_HOST=unix:///none", socketOf(e))
	f, err := os.Create(a.stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a.cmd.Stderr = f
	if a.cmd.Stdout, err = os.Create(filepath.Join(dir, "stdout")); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.cmd.Process.Kill(); a.cmd.Wait() })
	a.says(until)
	return a
}

func socketOf(e *enginetest.Engine) string {
	if e.Program == "podman" {
		return "CONTAINER_HOST=unix://" + e.Socket
	}
	return "DOCKER_HOST=unix://" + e.Socket
}

// says waits until attach has said something.
func (a *attached) says(what string) {
	a.t.Helper()
	if !leaktest.Within(time.Minute, func() bool { return strings.Contains(a.said(), what) }) {
		a.t.Fatalf("attach does not say %q:\n%s", what, a.said())
	}
}

func (a *attached) said() string {
	text, _ := os.ReadFile(a.stderr)
	return string(text)
}

// ends waits for its end and checks the exit code.
func (a *attached) ends(code int) {
	a.t.Helper()
	_ = a.cmd.Wait()
	if got := a.cmd.ProcessState.ExitCode(); got != code {
		a.t.Fatalf("attach exited with %d, want %d:\n%s", got, code, a.said())
	}
}

// attachedTo is what a bundle says.
type attachedTo struct {
	result schema.Result
	health schema.ObservationHealth
	events []schema.KernelEvent
	life   []string // lines of the lifecycle layer
}

func attachedBundle(t *testing.T, path string) (b attachedTo) {
	t.Helper()
	report, err := archive.Verify(t.Context(), path)
	if err != nil || !report.OK() {
		t.Fatalf("verify %s: %v %+v", path, err, report)
	}
	r, err := archive.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := r.Documents(t.Context(), schema.SurfacePath)
	if err != nil {
		t.Fatal(err)
	}
	b.result, b.health = docs.Result, docs.Health
	for line, err := range r.Lines(t.Context(), schema.EventsPath) {
		if err != nil {
			t.Fatal(err)
		}
		b.life = append(b.life, string(line))
	}
	kernelEvents(t, r, func(e *schema.KernelEvent) {
		own := *e
		own.Argv = slices.Clone(e.Argv)
		b.events = append(b.events, own)
	})
	return b
}

func (b attachedTo) has(code string) bool {
	return slices.ContainsFunc(b.health.Reasons, func(r schema.Reason) bool { return r.Code == code })
}

func (b attachedTo) opened(path string) bool {
	return slices.ContainsFunc(b.events, func(e schema.KernelEvent) bool {
		return e.Kind == schema.KindOpen && e.Value == path
	})
}

func (b attachedTo) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s\n", strings.Join(b.life, "\n"))
	for i := range b.events {
		if k := b.events[i].Kind; k != schema.KindOpen && k != schema.KindJoin && k != schema.KindExec {
			continue
		}
		fmt.Fprintf(&s, "%s\n", schema.AppendJSON(nil, &b.events[i]))
	}
	return s.String()
}

// engines runs a test with Docker and with Podman.
func engines(t *testing.T, test func(*testing.T, *enginetest.Engine)) {
	t.Run("docker", func(t *testing.T) { test(t, enginetest.Docker(t)) })
	t.Run("podman", func(t *testing.T) {
		e := enginetest.Podman(t)
		e.Serve()
		test(t, e)
	})
}

// Attached to before it starts, a container is recorded from its first instruction to
// its last, and the layer is complete.
func TestAttachBeforeStart(t *testing.T) {
	engines(t, func(t *testing.T, e *enginetest.Engine) {
		id := e.Run("create", "--network=none", "--name=early", enginetest.Image, "sh", "-c",
			"cat /etc/group; exec touch /tmp/made")
		bundle := filepath.Join(t.TempDir(), "b.tar.gz")
		a := attachTo(t, e, "attached to", "--container", "early", "-o", bundle)
		e.Run("start", "early")
		a.ends(0)
		b := attachedBundle(t, bundle)
		if b.health.KernelLayer != schema.Complete {
			t.Errorf("the layer is %s: %+v", b.health.KernelLayer, b.health.Reasons)
		}
		for _, path := range []string{"/etc/group", "/tmp/made"} {
			if !b.opened(path) {
				t.Errorf("no event of %s:\n%s", path, b)
			}
		}
		for i := range b.events {
			if ev := &b.events[i]; ev.ContainerID != id && ev.Kind != schema.KindFlow {
				t.Errorf("it is not told to be of the container: %s", schema.AppendJSON(nil, ev))
				break
			} else if ev.Value == "/tmp/made" &&
				(ev.Marks&schema.MarkMountNamespace == 0 || ev.Class != schema.ClassAgent) {
				t.Errorf("it is told to be of the host, or of the runtime: %s", schema.AppendJSON(nil, ev))
			}
		}
		if b.health.LeftOut["setup"] == 0 {
			t.Errorf("nothing is told to be the runtime's: %v", b.health.LeftOut)
		}
		if got := b.result.Labels; got["container_id"] != id || got["container_name"] != "early" ||
			got["container_engine"] != e.Program {
			t.Errorf("the labels are %v", got)
		}
	})
}

// Attached to in its middle, a container is recorded from there on, with what was
// running, and lives on when attach detaches.
func TestAttachInTheMiddle(t *testing.T) {
	engines(t, func(t *testing.T, e *enginetest.Engine) {
		e.Run("run", "--detach", "--network=none", "--name=late", enginetest.Image, "sh", "-c",
			"touch /tmp/ready; until [ -e /tmp/go ]; do sleep 0.05; done; touch /tmp/done; sleep 1000")
		e.Run("exec", "late", "sh", "-c", "until [ -e /tmp/ready ]; do :; done")
		bundle := filepath.Join(t.TempDir(), "b.tar.gz")
		a := attachTo(t, e, "attached to", "--container", "late", "-o", bundle)
		e.Run("exec", "late", "touch", "/tmp/go")
		e.Run("exec", "late", "sh", "-c", "until [ -e /tmp/done ]; do :; done")
		a.cmd.Process.Signal(syscall.SIGINT)
		a.ends(0)
		b := attachedBundle(t, bundle)
		if b.health.KernelLayer == schema.Complete || !b.has("attached_late") || !b.has("detached_early") {
			t.Errorf("the layer is %s: %+v", b.health.KernelLayer, b.health.Reasons)
		}
		if !b.opened("/tmp/done") || b.opened("/tmp/ready") {
			t.Errorf("not what happened since attaching:\n%s", b)
		}
		known := false
		for _, ev := range b.events {
			known = known || ev.Kind == schema.KindJoin && len(ev.Argv) > 2 &&
				strings.Contains(ev.Argv[2], "/tmp/ready") && ev.Exe == "/bin/busybox"
		}
		if !known {
			t.Errorf("the shell that was there is not known:\n%s", b)
		}
		if got := e.Run("inspect", "--format={{.State.Running}}", "late"); got != "true" {
			t.Error("the container did not outlive attach")
		}
	})
}

// A watcher seals one bundle for each container with the label, and none for others.
func TestAttachWatch(t *testing.T) {
	engines(t, func(t *testing.T, e *enginetest.Engine) {
		n := 20
		if e.Program == "podman" {
			n = 4 // it takes long to start one
		}
		dir := t.TempDir()
		a := attachTo(t, e, "watching "+e.Program, "--watch", "--label", "eval=7", "--dir", dir)
		var group sync.WaitGroup
		joined := make(chan struct{})
		for i := range n {
			group.Go(func() {
				args := []string{"run", "--network=none", "--name=c" + strconv.Itoa(i),
					"--label=eval=" + strconv.Itoa(6+i%2)}
				// One that ends before the watcher has joined it would not be recorded.
				run := append(slices.Clone(args), "--interactive", enginetest.Image, "sh", "-c",
					"touch /tmp/made"+strconv.Itoa(i)+"; cat")
				if i < 2 { // that outlive the watcher
					run = append(append(args, "--detach"), enginetest.Image, "sh", "-c",
						"touch /tmp/made"+strconv.Itoa(i)+"; sleep 1000")
				}
				c := e.Command(run...)
				in, err := c.StdinPipe()
				if err != nil {
					t.Error(err)
					return
				}
				group.Go(func() {
					<-joined
					in.Close()
				})
				if out, err := c.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
		if !leaktest.Within(2*time.Minute, func() bool { return a.recordings() == n/2 }) {
			t.Errorf("%d recordings are under way\n%s", a.recordings(), a.said())
		}
		close(joined)
		group.Wait()
		e.Run("exec", "c1", "sh", "-c", "until [ -e /tmp/made1 ]; do :; done")
		// All that have ended are sealed while the watcher goes on.
		if !leaktest.Within(time.Minute, func() bool { return len(bundlesIn(dir)) == n/2-1 }) {
			t.Errorf("%d bundles are sealed: %q\n%s", len(bundlesIn(dir)), bundlesIn(dir), a.said())
		}
		a.cmd.Process.Signal(syscall.SIGINT)
		a.ends(0)
		complete := 0
		bundles := bundlesIn(dir)
		for _, path := range bundles {
			b := attachedBundle(t, path)
			name := b.result.Labels["container_name"]
			i, err := strconv.Atoi(strings.TrimPrefix(name, "c"))
			if err != nil || i%2 != 1 {
				t.Errorf("%s was recorded", name)
			}
			if !strings.HasPrefix(filepath.Base(path), name+"-"+b.result.Labels["container_id"][:12]) {
				t.Errorf("%s is of container %s", path, name)
			}
			if b.health.KernelLayer == schema.Complete {
				complete++
			} else if !b.has("attached_late") && !b.has("detached_early") {
				t.Errorf("the layer of %s is %s: %+v", name, b.health.KernelLayer, b.health.Reasons)
			}
			if made := "/tmp/made" + strconv.Itoa(i); !b.opened(made) && !b.has("attached_late") {
				t.Errorf("no event of %s: %s %+v %s\n%s", made, b.health.KernelLayer, b.health.Reasons, a.said(), b)
			}
		}
		t.Logf("%d of %d layers are complete", complete, len(bundles))
		if len(bundles) != n/2 {
			t.Errorf("%d bundles, want %d: %q\n%s", len(bundles), n/2, bundles, a.said())
		}
		if got := e.Run("inspect", "--format={{.State.Running}}", "c1"); got != "true" {
			t.Error("the container did not outlive the watcher")
		}
	})
}

// A watcher misses nothing of a container that it joined before the start. It selects by a
// label with any value.
func TestAttachWatchBeforeStart(t *testing.T) {
	engines(t, func(t *testing.T, e *enginetest.Engine) {
		dir := t.TempDir()
		a := attachTo(t, e, "watching "+e.Program, "--watch", "--label", "eval", "--dir", dir)
		e.Run("create", "--network=none", "--name=other", "--label=other=eval", enginetest.Image, "true")
		e.Run("create", "--network=none", "--name=early", "--label=eval=1", enginetest.Image, "touch", "/tmp/made")
		if !leaktest.Within(time.Minute, a.joined) {
			t.Fatalf("the watcher does not join what was created:\n%s", a.said())
		}
		e.Run("start", "other")
		e.Run("start", "early")
		if !leaktest.Within(time.Minute, func() bool { return len(bundlesIn(dir)) == 1 }) {
			t.Fatalf("the bundles are %q\n%s", bundlesIn(dir), a.said())
		}
		a.cmd.Process.Signal(syscall.SIGINT)
		a.ends(0)
		if bundles := bundlesIn(dir); len(bundles) != 1 || !strings.HasPrefix(filepath.Base(bundles[0]), "early-") {
			t.Fatalf("the bundles are %q", bundles)
		}
		if b := attachedBundle(t, bundlesIn(dir)[0]); b.health.KernelLayer != schema.Complete ||
			!b.opened("/tmp/made") {
			t.Errorf("the layer is %s: %+v\n%s", b.health.KernelLayer, b.health.Reasons, b)
		}
	})
}

// joined reports whether a recording is under way.
func (a *attached) joined() bool { return a.recordings() > 0 }

// recordings counts those that are under way.
func (a *attached) recordings() (n int) {
	list, _ := filepath.Glob(filepath.Join(a.state, "assay-run/spool/*/events.ndjson"))
	for _, f := range list {
		if text, _ := os.ReadFile(f); strings.Contains(string(text), `"type":"attached"`) {
			n++
		}
	}
	return n
}

// A container that has come and gone before the watcher gets to it is not called
// completely recorded.
func TestAttachWatchTooLate(t *testing.T) {
	e := enginetest.Docker(t)
	dir := t.TempDir()
	a := attachTo(t, e, "watching docker", "--watch", "--label", "eval", "--dir", dir)
	a.cmd.Process.Signal(syscall.SIGSTOP)
	e.Run("run", "--network=none", "--name=fast", "--label=eval=1", enginetest.Image, "touch", "/tmp/made")
	a.cmd.Process.Signal(syscall.SIGCONT)
	if !leaktest.Within(time.Minute, func() bool { return len(bundlesIn(dir)) == 1 }) {
		t.Fatalf("the bundles are %q\n%s", bundlesIn(dir), a.said())
	}
	b := attachedBundle(t, bundlesIn(dir)[0])
	if b.health.KernelState != schema.Partial || !b.has("attached_late") || b.opened("/tmp/made") {
		t.Errorf("the layer is %s: %+v\n%s", b.health.KernelState, b.health.Reasons, b)
	}
	a.cmd.Process.Signal(syscall.SIGINT)
	a.ends(0)
}

// A container that has started when the watch ends is recorded, however late.
func TestAttachWatchEndsAtAStart(t *testing.T) {
	e := enginetest.Docker(t)
	dir := t.TempDir()
	a := attachTo(t, e, "watching docker", "--watch", "--label", "eval", "--dir", dir)
	a.cmd.Process.Signal(syscall.SIGSTOP)
	e.Run("run", "--detach", "--network=none", "--name=last", "--label=eval=1", enginetest.Image, "sleep", "1000")
	a.cmd.Process.Signal(syscall.SIGINT)
	a.cmd.Process.Signal(syscall.SIGCONT)
	a.ends(0)
	bundles := bundlesIn(dir)
	if len(bundles) != 1 {
		t.Fatalf("the bundles are %q\n%s", bundles, a.said())
	}
	if b := attachedBundle(t, bundles[0]); !b.has("attached_late") || b.result.Labels["container_name"] != "last" {
		t.Errorf("the layer is %s: %+v\n%s", b.health.KernelState, b.health.Reasons, b)
	}
}

// Killed, attach leaves the container alone, frees the observer and the directory that
// it made, and what it had recorded is sealed by recover.
func TestAttachIsKilled(t *testing.T) {
	e := enginetest.Docker(t)
	e.Run("create", "--network=none", "--name=waiting", enginetest.Image, "true")
	id := e.Run("run", "--detach", "--network=none", "--name=lives", enginetest.Image, "sh", "-c",
		"until [ -e /tmp/go ]; do sleep 0.05; done; touch /tmp/done; sleep 1000")
	waiting := attachTo(t, e, "attached to", "--container", "waiting", "-o", filepath.Join(t.TempDir(), "b.tar.gz"))
	bundle := filepath.Join(t.TempDir(), "b.tar.gz")
	a := attachTo(t, e, "attached to", "--container", "lives", "-o", bundle)
	e.Run("exec", "lives", "sh", "-c", "touch /tmp/go; until [ -e /tmp/done ]; do :; done")
	spooled := func() bool {
		layers, _ := filepath.Glob(filepath.Join(a.state, "assay-run/spool/*/layers/kernel.ndjson"))
		if len(layers) != 1 {
			return false
		}
		lines, _ := os.ReadFile(layers[0])
		return strings.Contains(string(lines), `"/tmp/done"`)
	}
	if !leaktest.Within(time.Minute, spooled) {
		t.Fatal("what was recorded does not reach the spool")
	}
	dir := strings.Fields(strings.Split(waiting.said(), "attached to ")[1])[0]
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*attached{a, waiting} {
		a.cmd.Process.Kill()
		a.cmd.Wait()
	}
	gone := func() bool {
		_, err := os.Stat(dir)
		list, lerr := kernel.HostObservers()
		own := slices.ContainsFunc(list, func(o kernel.HostObserver) bool { return o.Own && o.Sessions > 0 })
		return errors.Is(err, os.ErrNotExist) && lerr == nil && !own
	}
	if !leaktest.Within(time.Minute, gone) {
		list, err := kernel.HostObservers()
		t.Errorf("%s or the observer is left: %+v %v", dir, list, err)
	}
	if got := e.Run("inspect", "--format={{.State.Running}}", "lives"); got != "true" {
		t.Error("the container did not outlive attach")
	}
	recover := exec.Command(a.cmd.Path, "recover", "--all")
	recover.Args[0], recover.Env = "assay-run", a.cmd.Env
	if out, err := recover.CombinedOutput(); err != nil || !strings.Contains(string(out), "incomplete") {
		t.Fatalf("recover: %v\n%s", err, out)
	}
	b := attachedBundle(t, bundle)
	if b.result.Outcome != schema.OutcomeIncomplete || !b.opened("/tmp/done") || b.result.Labels["container_id"] != id {
		t.Errorf("%s, %v:\n%s", b.result.Outcome, b.result.Labels, b)
	}
}

// When its engine restarts, a watcher seals what ended with it, and goes on.
func TestAttachWatchOutlivesTheEngine(t *testing.T) {
	e := enginetest.Docker(t)
	dir := t.TempDir()
	a := attachTo(t, e, "watching docker", "--watch", "--label", "eval", "--dir", dir)
	e.Run("run", "--detach", "--stop-signal=KILL", "--network=none", "--name=before", "--label=eval=1",
		enginetest.Image, "sleep", "1000")
	e.Restart()
	a.says("it stopped sending events")
	if !leaktest.Within(time.Minute, func() bool { return strings.Count(a.said(), "watching docker") == 2 }) {
		t.Fatalf("the watcher does not go on:\n%s", a.said())
	}
	e.Run("run", "--network=none", "--name=after", "--label=eval=2", enginetest.Image, "touch", "/tmp/made")
	sealed := func(name string) []string {
		list, _ := filepath.Glob(filepath.Join(dir, name+"-*.tar.gz"))
		return list
	}
	if !leaktest.Within(time.Minute, func() bool { return len(sealed("before")) == 1 && len(sealed("after")) == 1 }) {
		t.Fatalf("the bundles are %q\n%s", bundlesIn(dir), a.said())
	}
	a.cmd.Process.Signal(syscall.SIGTERM)
	a.ends(0)
	if b := attachedBundle(t, sealed("after")[0]); !b.opened("/tmp/made") && !b.has("attached_late") {
		t.Errorf("what happened after the restart is not recorded:\n%s", b)
	}
}

func bundlesIn(dir string) []string {
	list, _ := filepath.Glob(filepath.Join(dir, "*.tar.gz"))
	return list
}

// From a container with the privileges of docs/kubernetes/daemonset.yaml, attach
// records the cgroup of a pod: from the first instruction, where the pod's containers
// start later.
func TestAttachFromAContainer(t *testing.T) {
	if !observes() {
		t.Skip("this host cannot record a kernel layer")
	}
	e := enginetest.Podman(t) // Docker 20.10 knows no CAP_BPF
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e.Import("watcher", map[string]string{"bin/assay-run": exe})
	// As the kubelet does with the cgroupfs driver.
	parent := "/kubepods-" + uniqueID() + "/besteffort/pod" + uniqueID()
	pod := filepath.Join(cgroup2(), parent)
	if err := os.MkdirAll(pod, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for dir := parent; dir != "/"; dir = filepath.Dir(dir) {
			list, _ := filepath.Glob("/sys/fs/cgroup/*" + dir)
			for _, d := range list {
				os.Remove(d)
			}
		}
	})
	out := t.TempDir()
	privileges := []string{"run", "--pid=host", "--cgroupns=host", "--read-only", "--tmpfs=/tmp",
		"--cap-drop=ALL", "--cap-add=BPF", "--cap-add=PERFMON", "--cap-add=NET_ADMIN", "--cap-add=SYS_PTRACE",
		"--security-opt=seccomp=unconfined", "--security-opt=no-new-privileges",
		"--volume=/sys/fs/cgroup:/sys/fs/cgroup", "--volume=" + out + ":/bundles",
		"--env=XDG_STATE_HOME=/bundles/state", "watcher", "assay-run", "attach", "--cgroup", pod, "-o",
		"/bundles/pod.tar.gz"}
	watcher := e.Command(privileges...)
	said, err := os.Create(filepath.Join(out, "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	watcher.Stderr = said
	if err := watcher.Start(); err != nil {
		t.Fatal(err)
	}
	tells := func() string { text, _ := os.ReadFile(said.Name()); return string(text) }
	ended := make(chan error, 1)
	go func() { ended <- watcher.Wait() }()
	if !leaktest.Within(time.Minute, func() bool {
		return strings.Contains(tells(), "attached to") || len(ended) > 0
	}) || len(ended) > 0 {
		t.Fatalf("attach does not begin:\n%s", tells())
	}
	id := e.Run("run", "--detach", "--cgroup-parent="+parent, enginetest.Image, "touch", "/tmp/made")
	if err := <-ended; err != nil {
		t.Fatalf("attach: %v\n%s", err, tells())
	}
	b := attachedBundle(t, filepath.Join(out, "pod.tar.gz"))
	if b.health.KernelLayer != schema.Complete {
		t.Errorf("the layer is %s: %+v", b.health.KernelLayer, b.health.Reasons)
	}
	if !slices.ContainsFunc(b.health.Notes, func(n string) bool { return strings.HasPrefix(n, "observer_alone: ") }) {
		t.Errorf("it does not say that it loaded programs of its own: %q", b.health.Notes)
	}
	if !slices.ContainsFunc(b.events, func(ev schema.KernelEvent) bool {
		return ev.Value == "/tmp/made" && ev.ContainerID == id
	}) {
		t.Errorf("no event of the container's file:\n%s", b)
	}
	// Without the host's process ids, it would take one process for another.
	privileges[1] = "--network=none"
	refused := append(privileges, "--force")
	if text, err := e.Command(refused...).CombinedOutput(); err == nil ||
		!strings.Contains(string(text), "is in a PID namespace") || !strings.Contains(string(text), "--pid host") {
		t.Errorf("without the host's process ids: %v\n%s", err, text)
	}
}

// On a host with cgroup v1 alone there is nothing to observe a container by, and the error
// says so.
func TestAttachWithoutCgroup2(t *testing.T) {
	engines(t, func(t *testing.T, e *enginetest.Engine) {
		for name, made := range map[string]string{"running": "run --detach", "created": "create"} {
			e.Run(append(strings.Fields(made), "--network=none", "--name="+name, enginetest.Image, "sleep", "1000")...)
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("unshare", "--mount", "bash", "-c", `
for dir in $(awk '$3 == "cgroup2" { print $2 }' /proc/self/mounts); do umount -l "$dir"; done
exec -a assay-run "$0" "$@"`, exe, "attach", "--container", name, "-o", filepath.Join(t.TempDir(), "b.tar.gz"))
			cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir(), "DOCKER_HOST=unix:///none",
				"CONTAINER_HOST=unix:///none", socketOf(e))
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "nothing was recorded: container "+name+
				": its engine put it only into cgroups of version 1") {
				t.Errorf("a container that is %s: %v\n%s", name, err, out)
			}
		}
	})
}

// A container whose parent cgroup is not the engine's own: --container asks for it, and
// misses nothing; a watcher finds it when it runs.
func TestAttachBelowAnotherParent(t *testing.T) {
	e := enginetest.Docker(t)
	parent := "/attach-" + uniqueID()
	t.Cleanup(func() {
		list, _ := filepath.Glob("/sys/fs/cgroup/*" + parent)
		for _, d := range list {
			os.Remove(d)
		}
	})
	dir := t.TempDir()
	a := attachTo(t, e, "watching docker", "--watch", "--label", "eval", "--dir", dir)
	e.Run("create", "--network=none", "--name=asked", "--cgroup-parent="+parent, enginetest.Image, "touch", "/tmp/made")
	bundle := filepath.Join(t.TempDir(), "b.tar.gz")
	asked := attachTo(t, e, "attached to", "--container", "asked", "-o", bundle)
	e.Run("start", "asked")
	asked.ends(0)
	if b := attachedBundle(t, bundle); b.health.KernelLayer != schema.Complete || !b.opened("/tmp/made") {
		t.Errorf("the layer is %s: %+v\n%s", b.health.KernelLayer, b.health.Reasons, b)
	}
	e.Run("run", "--detach", "--network=none", "--name=found", "--label=eval", "--cgroup-parent="+parent,
		enginetest.Image, "sh", "-c", "until [ -e /tmp/go ]; do sleep 0.05; done; touch /tmp/done")
	if !leaktest.Within(time.Minute, func() bool { return len(bundlesIn(dir)) == 1 }) {
		t.Fatalf("the watcher does not see that it is elsewhere:\n%s", a.said())
	}
	if !leaktest.Within(time.Minute, a.joined) {
		t.Fatalf("it is not joined where it is:\n%s", a.said())
	}
	e.Run("exec", "found", "touch", "/tmp/go")
	if !leaktest.Within(time.Minute, func() bool { return len(bundlesIn(dir)) == 2 }) {
		t.Fatalf("the bundles are %q:\n%s", bundlesIn(dir), a.said())
	}
	a.cmd.Process.Signal(syscall.SIGINT)
	a.ends(0)
	again, _ := filepath.Glob(filepath.Join(dir, "found-*-2.tar.gz"))
	if len(again) != 1 {
		t.Fatalf("the bundles are %q", bundlesIn(dir))
	}
	if b := attachedBundle(t, again[0]); !b.opened("/tmp/done") || !b.has("attached_late") {
		t.Errorf("%+v\n%s", b.health.Reasons, b)
	}
}

// TestAttachExecsAndThreads has five execs into a container, and a process with six threads that is moved into its
// cgroup: the layer is complete, because it counts the threads of each.
func TestAttachExecsAndThreads(t *testing.T) {
	e := enginetest.Docker(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	six := exec.Command(python, "-c", "import threading, time\n"+
		"for _ in range(5): threading.Thread(target=time.sleep, args=[1000], daemon=True).start()\n"+
		"print(flush=True)\ntime.sleep(1000)\n")
	ready, err := six.StdoutPipe()
	if err == nil {
		err = six.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer six.Process.Kill()
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", six.Process.Pid))
	if err != nil || len(tasks) != 6 {
		t.Fatalf("it has %d threads: %v", len(tasks), err)
	}
	e.Run("create", "--network=none", "--name=box", enginetest.Image, "sleep", "1000")
	bundle := filepath.Join(t.TempDir(), "b.tar.gz")
	a := attachTo(t, e, "attached to", "--container", "box", "-o", bundle)
	dir := strings.Fields(strings.Split(a.said(), "attached to ")[1])[0]
	e.Run("start", "box")
	for i := range 5 {
		e.Run("exec", "box", "touch", fmt.Sprintf("/tmp/%d", i))
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(six.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	six.Process.Kill()
	six.Wait()
	e.Run("rm", "--force", "box")
	a.ends(0)
	b := attachedBundle(t, bundle)
	joins, threads := 0, 0
	for i := range b.events {
		switch k := &b.events[i]; {
		case k.Kind == schema.KindJoin:
			joins++
		case k.Kind == schema.KindExit && k.PID == uint32(six.Process.Pid):
			threads++
		}
	}
	if b.health.KernelLayer != schema.Complete || joins != 7 || threads == 0 || !b.opened("/tmp/4") {
		t.Errorf("the layer is %s, with %d joins and %d exits of the moved process: %+v", b.health.KernelLayer, joins,
			threads, b.health.Reasons)
	}
}
