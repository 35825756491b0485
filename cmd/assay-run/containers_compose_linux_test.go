package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/schema"
)

// The services of a compose file that says nothing of cgroups are in the run, and a
// service with a cgroup parent of its own keeps it. inspect names them, below the
// program that asked for them.
func TestCompose(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	if _, err := exec.LookPath("docker-compose"); err != nil {
		t.Skip("no docker-compose: make deps installs it")
	}
	e, dir := enginetest.Docker(t), t.TempDir()
	own := "/own-" + uniqueID()
	t.Cleanup(func() { e.RemoveGroups(own) })
	service := func(name, more string) string {
		return "\n  " + name + `: {image: assay-test, network_mode: none, volumes: [".:/out"], command: [sh, -c, "grep ^0:: /proc/self/cgroup > /out/` + name + `"]` + more + "}"
	}
	file := "version: '2.4'\nservices:" + service("one", "") + service("two", "") +
		service("apart", ", cgroup_parent: "+own)
	if err := os.WriteFile(filepath.Join(dir, "docker-compose.yml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := withEngine(t, e, dir, `
echo $ASSAY_RUN_CGROUP_PARENT > parent
docker-compose --project-name p up
docker-compose --project-name p down
`, "--containers", "--kernel", "require").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.TrimSpace(string(b))
	}
	parent := read("parent")
	for name, want := range map[string]string{"one": parent, "two": parent, "apart": own} {
		if at := read(name); !strings.HasPrefix(at, "0::"+want+"/") {
			t.Errorf("%s is in %s, and not below %s", name, at, want)
		}
	}
	page, err := self(t, dir, "inspect", "--all", "run.tar.gz").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, page)
	}
	for _, want := range []string{
		`containers \(2\)\n`, `[0-9a-f]{12} p_one_1 assay-test sh -c `, `[0-9a-f]{12} p_two_1 assay-test sh -c `,
		`(?m)^    [0-9]+ .*docker-compose --project-name p up\n(      .*\n)*        .* grep '.0::'`,
	} {
		if !regexp.MustCompile(want).Match(page) {
			t.Errorf("inspect has no %s:\n%s", want, page)
		}
	}
	nothingLeft(t, parent)
}

// podman-compose runs the client once for each service. Each of them is in the run, also one
// that goes on in the background, which ends with the run.
func TestPodmanCompose(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	if _, err := exec.LookPath("podman-compose"); err != nil {
		t.Skip("no podman-compose: make deps installs it")
	}
	e, dir := enginetest.Podman(t), t.TempDir()
	service := func(name, then string) string {
		return "\n  " + name + `: {image: assay-test, volumes: [".:/out"], command: [sh, -c, "grep ^0:: /proc/self/cgroup > /out/.` + name + ` && mv /out/.` + name + ` /out/` + name + `; ` + then + `"]}`
	}
	file := "version: '2.4'\nnetworks: {default: {external: true, name: " + enginetest.Network + "}}\nservices:" +
		service("one", "exit 0") + service("two", "exec tail -f /dev/null")
	if err := os.WriteFile(filepath.Join(dir, "docker-compose.yml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := withEngine(t, e, dir, `
echo $ASSAY_RUN_CGROUP_PARENT > parent
podman-compose --project-name p up --detach
until [ -s one ] && [ -s two ]; do sleep 0.05; done
podman inspect --format '{{.Id}}' p_one_1 p_two_1 > ids
`, "--containers", "--kernel", "require").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	read := func(name string) []string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.Fields(string(b))
	}
	parent, ids := read("parent")[0], read("ids")
	for i, name := range []string{"one", "two"} {
		if at := read(name)[0]; at != "0::"+parent+"/libpod-"+ids[i] {
			t.Errorf("%s is in %s, and not below %s", name, at, parent)
		}
	}
	b := attachedBundle(t, filepath.Join(dir, "run.tar.gz"))
	for i, name := range []string{"one", "two"} {
		if !slices.ContainsFunc(b.events, func(ev schema.KernelEvent) bool {
			return ev.Kind == schema.KindOpen && ev.Value == "/out/."+name && ev.ContainerID == ids[i]
		}) {
			t.Errorf("no event of container %s opens /out/.%s", ids[i], name)
		}
	}
	if ended := eventsOf(t, opened(t, dir), schema.ContainersEnded); len(ended) != 1 || len(ended[0].Containers) != 1 ||
		ended[0].Containers[0].ID != ids[1] {
		t.Errorf("ended: %+v, want %s", ended, ids[1])
	}
	nothingLeft(t, parent)
}

// What a container does belongs to the call whose command asked for it, also where
// another call is open.
func TestAContainerBelongsToTheCallThatRanIt(t *testing.T) {
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
			cmd := withEngine(t, e, dir, `
for i in 1 2; do
	(exec -a assay-run "$ASSAY" call --id tc_$i -- $E run --network=none $IMAGE sh -c "echo a > /tmp/by-$i; exec cat /tmp/by-$i") &
done
$E run --network=none $IMAGE sh -c 'echo a > /tmp/by-none'
wait
`, "--containers", "--kernel", "require")
			cmd.Env = append(cmd.Env, "ASSAY="+exe)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			calls := map[string]string{}
			kernelEvents(t, opened(t, dir), func(ev *schema.KernelEvent) {
				if i, ok := strings.CutPrefix(ev.Value, "/tmp/by-"); ok && ev.Kind == schema.KindOpen {
					calls[i] = ev.ToolCallID + " " + ev.BoundBy
				}
			})
			if d := cmp.Diff(map[string]string{"1": "tc_1 lineage", "2": "tc_2 lineage", "none": " "}, calls); d != "" {
				t.Errorf("calls that events are bound to (-want +got):\n%s", d)
			}
		})
	}
}
