package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Whoever is killed of a watcher and the process that sweeps after it: the container goes
// on, recover seals what was recorded, and the observer holds nothing for the dead.
func TestAttachWatchIsKilled(t *testing.T) {
	engines(t, func(t *testing.T, e *enginetest.Engine) {
		for name, alone := range map[string]bool{"the watcher": true, "the watcher and its sweeper": false} {
			t.Run(name, func(t *testing.T) {
				box, dir := "box-"+strconv.FormatBool(alone), t.TempDir()
				a := attachTo(t, e, "watching "+e.Program, "--watch", "--label", "eval="+box, "--dir", dir)
				e.Run("run", "--detach", "--network=none", "--name="+box, "--label=eval="+box, enginetest.Image, "sh",
					"-c", "until [ -e /tmp/go ]; do sleep 0.05; done; touch /tmp/done; sleep 1000")
				spooled := func(what string) func() bool {
					return func() bool {
						list, _ := filepath.Glob(filepath.Join(a.state, "assay-run/spool/*", what))
						if len(list) != 1 {
							return false
						}
						text, _ := os.ReadFile(list[0])
						return what == schema.EventsPath && bytes.Contains(text, []byte(`"type":"attached"`)) ||
							bytes.Contains(text, []byte(`"/tmp/done"`))
					}
				}
				if !leaktest.Within(time.Minute, spooled(schema.EventsPath)) {
					t.Fatalf("the container is not joined:\n%s", a.said())
				}
				e.Run("exec", box, "touch", "/tmp/go")
				if !leaktest.Within(time.Minute, spooled(schema.KernelPath)) {
					t.Fatal("what was recorded does not reach the spool")
				}
				if !alone {
					a.killSweeper()
				}
				a.cmd.Process.Kill()
				a.cmd.Wait()
				recover := exec.Command(a.cmd.Path, "recover", "--all")
				recover.Args[0], recover.Env = "assay-run", a.cmd.Env
				if out, err := recover.CombinedOutput(); err != nil || !strings.Contains(string(out), "incomplete") {
					t.Fatalf("recover: %v\n%s", err, out)
				}
				bundles := bundlesIn(dir)
				if len(bundles) != 1 {
					t.Fatalf("the bundles are %q", bundles)
				}
				if b := attachedBundle(t, bundles[0]); b.result.Outcome != schema.OutcomeIncomplete ||
					!b.opened("/tmp/done") || b.result.Labels["container_name"] != box {
					t.Errorf("%s, %v:\n%s", b.result.Outcome, b.result.Labels, b)
				}
				freed := func() bool {
					list, err := kernel.HostObservers()
					return err == nil && !slices.ContainsFunc(list, func(o kernel.HostObserver) bool {
						return o.Own && o.Sessions > 0
					})
				}
				if !leaktest.Within(time.Minute, freed) {
					list, err := kernel.HostObservers()
					t.Errorf("the observer holds the session: %+v %v", list, err)
				}
				if got := e.Run("inspect", "--format={{.State.Running}}", box); got != "true" {
					t.Error("the container did not outlive the watcher")
				}
			})
		}
	})
}

// killSweeper kills the process that sweeps after attach.
func (a *attached) killSweeper() {
	a.t.Helper()
	pid := processOf(a.t, "\x00sweeper\x00"+strconv.Itoa(a.cmd.Process.Pid)+"\x00")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		a.t.Fatal(err)
	}
	if !leaktest.Within(time.Minute, func() bool { return ended(pid) }) {
		a.t.Fatal("the sweeper does not end")
	}
}

// If attach and its sweeper are killed, the directory that it made for a container that never
// started is removed by recover, and by the next attach, which makes its own.
func TestAttachAndItsSweeperAreKilled(t *testing.T) {
	engines(t, func(t *testing.T, e *enginetest.Engine) {
		e.Run("create", "--network=none", "--name=waiting", enginetest.Image, "touch", "/tmp/made")
		bundle := filepath.Join(t.TempDir(), "b.tar.gz")
		kill := func() (a *attached, dir string) {
			a = attachTo(t, e, "attached to", "--container", "waiting", "-o", bundle)
			dir = strings.Fields(strings.Split(a.said(), "attached to ")[1])[0]
			a.killSweeper()
			a.cmd.Process.Kill()
			a.cmd.Wait()
			if _, err := os.Stat(dir); err != nil {
				t.Fatal(err) // then this tests nothing
			}
			return a, dir
		}
		a, dir := kill()
		recover := exec.Command(a.cmd.Path, "recover", "--all")
		recover.Args[0], recover.Env = "assay-run", a.cmd.Env
		if out, err := recover.CombinedOutput(); err != nil {
			t.Fatalf("recover: %v\n%s", err, out)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("recover leaves %s: %v", dir, err)
		}
		os.Remove(bundle)
		_, dir = kill()
		a = attachTo(t, e, "attached to", "--container", "waiting", "-o", bundle)
		a.cmd.Process.Signal(syscall.SIGINT)
		a.ends(0)
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the next attach leaves %s: %v", dir, err)
		}
	})
}

// processOf is the process of assay-run whose command line contains word.
func processOf(t *testing.T, word string) int {
	t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		if b, _ := os.ReadFile(f); bytes.HasPrefix(b, []byte("assay-run\x00")) && bytes.Contains(b, []byte(word)) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			return pid
		}
	}
	t.Fatalf("no process has %q", word)
	return 0
}
