package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/schema"
)

var runEngines = map[string]func(testing.TB) *enginetest.Engine{"docker": enginetest.Docker,
	"podman": enginetest.Podman}

// withEngine is assay-run with a bash script whose $E is the engine's client and
// $IMAGE its image; the bundle is run.tar.gz in dir.
func withEngine(t *testing.T, e *enginetest.Engine, dir, script string, flags ...string) *exec.Cmd {
	t.Helper()
	cmd := self(t, dir, append(append([]string{"-q", "-o", "run.tar.gz", "--run-id", uniqueID(), "--grace", "1s"},
		flags...), "--", "bash", "-ec", script)...)
	cmd.Env = append(append(cmd.Env, e.Env...), "E="+e.Program, "IMAGE="+enginetest.Image)
	return cmd
}

// nothingLeft fails where the run with this cgroup parent has left a directory on
// any hierarchy.
func nothingLeft(t *testing.T, parent string) {
	t.Helper()
	run := filepath.Base(filepath.Dir(parent))
	if parent == "" || run == "." {
		t.Fatalf("%s is %q", "ASSAY_RUN_CGROUP_PARENT", parent)
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == run {
			t.Errorf("%s was left", path)
			return fs.SkipDir
		}
		return nil
	})
}

const detached = `
for command in 'exec tail -f /dev/null' 'exit 1'; do
	$E run -d --restart=always --network=none --cgroup-parent $ASSAY_RUN_CGROUP_PARENT $IMAGE sh -c "$command"
done
echo $ASSAY_RUN_CGROUP_PARENT
`

// Containers that outlive the command end with the run, and are named. The engine
// starts none of them again, also where it waits to.
func TestDetachedContainersEndWithTheRun(t *testing.T) {
	for name, start := range runEngines {
		t.Run(name, func(t *testing.T) {
			e, dir := start(t), t.TempDir()
			cmd := withEngine(t, e, dir, detached)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			lines := strings.Fields(string(out))
			sleeping, parent := lines[0], lines[2]
			checkEnded(t, e, parent)

			r := opened(t, dir)
			var ended []schema.Container
			in := map[string]string{}
			layerLines(t, r, schema.EventsPath, func(line []byte) {
				var ev schema.Event
				if err := json.Unmarshal(line, &ev); err != nil {
					t.Fatal(err)
				}
				ended = append(ended, ev.Containers...)
				for _, p := range ev.Processes {
					in[p.Name] = p.ContainerID
				}
			})
			want := schema.Container{ID: sleeping, Engine: name}
			if name == "docker" {
				want.Image, want.Name = enginetest.Image,
					strings.TrimPrefix(e.Run("inspect", "--format={{.Name}}", sleeping), "/")
			}
			found := false
			for _, c := range ended {
				found = found || c == want
			}
			if !found || in["tail"] != sleeping {
				t.Errorf("ended: %+v, want %+v among them; leftovers were in %v", ended, want, in)
			}
		})
	}
}

// A container that fails again and again, and has no process when the command ends,
// is started no more either.
func TestAFailingContainerEndsWithTheRun(t *testing.T) {
	e, dir := enginetest.Docker(t), t.TempDir()
	cmd := withEngine(t, e, dir, `
id=$($E run -d --restart=always --network=none --cgroup-parent $ASSAY_RUN_CGROUP_PARENT $IMAGE sh -c 'exit 1')
until [ "$($E inspect --format='{{.RestartCount}} {{.State.Restarting}}' $id)" = '3 true' ]; do :; done
echo $ASSAY_RUN_CGROUP_PARENT
`)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkEnded(t, e, strings.TrimSpace(string(out)))
	named := false
	layerLines(t, opened(t, dir), schema.EventsPath, func(line []byte) {
		named = named || bytes.Contains(line, []byte(schema.ContainersEnded)) &&
			bytes.Contains(line, []byte(enginetest.Image))
	})
	if !named {
		t.Error("the container is not named")
	}
}

// checkEnded fails where one of the engine's containers runs, or will, or where a
// cgroup of the run is left.
func checkEnded(t *testing.T, e *enginetest.Engine, parent string) {
	t.Helper()
	time.Sleep(2 * time.Second) // Docker starts again what has failed for the third time after 400 ms
	if e.Program == "docker" {  // what Podman says is what conmon wrote, which ended with the run
		if up := e.Run("ps", "--quiet"); up != "" {
			t.Errorf("these containers run: %s", up)
		}
		for _, id := range strings.Fields(e.Run("ps", "--all", "--quiet")) {
			if p := e.Run("inspect", "--format={{.HostConfig.RestartPolicy.Name}}", id); p != "no" {
				t.Errorf("Docker will start container %s again: its restart policy is %s", id, p)
			}
		}
	}
	nothingLeft(t, parent)
}

// What processes in a container do has its id, and what the runtime does to make it
// is neither the agent's nor in the surface.
func TestEventsOfContainersHaveTheirID(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	for name, start := range runEngines {
		t.Run(name, func(t *testing.T) {
			e, dir := start(t), t.TempDir()
			out, err := withEngine(t, e, dir, `
$E run --network=none --cgroup-parent $ASSAY_RUN_CGROUP_PARENT $IMAGE sh -c 'cat /etc/passwd > /tmp/inside; exec cat /tmp/inside' > /dev/null
cat /etc/passwd > outside
$E ps --all --no-trunc --quiet
`, "--kernel", "require").Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			id := strings.TrimSpace(string(out))
			r, seen, classes := opened(t, dir), map[string]string{}, map[schema.Class]int{}
			kernelEvents(t, r, func(ev *schema.KernelEvent) {
				if ev.ContainerID != "" && ev.ContainerID != id {
					t.Errorf("an event is of container %s, and there is %s alone: %+v", ev.ContainerID, id, ev)
				}
				if ev.ContainerID != "" {
					classes[ev.Class]++
				}
				if ev.Kind == schema.KindOpen && ev.Class == schema.ClassAgent &&
					(ev.Value == "/tmp/inside" || ev.Value == "/etc/passwd" ||
						ev.Value == filepath.Join(dir, "outside")) && !ev.Failed() {
					seen[filepath.Base(ev.Value)+" "+ev.Marks.String()] += ev.ContainerID
				}
				if ev.Class == schema.ClassSetup && (ev.Kind == schema.KindOpen || ev.Kind == schema.KindExec) &&
					strings.HasPrefix(ev.Value, "/tmp/inside") {
					t.Errorf("the program of the container is taken for its runtime: %+v", ev)
				}
			})
			marks := map[string]string{"docker": "mount_namespace,container", "podman": "mount_namespace"}[name]
			for _, want := range []string{"inside " + marks, "passwd " + marks} {
				if !strings.Contains(seen[want], id) {
					t.Errorf("%s is of container %q, want %s", want, seen[want], id)
				}
			}
			if seen["outside "] != "" || seen["passwd "] != "" {
				t.Errorf("what happened outside is of a container: %v", seen)
			}
			if name == "docker" && classes[schema.ClassSetup] == 0 {
				t.Errorf("nothing is of the runtime: %v", classes)
			}
			page, err := self(t, dir, "inspect", "--all", "run.tar.gz").CombinedOutput()
			if want := "containers (1)\n"; err != nil || !strings.Contains(string(page), want) ||
				!regexp.MustCompile(`(?m)^ .*`+id[:12]+` +sh -c`).Match(page) {
				t.Errorf("inspect: %v\n%s", err, page)
			}
			docs, err := r.Documents(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if p := docs.Surface.ProcessExecs; !slices.Contains(p, "/bin/busybox (mount_namespace)") ||
				slices.Contains(p, "/bin/busybox") {
				t.Errorf("programs of the surface: %q", p)
			}
			if open := docs.Health.Open; name == "docker" && len(open) > 0 {
				t.Errorf("what Docker's runtime did leaves claims open: %+v", open)
			}
		})
	}
}

// --containers puts what docker and podman make into the run, and changes nothing
// else for the command: exit codes, signals, arguments, and programs that are not there.
func TestContainersOfClientsInPath(t *testing.T) {
	for name, start := range runEngines {
		t.Run(name, func(t *testing.T) {
			e, dir := start(t), t.TempDir()
			cmd := withEngine(t, e, dir, `
echo $ASSAY_RUN_CGROUP_PARENT
$E run --rm --network=none $IMAGE grep '^0::' /proc/self/cgroup
$E --log-level error container run --rm --network=none $IMAGE sh -c 'echo "$@"; exit 3' sh run create --cgroup-parent=x || echo exit $?
id=$($E create --network=none $IMAGE grep '^0::' /proc/self/cgroup)
$E start --attach $id
echo in | $E run --rm --interactive --network=none --cgroup-parent /own-$ASSAY_RUNNER_RUN_ID $IMAGE sh -c 'cat; grep ^0:: /proc/self/cgroup'
$E ps --all | wc -l
command -v no-such-program || true
if [ $E = docker ]; then echo ${DOCKER_HOST#unix://}; else command -v $E; fi
`, "--containers", "--kernel", "off")
			cmd.Stderr = t.Output()
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if len(lines) != 9 {
				t.Fatalf("%d lines:\n%s", len(lines), out)
			}
			parent := lines[0]
			t.Cleanup(func() { e.RemoveGroups("own-" + filepath.Base(filepath.Dir(parent))) })
			for _, i := range []int{1, 4} {
				if !strings.HasPrefix(lines[i], "0::"+parent+"/") {
					t.Errorf("a container is in %s, not below %s", lines[i], parent)
				}
			}
			if lines[2] != "run create --cgroup-parent=x" || lines[3] != "exit 3" || lines[5] != "in" ||
				lines[7] != "2" {
				t.Errorf("printed:\n%s", out)
			}
			if !strings.HasPrefix(lines[6], "0::/own-") {
				t.Errorf("a container is in %s, and the caller named another cgroup", lines[6])
			}
			base := regexp.MustCompile(`^.*/assay-run-[^/]*/[^/]+/`).FindString(lines[8]) // beside those of other runs
			if _, err := os.Stat(base); base == "" || !os.IsNotExist(err) {
				t.Errorf("%s was left: %v", lines[8], err)
			}
			nothingLeft(t, parent)
		})
	}
}

// Two containers of one run, as compose makes them, whose agents call tools through
// the gateway's socket: each event is of its container and of its call.
func TestAgentsInContainersCallTools(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, start := range runEngines {
		t.Run(name, func(t *testing.T) {
			e, dir := start(t), t.TempDir()
			e.Import("agent", map[string]string{"/bin/assay-run": exe})
			out, err := withEngine(t, e, dir, `
for i in 1 2; do
	$E run --detach --network=none --env ASSAY_RUN_SOCKET=/run.sock --volume $ASSAY_RUN_SOCKET:/run.sock agent \
		sh -c "assay-run call --id tc_$i -- sh -c 'echo a > /tmp/by-$i; cat /tmp/by-$i'; echo b > /tmp/after-$i"
done
for id in $($E ps --all --quiet); do $E wait $id > /dev/null; done
`, "--containers", "--kernel", "require").CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			ids, calls := map[string]string{}, map[string]string{}
			for line := range strings.Lines(string(out)) {
				if id := strings.TrimSpace(line); len(id) == 64 {
					ids[strconv.Itoa(len(ids)+1)] = id
				}
			}
			kernelEvents(t, opened(t, dir), func(ev *schema.KernelEvent) {
				what, i, ok := strings.Cut(strings.TrimPrefix(ev.Value, "/tmp/"), "-")
				if ev.Kind != schema.KindOpen || !ok || what != "by" && what != "after" ||
					ev.Value != "/tmp/"+what+"-"+i {
					return
				}
				calls[what+i] = ev.ToolCallID + " " + ev.BoundBy
				if ev.ContainerID != ids[i] || ids[i] == "" {
					t.Errorf("%s is of container %q, want %q", ev.Value, ev.ContainerID, ids[i])
				}
			})
			want := map[string]string{"by1": "tc_1 cgroup", "by2": "tc_2 cgroup", "after1": " ", "after2": " "}
			if d := cmp.Diff(want, calls); d != "" {
				t.Errorf("calls that events are bound to (-want +got):\n%s", d)
			}
		})
	}
}

// A check that asks the engine is not the command, and its containers are the run's. A limit that does not hold for
// containers is said, also of those that ended before the command.
func TestAChecksContainers(t *testing.T) {
	e, dir := enginetest.Docker(t), t.TempDir()
	check := `set -e
$E ps > /dev/null
at=$($E run --rm --network=none --cgroup-parent "$ASSAY_RUN_CGROUP_PARENT" $IMAGE cat /proc/self/cgroup)
case "$at" in *assay-run*) ;; *) echo "$at"; exit 1 ;; esac
case "$DOCKER_HOST" in *docker.sock) ;; *) echo "$DOCKER_HOST"; exit 1 ;; esac
`
	if err := os.WriteFile(filepath.Join(dir, "check.sh"), []byte(check), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "description: the engine answers\nchecks: [{name: engine, command: bash check.sh}]\n"
	if err := os.WriteFile(filepath.Join(dir, "contract.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := withEngine(t, e, dir, "$E run --rm --network=none $IMAGE true", "--containers", "--memory", "512m",
		"--contract", "contract.yaml", "--contract-baseline")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	codes := map[string]bool{}
	docs, err := opened(t, dir).Documents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range docs.Health.Reasons {
		codes[r.Code] = true
	}
	if codes["engine_asked"] {
		t.Error("what a check asked the engine counts as the command's")
	}
	if _, err := os.Stat("/sys/fs/cgroup/unified"); err == nil && !codes["containers_unlimited"] {
		t.Error("a limit that did not hold for a container which ended is not said")
	}
}
