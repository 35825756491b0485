package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/schema"
)

// Whoever is killed while a container runs behind the run's socket: the container
// ends, what was recorded is sealed, and no cgroup, socket or directory is left.
func TestContainersEndWhoeverIsKilled(t *testing.T) {
	for name, start := range runEngines {
		t.Run(name, func(t *testing.T) {
			e := start(t)
			for _, c := range []struct {
				killed        string
				runner, guard bool
			}{
				{killed: "the runner", runner: true},
				{killed: "the guard", guard: true},
				{killed: "the runner and the guard", runner: true, guard: true},
			} {
				t.Run(c.killed, func(t *testing.T) { killWithContainers(t, e, c.runner, c.guard) })
			}
		})
	}
}

func killWithContainers(t *testing.T, e *enginetest.Engine, runner, guard bool) {
	dir := t.TempDir()
	cmd := withEngine(t, e, dir, `
for policy in always no; do
	$E run -d --restart=$policy --network=none $IMAGE sh -c 'echo a > /tmp/of-the-container; exec tail -f /dev/null'
done
echo $ASSAY_RUN_CGROUP_PARENT
echo ${DOCKER_HOST:-none}
echo ${PATH%%:*}
echo ready
until [ -e end ]; do sleep 0.05; done
`, "--containers")
	printed, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	cmd.Stdout, cmd.Stderr = printed, printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var out []byte
	if !leaktest.Within(time.Minute, func() bool {
		out, _ = os.ReadFile(printed.Name())
		return bytes.HasSuffix(out, []byte("ready\n")) || ended(cmd.Process.Pid)
	}) || ended(cmd.Process.Pid) {
		t.Fatalf("the containers did not start: %s", out)
	}
	lines := strings.Fields(string(out))
	ids, parent := lines[:2], lines[2]
	if observes() && !leaktest.Within(time.Minute, func() bool { return spooled(dir, ids, "/tmp/of-the-container") }) {
		t.Fatal("what the containers did does not reach the spool")
	}
	if guard {
		pid := processOf(t, "\x00__guard\x00"+filepath.Base(filepath.Dir(parent))+"\x00")
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if !leaktest.Within(time.Minute, func() bool { return ended(pid) }) {
			t.Fatal("the guard does not end")
		}
	}
	if runner {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		recovers := func() bool { // until the guard is done
			out, err = self(t, dir, "recover", "--all").CombinedOutput()
			spools, _ := filepath.Glob(filepath.Join(dir, ".state/assay-run/spool/*"))
			return err != nil || len(spools) == 0
		}
		if !leaktest.Within(time.Minute, recovers) || err != nil {
			t.Errorf("recover: %v\n%s", err, out)
		}
		if !guard && !leaktest.Within(time.Minute, func() bool {
			_, err := os.Stat("/sys/fs/cgroup/unified" + filepath.Dir(parent))
			return os.IsNotExist(err)
		}) {
			t.Error("the guard did not remove the session")
		}
	} else {
		if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the run: %v\n%s", err, out)
		}
	}
	checkEnded(t, e, parent)
	if socket := strings.TrimPrefix(lines[3], "unix://"); e.Program == "docker" {
		if _, err := os.Stat(filepath.Dir(socket)); !os.IsNotExist(err) {
			t.Errorf("the directory of the run's socket %s was left: %v", socket, err)
		}
	}
	if _, err := os.Stat(filepath.Dir(lines[4])); !os.IsNotExist(err) {
		t.Errorf("the directory with the run's podman, %s, was left: %v", lines[4], err)
	}
	if _, err := os.Stat(filepath.Join(dir, ".state/assay-run/spool")); err == nil {
		if left, _ := filepath.Glob(filepath.Join(dir, ".state/assay-run/spool/*")); len(left) > 0 {
			t.Errorf("left in the spool: %q", left)
		}
	}
	b := attachedBundle(t, filepath.Join(dir, "run.tar.gz"))
	if want := map[bool]string{true: schema.OutcomeIncomplete,
		false: schema.OutcomeExited}[runner]; b.result.Outcome != want {
		t.Errorf("the outcome is %s", b.result.Outcome)
	}
	if observes() {
		seen := map[string]bool{}
		for _, ev := range b.events {
			if ev.Value == "/tmp/of-the-container" {
				seen[ev.ContainerID] = true
			}
		}
		if !seen[ids[0]] || !seen[ids[1]] {
			t.Errorf("the file of containers %v was opened by %v", ids, seen)
		}
	}
}

// spooled reports whether the spool of the only run says that each of these containers
// opened the path.
func spooled(dir string, ids []string, path string) bool {
	layers, _ := filepath.Glob(filepath.Join(dir, ".state/assay-run/spool/*", schema.KernelPath))
	if len(layers) != 1 {
		return false
	}
	text, _ := os.ReadFile(layers[0])
	seen := map[string]bool{}
	for line := range bytes.Lines(text) {
		for _, id := range ids {
			seen[id] = seen[id] || bytes.Contains(line, []byte(`"value":"`+path+`"`)) &&
				bytes.Contains(line, []byte(`"container_id":"`+id+`"`))
		}
	}
	return !slices.ContainsFunc(ids, func(id string) bool { return !seen[id] })
}

// ended reports whether a process has ended, reaped or not.
func ended(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}
