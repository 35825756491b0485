package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// blocks are the fenced blocks of a page: what follows the fence, and the text.
var blocks = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// agentInside is what an agent does in a container; its directory may be read-only.
const agentInside = `cat /etc/passwd >/dev/null; cat /no/such/file 2>/dev/null; (exit 3); /bin/busybox true; assay-run call --id tc_inside -- cat /etc/group >/dev/null; echo inside`

// TestNotifyInContainers records from inside containers that may not load eBPF
// programs.
func TestNotifyInContainers(t *testing.T) { testNotify(t, enginetest.Docker(t)) }

// TestNotifyInPodman does the same with Podman.
func TestNotifyInPodman(t *testing.T) { testNotify(t, enginetest.Podman(t)) }

func testNotify(t *testing.T, engine *enginetest.Engine) {
	in := container{t, engine, staticProgram(t)}
	refuses := filepath.Join(t.TempDir(), "refuses.json")
	if err := os.WriteFile(refuses,
		[]byte(`{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["seccomp"], "action": "SCMP_ACT_ERRNO",
		"args": [{"index": 1, "value": 8, "valueTwo": 8, "op": "SCMP_CMP_MASKED_EQ"}]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	unprivileged := []string{"--user", "1000", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"}
	for _, c := range []struct {
		name   string
		flags  []string
		args   []string
		state  string
		reason string // a code that the health must have
		never  string // and one that it must not
	}{
		{"the default, as root", nil, nil, "partial", "no_new_privs_set", ""},
		{"root with SYS_ADMIN keeps its setuid programs", []string{"--cap-add", "SYS_ADMIN"}, nil, "partial",
			"seccomp_notify", "no_new_privs_set"},
		{"a user without any privilege", unprivileged, nil, "partial", "seccomp_notify", "no_new_privs_set"},
		{"a user, not asked for", []string{"--user", "1000"}, nil, "absent", "", "seccomp_notify"},
		{"a user, asked for", []string{"--user", "1000"}, []string{"--kernel", "notify"}, "partial", "no_new_privs_set",
			""},
		{"a read-only root without /tmp", append([]string{"--read-only", "--tmpfs", "/work:ro"}, unprivileged...), nil,
			"partial", "seccomp_notify", ""},
		{"little memory", append([]string{"--memory", "512m"}, unprivileged...), nil, "partial", "seccomp_notify", ""},
		{"a profile that refuses the listener", []string{"--security-opt", "seccomp=" + refuses}, nil, "absent",
			"seccomp_refused", "seccomp_notify"},
		{"the sandbox on top", []string{"--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--security-opt",
			"apparmor=unconfined"}, []string{"--mode", "read-only", "--workdir", "/etc"}, "partial", "seccomp_notify",
			""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in.T = t
			out := t.TempDir()
			if err := os.Chmod(out, 0o777|os.ModeSticky); err != nil {
				t.Fatal(err)
			}
			flags := append([]string{"-v", out + ":/out"}, c.flags...)
			args := slices.Concat([]string{"--spool-dir", "/out/spool", "--redaction-key", "ephemeral", "-o",
				"/out/b.tar.gz"}, c.args, []string{"--", "sh", "-c", agentInside})
			said, err := in.run(flags, args...)
			if err != nil || !strings.Contains(said, "inside\n") {
				t.Fatalf("%v\n%s", err, said)
			}
			verifyBundle(t, filepath.Join(out, "b.tar.gz"), 0)
			b, err := archive.Open(filepath.Join(out, "b.tar.gz"))
			if err != nil {
				t.Fatal(err)
			}
			docs, err := b.Documents(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			codes := map[string]bool{"": true}
			for _, r := range docs.Health.Reasons {
				codes[r.Code] = true
			}
			if docs.Health.KernelState != c.state || !codes[c.reason] || c.never != "" && codes[c.never] {
				t.Errorf("kernel_state is %s, want %s; reasons %v\n%s", docs.Health.KernelState, c.state,
					docs.Health.Reasons, said)
			}
			if c.state == "absent" {
				return
			}
			// The sandbox's own processes conceal themselves.
			seen := map[string]bool{}
			kernelEvents(t, b, func(e *schema.KernelEvent) {
				switch {
				case e.Marks&schema.MarkUnreadable != 0 && !slices.Contains(c.args, "--mode"):
					t.Errorf("unreadable: %+v", e)
				case e.Kind == schema.KindOpen || e.Kind == schema.KindExec:
					seen[e.Value] = true
					seen[e.Value+" by "+e.ToolCallID] = true
				case e.Kind == schema.KindExit && e.WaitStatus == 3<<8:
					seen["exit 3"] = true
				}
			})
			for _, want := range []string{"/etc/passwd", "/no/such/file", "exit 3", "/bin/busybox", "/etc/passwd by ",
				"/etc/group by tc_inside"} {
				if !seen[want] {
					t.Errorf("%s is not in the layer: %v", want, seen)
				}
			}
		})
	}
	// Nothing works there, a bundle's output included.
	t.Run("without /proc", func(t *testing.T) {
		in.T = t
		line := []string{"run", "--rm", "--network=none", "-v", in.exe + ":/bin/assay-run", "--cap-add", "SYS_ADMIN",
			"--security-opt", "apparmor=unconfined", enginetest.Image,
			"sh", "-c", "umount -l /proc && assay-run --kernel notify --spool-dir /tmp/spool --redaction-key " +
				"ephemeral -o /tmp/b.tar.gz -- touch /tmp/ran; echo $?; ls /tmp/ran"}
		said, _ := in.engine.Command(line...).CombinedOutput()
		if !strings.Contains(string(said), "125\n") ||
			!strings.Contains(string(said), "nothing was run: /proc is not mounted here") ||
			strings.Contains(string(said), "\n/tmp/ran\n") {
			t.Errorf("a run without /proc is not refused by name:\n%s", said)
		}
	})
}

// TestContainerRecipes runs the examples of docs/containers.md for containers as they are
// written, with Docker, in the order of the page.
func TestContainerRecipes(t *testing.T) {
	engine := enginetest.Docker(t)
	page, err := os.ReadFile("../../docs/containers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## Inside a container\n")
	if !ok {
		t.Fatal("docs/containers.md has no section on the inside of containers")
	}
	if out, err := engine.Command("tag", enginetest.Image, "my-agent").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir, bin := t.TempDir(), t.TempDir()
	if err := os.Symlink(staticProgram(t), filepath.Join(bin, "assay-run")); err != nil {
		t.Fatal(err)
	}
	docker := engine.Command()
	// The engine of the tests makes no networks.
	shim := "#!/bin/sh\n[ \"$1\" = run ] && shift && set -- run --network=none \"$@\"\nexec '" + docker.Path +
		"' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(shim), 0o755); err != nil {
		t.Fatal(err)
	}
	recipes := blocks.FindAllStringSubmatch(section, -1)
	for _, b := range recipes {
		cmd := exec.Command("sh", "-ec", b[2])
		cmd.Dir, cmd.Env = dir, append(os.Environ(), docker.Env...)
		cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "passwd\n") {
			t.Errorf("%s\n%v\n%s", b[2], err, out)
		}
	}
	bundles, _ := filepath.Glob(filepath.Join(dir, "out", "*.tar.gz"))
	if len(bundles) != len(recipes) || len(bundles) < 2 {
		t.Errorf("%d recipes made the bundles %v", len(recipes), bundles)
	}
	for _, b := range bundles {
		verifyBundle(t, b, 0)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "out", ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestContainerRecipesOfAHost runs the commands at the beginning of docs/containers.md as they
// are written, with Docker. Each records its container.
func TestContainerRecipesOfAHost(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	for _, program := range []string{"docker-compose", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("no " + program + ": make deps installs it")
		}
	}
	engine := enginetest.Docker(t)
	page, err := os.ReadFile("../../docs/containers.md")
	if err != nil {
		t.Fatal(err)
	}
	section, _, ok := strings.Cut(string(page), "\n## What you get\n")
	if !ok {
		t.Fatal("docs/containers.md has no section on what you get")
	}
	dir, bin := t.TempDir(), t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	docker := engine.Command()
	for name, text := range map[string]string{
		filepath.Join(dir, "agent"): "#!/bin/sh\ntouch \"/tmp/$1\"\n",
		filepath.Join(dir, "harness_that_uses_docker.py"): "import subprocess\n" +
			"subprocess.run('docker run --rm python:3 python agent.py'.split(), check=True)\n",
		filepath.Join(dir, "docker-compose.yml"): "version: '2.4'\nservices: {agent: {image: 'python:3', " +
			"network_mode: none, command: [python, agent.py]}}\n",
		filepath.Join(bin, "python"): "#!/bin/sh\nexec python3 \"$@\"\n",
		// The engine of the tests makes no networks, and has no plugins.
		filepath.Join(bin, "docker"): "#!/bin/sh\ncase $1 in\nrun) shift; exec '" + docker.Path +
			"' run --network=none \"$@\" ;;\ncompose) shift; exec docker-compose --project-name p \"$@\" ;;\nesac\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(exe, filepath.Join(bin, "assay-run")); err != nil {
		t.Fatal(err)
	}
	engine.Import("python:3", map[string]string{"/bin/python": filepath.Join(dir, "agent")})
	ran := 0
	for _, b := range blocks.FindAllStringSubmatch(section, -1) {
		for line := range strings.Lines(b[2]) {
			cmd := exec.Command("sh", "-ec", line)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), docker.Env...)
			cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "XDG_STATE_HOME="+filepath.Join(dir, ".state"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s%v\n%s", line, err, out)
			}
			ran++
		}
	}
	bundles, _ := filepath.Glob(filepath.Join(dir, "assay-run-*.tar.gz"))
	if len(bundles) != ran || ran < 4 {
		t.Errorf("%d recipes made the bundles %v", ran, bundles)
	}
	for _, b := range bundles {
		verifyBundle(t, b, 0)
		out, err := self(t, dir, "inspect", "--all", b).CombinedOutput()
		if text := string(out); err != nil || !strings.Contains(text, "containers (1)") ||
			!strings.Contains(text, "agent.py") {
			t.Errorf("%s does not show its container: %v\n%s", b, err, out)
		}
	}
}
