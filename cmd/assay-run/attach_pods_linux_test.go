package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/kubetest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/schema"
)

func newUID(n int) string { return fmt.Sprintf("%08d-0000-4000-8000-%s", n, uniqueID()) }

// podFile makes an empty file that a pod's process reads.
func podFile(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "read")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// inPod is attach as in a pod of the server's cluster. It sees a /run of its own, with the
// service account.
func inPod(t *testing.T, s *kubetest.Server, args ...string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "assay-run")
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	script := `mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io && ln -s "$0" /run/secrets/kubernetes.io/serviceaccount && exec "$@"`
	cmd := exec.Command("unshare",
		append([]string{"--mount", "sh", "-c", script, s.Account, link, "attach", "--watch", "--engine", "kubernetes"},
			args...)...)
	cmd.Env = append(append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, "state")), s.Env()...)
	return cmd
}

// attachInPod starts it, and returns once it watches.
func attachInPod(t *testing.T, s *kubetest.Server, args ...string) *attached {
	t.Helper()
	a := &attached{t: t, cmd: inPod(t, s, args...)}
	dir := filepath.Dir(a.cmd.Args[6])
	a.stderr, a.state = filepath.Join(dir, "stderr"), filepath.Join(dir, "state")
	f, err := os.Create(a.stderr)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a.cmd.Stderr = f
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.cmd.Process.Kill(); a.cmd.Wait() })
	a.says("watching kubernetes for pods")
	return a
}

// attachesTo waits until a recording of a cgroup is under way.
func (a *attached) attachesTo(dir string) {
	a.t.Helper()
	if !leaktest.Within(time.Minute, func() bool {
		list, _ := filepath.Glob(filepath.Join(a.state, "assay-run/spool/*/events.ndjson"))
		for _, f := range list {
			if text, _ := os.ReadFile(f); strings.Contains(string(text), `"cgroup":"`+dir+`"`) {
				return true
			}
		}
		return false
	}) {
		a.t.Fatalf("attach does not attach to %s:\n%s", dir, a.said())
	}
}

// A watcher records each pod of its node that has the label: from the first process if the
// pod starts later, and late if it runs.
func TestAttachWatchesPods(t *testing.T) {
	k, s, out := newKubelet(t), kubetest.New(t), t.TempDir()
	file := podFile(t)
	yes, no := map[string]string{"eval": "7", "app": "x"}, map[string]string{"eval": "8"}
	running, over := newUID(1), newUID(2)
	k.make(k.dir(running, false))
	endRunning := k.start(k.dir(running, false), file)
	s.Set(kubetest.Pod{UID: running, Name: "running", Labels: yes, Phase: "Running", Ran: true})
	s.Set(kubetest.Pod{UID: over, Name: "over", Labels: yes, Phase: "Succeeded", Ran: true})
	s.Set(kubetest.Pod{UID: newUID(3), Name: "other", Labels: no, Phase: "Pending"})
	a := attachInPod(t, s, "--label", "eval=7", "--namespace", "evals", "--dir", out)
	a.attachesTo(k.dir(running, false))
	for n := 10; n < 16; n++ {
		labels := yes
		if n%2 == 1 {
			labels = no
		}
		p := kubetest.Pod{UID: newUID(n), Name: fmt.Sprintf("pod%d", n), Labels: labels, Phase: "Pending"}
		s.Set(p)
		dir := k.dir(p.UID, n%4 == 0)
		k.make(dir) // after the API server announced the pod
		if n%2 == 0 {
			a.attachesTo(dir)
		}
		end := k.start(dir, file)
		p.Phase, p.Ran = "Running", true
		s.Set(p)
		end()
		p.Phase = "Succeeded"
		s.Set(p)
		s.Delete(p.UID)
	}
	never := kubetest.Pod{UID: newUID(20), Name: "never", Labels: yes, Phase: "Pending"}
	s.Set(never) // it never gets a cgroup
	s.Delete(never.UID)
	if !leaktest.Within(time.Minute, func() bool { return len(bundlesIn(out)) == 3 }) {
		t.Fatalf("the bundles are %q\n%s", bundlesIn(out), a.said())
	}
	endRunning()
	if !leaktest.Within(time.Minute, func() bool { return len(bundlesIn(out)) == 4 }) {
		t.Fatalf("the bundles are %q\n%s", bundlesIn(out), a.said())
	}
	a.cmd.Process.Signal(syscall.SIGTERM)
	a.ends(0)
	for _, path := range bundlesIn(out) {
		b := attachedBundle(t, path)
		l := b.result.Labels
		if want := "evals_" + l["pod_name"] + "-" + l["pod_uid"][:12] + ".tar.gz"; filepath.Base(path) != want ||
			l["pod_namespace"] != "evals" ||
			l["container_engine"] != "kubernetes" || l["node_name"] != kubetest.Node ||
			l["pod_containers"] != "agent=registry.example/agent:1" {
			t.Errorf("%s has the labels %v", path, l)
		}
		switch l["pod_name"] {
		case "running":
			if b.health.KernelLayer == schema.Complete || !b.has("attached_late") {
				t.Errorf("the layer of the pod that ran before is %s: %+v", b.health.KernelLayer, b.health.Reasons)
			}
		case "pod10", "pod12", "pod14":
			if b.health.KernelLayer != schema.Complete || !b.opened(file) {
				t.Errorf("the layer of %s is %s: %+v\n%s", path, b.health.KernelLayer, b.health.Reasons, b)
			}
		default:
			t.Errorf("%s was recorded", path)
		}
	}
	watched := false
	for _, r := range s.Requests() {
		if r.Path != "/api/v1/namespaces/evals/pods" || r.Query.Get("labelSelector") != "eval=7" ||
			r.Query.Get("fieldSelector") != "spec.nodeName="+kubetest.Node {
			t.Errorf("it asked for %s %v", r.Path, r.Query)
		}
		watched = watched || r.Query.Get("watch") == "1" && r.Query.Get("allowWatchBookmarks") == "true" &&
			r.Query.Get("resourceVersion") != ""
	}
	if !watched {
		t.Errorf("it did not watch: %v", s.Requests())
	}
}

// A watcher goes on after everything that can happen to a watch, and names the pods that it
// missed.
func TestAttachWatchesPodsThroughFaults(t *testing.T) {
	k, s, out := newKubelet(t), kubetest.New(t), t.TempDir()
	file, labels := podFile(t), map[string]string{"eval": ""}
	a := attachInPod(t, s, "--label", "eval", "--dir", out)
	for n, fault := range []string{"", kubetest.Gone, kubetest.GoneLater, kubetest.Cut, kubetest.Half, kubetest.Huge,
		kubetest.Forbid} {
		s.Rotate(t, fmt.Sprintf("token-%d", n))
		s.Break(fault)
		if !leaktest.Within(time.Minute, func() bool { return s.Faults() == 0 }) {
			t.Fatalf("%q did not happen:\n%s", fault, a.said())
		}
		p := kubetest.Pod{UID: newUID(n), Name: fmt.Sprintf("pod%d", n), Labels: labels, Phase: "Pending"}
		s.Set(p)
		k.make(k.dir(p.UID, false))
		a.attachesTo(k.dir(p.UID, false))
		k.start(k.dir(p.UID, false), file)()
		if !leaktest.Within(time.Minute, func() bool { return len(bundlesIn(out)) == n+1 }) {
			t.Fatalf("after %q the bundles are %q\n%s", fault, bundlesIn(out), a.said())
		}
	}
	s.Set(kubetest.Pod{UID: newUID(50), Name: "fast", Labels: labels, Phase: "Failed", Ran: true})
	a.says("error: pod evals/fast: it ended before assay-run could join it, and was not recorded")
	for _, want := range []string{"token too long", `may not watch pods (403): "pods is forbidden`,
		"pods that start and end before it answers again are not recorded"} {
		if !strings.Contains(a.said(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	a.cmd.Process.Signal(syscall.SIGTERM)
	a.ends(125)
	for _, path := range bundlesIn(out) {
		if b := attachedBundle(t, path); b.health.KernelLayer != schema.Complete || !b.opened(file) {
			t.Errorf("the layer of %s is %s: %+v\n%s", path, b.health.KernelLayer, b.health.Reasons, b)
		}
	}
	if strings.Contains(a.said(), "token-") {
		t.Errorf("it says the token:\n%s", a.said())
	}
}

// What keeps a watcher from starting, in words.
func TestAttachWatchesNoPods(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can attach")
	}
	for name, c := range map[string]struct {
		label string
		spoil func(*kubetest.Server) (env string)
		want  string
	}{
		"a token that is not valid": {"eval", func(s *kubetest.Server) string {
			os.WriteFile(filepath.Join(s.Account, "token"), []byte("token-two"), 0o600)
			return ""
		}, "does not accept the token of the pod's service account (401)"},
		"no rule for watch": {"eval", func(s *kubetest.Server) string { s.Break(kubetest.Forbid); return "" },
			`hint: bind a role to it with the rule {apiGroups: [""], resources: ["pods"], verbs: ["list", "watch"]}: a ClusterRole, or with --namespace a Role; "watch" is missing`},
		"no token": {"eval", func(s *kubetest.Server) string {
			os.Remove(filepath.Join(s.Account, "token"))
			return ""
		},
			"hint: give the pod a service account"},
		"no CA": {"eval", func(s *kubetest.Server) string {
			os.WriteFile(filepath.Join(s.Account, "ca.crt"), nil, 0o600)
			return ""
		}, "ca.crt has no certificate"},
		"no node": {"eval", func(*kubetest.Server) string {
			return "NODE_NAME="
		}, "hint: set it in the pod's env"},
		"not in a pod": {"eval", func(*kubetest.Server) string {
			return "KUBERNETES_SERVICE_HOST="
		}, "hint: run assay-run in a pod"},
		"nobody listens": {"eval", func(*kubetest.Server) string {
			return "KUBERNETES_SERVICE_PORT=1"
		}, "the API server at 127.0.0.1:1 does not answer"},
		"two labels": {"a=b,c=d", func(*kubetest.Server) string {
			return ""
		}, `"a=b,c=d" is not a label of Kubernetes`},
		"a selector that is no label": {"a in (b)", func(*kubetest.Server) string {
			return ""
		}, `"a in (b)" is not a label of Kubernetes`},
		"a server with another name": {"eval", func(*kubetest.Server) string {
			return "KUBERNETES_SERVICE_HOST=localhost"
		}, "certificate is valid for"},
		"a redirect": {"eval", func(s *kubetest.Server) string {
			s.Break(kubetest.Redirect)
			return ""
		}, "answered with a redirect, which assay-run does not follow"},
	} {
		t.Run(name, func(t *testing.T) {
			s := kubetest.New(t)
			env := c.spoil(s)
			cmd := inPod(t, s, "--label", c.label, "--dir", t.TempDir())
			cmd.Env = append(cmd.Env, env)
			said, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != 125 || !strings.Contains(string(said), c.want) ||
				!strings.Contains(string(said), "nothing was recorded") {
				t.Errorf("%v:\n%s\nwant %q", err, said, c.want)
			}
			if strings.Contains(string(said), "token-") {
				t.Error("it says the token")
			}
		})
	}
}
