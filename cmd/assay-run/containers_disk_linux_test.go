package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/.ci/leaktest"
)

// opensMuch opens more files than the record of which finds room on a small disk.
const opensMuch = `i=0; while [ $i -lt 1500 ]; do : > /tmp/file-$i; i=$((i+1)); done`

// fill leaves no room on a disk.
func fill(t *testing.T, disk string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(disk, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
}

// grow gives a full disk room again.
func grow(t *testing.T, disk string) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "remount,size=16m", disk).CombinedOutput(); err != nil {
		t.Fatalf("remount: %v\n%s", err, out)
	}
}

// Where attach finds no room, it says so and exits with 125. What it has recorded is kept,
// and the container goes on.
func TestAttachOnAFullDisk(t *testing.T) { engines(t, attachOnAFullDisk) }

func attachOnAFullDisk(t *testing.T, e *enginetest.Engine) {
	shared := t.TempDir()
	start := func(name string, more ...string) {
		args := append([]string{"run", "--detach", "--network=none", "--name=" + name, "-v", shared + ":/w"}, more...)
		e.Run(append(args, enginetest.Image, "sh", "-c", "until [ -e /w/go-"+name+" ]; do sleep 0.05; done; "+opensMuch+
			"; echo > /w/done-"+name+"; exec tail -f /dev/null")...)
	}
	opens := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(shared, "go-"+name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if !leaktest.Within(time.Minute, func() bool {
			_, err := os.Stat(filepath.Join(shared, "done-"+name))
			return err == nil
		}) {
			t.Fatalf("container %s is held up", name)
		}
	}
	goesOn := func(name string) {
		t.Helper()
		if got := e.Run("inspect", "--format={{.State.Running}}", name); got != "true" {
			t.Errorf("container %s did not outlive attach", name)
		}
	}
	says := func(a *attached, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(a.said(), w) {
				t.Errorf("attach does not say %q:\n%s", w, a.said())
			}
		}
	}
	t.Run("under the spool", func(t *testing.T) {
		start("box-a")
		bundle := filepath.Join(t.TempDir(), "b.tar.gz")
		a := attachTo(t, e, "attached to", "--container", "box-a", "-o", bundle, "--spool-dir", smallDisk(t, "256k"))
		opens("box-a")
		a.cmd.Process.Signal(syscall.SIGINT)
		a.ends(125)
		says(a, "evidence is missing", "no space left on device")
		if b := attachedBundle(t, bundle); !b.opened("/tmp/file-0") || b.opened("/tmp/file-1499") {
			t.Errorf("not what there was room for: %+v", b.health.Reasons)
		}
		goesOn("box-a")
	})
	t.Run("under the output", func(t *testing.T) {
		start("box-b")
		disk := smallDisk(t, "64k")
		bundle := filepath.Join(disk, "b.tar.gz")
		a := attachTo(t, e, "attached to", "--container", "box-b", "-o", bundle)
		fill(t, disk)
		opens("box-b")
		a.cmd.Process.Signal(syscall.SIGINT)
		a.ends(125)
		says(a, "no space left on device", "recover --spool-dir")
		goesOn("box-b")
		grow(t, disk)
		recover := exec.Command(a.cmd.Path, "recover", "--all")
		recover.Args[0], recover.Env = "assay-run", a.cmd.Env
		if out, err := recover.CombinedOutput(); err != nil {
			t.Fatalf("recover: %v\n%s", err, out)
		}
		if b := attachedBundle(t, bundle); !b.opened("/tmp/file-1499") {
			t.Errorf("the recovered bundle has not all of it: %+v", b.health.Reasons)
		}
	})
	t.Run("under the bundles of a watcher", func(t *testing.T) {
		disk := smallDisk(t, "64k")
		a := attachTo(t, e, "watching "+e.Program, "--watch", "--label", "eval", "--dir", disk)
		start("box-c", "--label=eval=1")
		if !leaktest.Within(time.Minute, func() bool {
			list, _ := filepath.Glob(filepath.Join(a.state, "assay-run/spool/*/events.ndjson"))
			if len(list) != 1 {
				return false
			}
			text, _ := os.ReadFile(list[0])
			return strings.Contains(string(text), `"type":"attached"`)
		}) {
			t.Fatalf("the container is not recorded:\n%s", a.said())
		}
		fill(t, disk)
		opens("box-c")
		a.cmd.Process.Signal(syscall.SIGINT)
		a.ends(125)
		says(a, "container box-c: ", "no space left on device", "recover --spool-dir")
		goesOn("box-c")
	})
}

// The same of a run whose container is behind the run's socket, or its command in the PATH.
func TestContainersOnAFullDisk(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	for name, start := range runEngines {
		t.Run(name, func(t *testing.T) { containersOnAFullDisk(t, start(t)) })
	}
}

func containersOnAFullDisk(t *testing.T, e *enginetest.Engine) {
	for name, c := range map[string]struct {
		flags func(disk string) []string
		size  string
		whole bool // all of it is kept
		says  []string
	}{
		"under the spool": {func(disk string) []string {
			return []string{"--spool-dir", disk}
		}, "256k", false, []string{"evidence is missing", "no space left on device"}},
		"under the output": {func(disk string) []string {
			return []string{"-o", filepath.Join(disk, "run.tar.gz")}
		}, "64k", true, []string{"no space left on device", "recover --spool-dir"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, disk := t.TempDir(), smallDisk(t, c.size)
			cmd := withEngine(t, e, dir, `
echo $ASSAY_RUN_CGROUP_PARENT > parent
[ -z "$FILL" ] || head -c 1M /dev/zero > "$FILL/filler" || true
$E run --rm --network=none $IMAGE sh -c '`+opensMuch+`; exit 4'
`, append(c.flags(disk), "--containers")...)
			if c.whole {
				cmd.Env = append(cmd.Env, "FILL="+disk)
			}
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != 125 {
				t.Errorf("it exited with %d, want 125", code)
			}
			for _, w := range c.says {
				if !strings.Contains(string(out), w) {
					t.Errorf("it does not say %q", w)
				}
			}
			parent, err := os.ReadFile(filepath.Join(dir, "parent"))
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			nothingLeft(t, strings.TrimSpace(string(parent)))
			bundle := filepath.Join(dir, "run.tar.gz")
			if c.whole {
				grow(t, disk)
				bundle = filepath.Join(disk, "run.tar.gz")
				if out, err := self(t, dir, "recover", "--all").CombinedOutput(); err != nil {
					t.Fatalf("recover: %v\n%s", err, out)
				}
			}
			if b := attachedBundle(t, bundle); !b.opened(filepath.Join(dir, "parent")) ||
				b.opened("/tmp/file-1499") != c.whole {
				t.Errorf("not what there was room for: %+v", b.health.Reasons)
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}
