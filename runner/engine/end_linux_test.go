package engine

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/assay-run/assay-run/.ci/enginetest"
	"github.com/assay-run/assay-run/.ci/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Of(m).Run()) }

func TestEnd(t *testing.T) {
	e := enginetest.Docker(t)
	c, ctx := New(Docker, e.Socket), context.Background()
	defer c.Close()
	parent := "/assay-engine-test-" + strconv.Itoa(os.Getpid())
	t.Cleanup(func() { e.RemoveGroups(parent) })
	start := func(command string, args ...string) string {
		return e.Run(append(append([]string{"run", "-d", "--network=none"}, args...), enginetest.Image, "sh", "-c",
			command)...)
	}
	again := start("exit 1", "--restart=always", "--cgroup-parent", parent)
	runs := start("exec sleep 600", "--name=job", "--label=a=b", "--cgroup-parent", parent)
	other := start("exec sleep 600")

	found, err := c.Below(ctx, parent)
	if err != nil || len(found) != 2 {
		t.Fatalf("containers below %s: %+v, %v", parent, found, err)
	}
	one, err := c.Container(ctx, runs)
	if err != nil || one.Name != "job" || one.Image != enginetest.Image || one.Labels["a"] != "b" || one.ID != runs {
		t.Errorf("inspect: %+v, %v", one, err)
	}
	for _, id := range []string{again, runs} {
		if err := errors.Join(c.End(ctx, id, 0), c.End(ctx, id, 0)); err != nil {
			t.Error(err)
		}
	}
	if found, err = c.Below(ctx, parent); err != nil || len(found) != 0 {
		t.Errorf("they still run: %+v, %v", found, err)
	}
	if one, err := c.Container(ctx, other); err != nil || !one.active {
		t.Errorf("a container of somebody else was ended: %+v, %v", one, err)
	}
	if _, err := c.Container(ctx, "none"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a container that is not there: %v", err)
	}
	for _, id := range []string{again, runs} {
		if policy := e.Run("inspect", "--format={{.HostConfig.RestartPolicy.Name}}", id); policy != "no" {
			t.Errorf("the engine starts it again: restart policy %s", policy)
		}
	}
	if err := c.End(ctx, "none", 0); err != nil {
		t.Error(err)
	}
}
