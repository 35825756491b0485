package runner

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/schema"
)

// A run that fails before it starts leaves no cgroup and no guard.
func TestContainedIsRemovedWithoutARun(t *testing.T) {
	spec := New()
	spec.RunID, spec.Command = schema.NewID(), []string{"true"}
	c := Contain(spec, Options{})
	c.begin(false)
	if c.err != nil {
		t.Fatal(c.err)
	}
	path, guard := c.session.Path(), c.guard.PID()
	if path != "" {
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Kill(guard, 0); err != nil {
		t.Fatalf("the guard %d: %v", guard, err)
	}
	c.Close()
	if _, err := os.Stat(path); path != "" && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", path, err)
	}
}

// What has not begun when it is closed never begins.
func TestContainedClosedAtOnce(t *testing.T) {
	spec := New()
	spec.RunID, spec.Command = schema.NewID(), []string{"true"}
	c := newContained(spec, Options{}, cgroup.Probe, false)
	c.Close()
	c.begin(false)
	if c.session != nil {
		t.Error("a session was made")
	}
}
