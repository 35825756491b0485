package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// restarts are how a Docker daemon treats its containers when it starts again after
// it was killed: it keeps them, or ends them.
var restarts = map[string]func(testing.TB) *enginetest.Engine{
	"with live-restore":    func(t testing.TB) *enginetest.Engine { return enginetest.DockerWith(t, "--live-restore") },
	"without live-restore": enginetest.Docker,
}

// A run outlives its engine: it has what containers do before and after, names those
// that it ended, and leaves nothing.
func TestTheEngineRestartsDuringARun(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	for name, start := range restarts {
		t.Run(name, func(t *testing.T) {
			e, dir := start(t), t.TempDir()
			cmd := withEngine(t, e, dir, `
echo $ASSAY_RUN_CGROUP_PARENT > parent
$E run -d --name=stays --restart=always --stop-signal=KILL --network=none -v $PWD:/w $IMAGE sh -c 'until [ -e /w/back ]; do sleep 0.1; done; cat /etc/group > /w/after; exec sleep 600'
touch started
until [ -e back ]; do sleep 0.1; done
until [ -s after ]; do sleep 0.1; done
$E run --rm --name=later --network=none $IMAGE touch /tmp/later
`, "--containers")
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			if !leaktest.Within(time.Minute, func() bool {
				_, err := os.Stat(filepath.Join(dir, "started"))
				return err == nil
			}) {
				t.Fatalf("the container does not start:\n%s", out.String())
			}
			e.Crash()
			if err := os.WriteFile(filepath.Join(dir, "back"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			parent, err := os.ReadFile(filepath.Join(dir, "parent"))
			if err != nil {
				t.Fatal(err)
			}
			checkEnded(t, e, strings.TrimSpace(string(parent)))
			r := opened(t, dir)
			id, seen, ended := e.Run("inspect", "--format={{.Id}}", "stays"), map[string]string{},
				eventsOf(t, r, schema.ContainersEnded)
			kernelEvents(t, r, func(ev *schema.KernelEvent) {
				if ev.Kind == schema.KindOpen {
					seen[ev.Value] = ev.ContainerID
				}
			})
			if seen["/w/after"] != id || seen["/tmp/later"] == "" || seen["/tmp/later"] == id {
				t.Errorf("what happened after the restart is of %q and %q", seen["/w/after"], seen["/tmp/later"])
			}
			if len(ended) != 1 || len(ended[0].Containers) != 1 || ended[0].Containers[0].Name != "stays" {
				t.Errorf("ended: %+v", ended)
			}
		})
	}
}

// Where the engine is gone when the run ends, its containers end, and the bundle says
// that the engine may start them again.
func TestTheEngineIsGoneWhenTheRunEnds(t *testing.T) {
	e, dir := enginetest.Docker(t), t.TempDir()
	cmd := withEngine(t, e, dir, `
echo $ASSAY_RUN_CGROUP_PARENT > parent
$E run -d --name=stays --restart=always --network=none -v $PWD:/w $IMAGE sh -c 'echo > /w/started; exec sleep 600'
until [ -e started ]; do sleep 0.1; done
kill -KILL $DAEMON
until grep -q ') Z ' /proc/$DAEMON/stat; do sleep 0.05; done
`, "--containers", "--kernel", "off")
	cmd.Env = append(cmd.Env, "DAEMON="+strconv.Itoa(e.Daemon()))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := opened(t, dir)
	docs, err := r.Documents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(docs.Health.Reasons, func(r schema.Reason) bool {
		return r.Code == "containers_may_restart"
	}) {
		t.Errorf("the health does not say that the engine may start them again: %+v", docs.Health.Reasons)
	}
	if ended := eventsOf(t, r, schema.ContainersEnded); len(ended) != 1 || len(ended[0].Containers) != 1 {
		t.Errorf("ended: %+v", ended)
	}
	parent, err := os.ReadFile(filepath.Join(dir, "parent"))
	if err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, strings.TrimSpace(string(parent)))
	e.Crash() // and it starts again, so that it can be cleaned up
	e.RemoveGroups(filepath.Dir(strings.TrimSpace(string(parent))))
}

// eventsOf are the lifecycle events of a type.
func eventsOf(t *testing.T, r *archive.Reader, kind string) (list []schema.Event) {
	t.Helper()
	layerLines(t, r, schema.EventsPath, func(line []byte) {
		var ev schema.Event
		if err := json.Unmarshal(line, &ev); err != nil {
			t.Fatal(err)
		}
		if ev.Type == kind {
			list = append(list, ev)
		}
	})
	return list
}

// attach goes on when the engine is killed and starts again: what it records is the
// container's, until that ends.
func TestTheEngineRestartsDuringAttach(t *testing.T) {
	for name, start := range restarts {
		t.Run(name, func(t *testing.T) {
			e, shared := start(t), t.TempDir()
			e.Run("run", "--detach", "--stop-signal=KILL", "--network=none", "--name=box", "-v", shared+":/w",
				enginetest.Image,
				"sh", "-c", "echo > /w/ready; until [ -e /w/back ]; do sleep 0.05; done; cat /etc/group > /w/after")
			if !leaktest.Within(time.Minute, func() bool {
				_, err := os.Stat(filepath.Join(shared, "ready"))
				return err == nil
			}) {
				t.Fatal("the container does not start")
			}
			bundle := filepath.Join(t.TempDir(), "b.tar.gz")
			a := attachTo(t, e, "attached to", "--container", "box", "-o", bundle)
			e.Crash()
			if err := os.WriteFile(filepath.Join(shared, "back"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			a.ends(0)
			b := attachedBundle(t, bundle)
			if b.opened("/w/after") != (name == "with live-restore") || b.has("detached_early") ||
				!b.has("attached_late") {
				t.Errorf("%+v\n%s", b.health.Reasons, b)
			}
		})
	}
}
