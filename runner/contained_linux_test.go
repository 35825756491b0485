package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// A run that fails before it starts leaves no cgroup and no guard.
func TestContainedIsRemovedWithoutARun(t *testing.T) {
	spec := specfile.New()
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

// What Contain has read of the spec's files is not read again, even if it cannot be used.
func TestFilesAreReadOnce(t *testing.T) {
	dir := t.TempDir()
	spec := specfile.New("true")
	spec.Policy, spec.Evaluation = filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "evaluation.yaml")
	for name, text := range map[string]string{spec.Policy: "limits: {pids: 77}\n", spec.Evaluation: "no: file\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := Contain(spec, Options{})
	defer c.Close()
	if c.limits.Pids != 77 {
		t.Errorf("the session has %d pids", c.limits.Pids)
	}
	for _, name := range []string{spec.Policy, spec.Evaluation} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	opt, err := readFiles(spec, Options{Contained: c})
	if err != nil || opt.Policy == nil || opt.unusable == nil || errors.Is(opt.unusable, fs.ErrNotExist) {
		t.Fatalf("policy %v, %v; evaluation file: %v", opt.Policy, err, opt.unusable)
	}
	if pids := under(spec, opt).Limits.Pids; pids != 77 {
		t.Errorf("the run has %d pids", pids)
	}
}

// What has not begun when it is closed never begins.
func TestContainedClosedAtOnce(t *testing.T) {
	spec := specfile.New()
	spec.RunID, spec.Command = schema.NewID(), []string{"true"}
	c := newContained(spec, Options{}, cgroup.Probe, false)
	c.Close()
	c.begin(false)
	if c.session != nil {
		t.Error("a session was made")
	}
}
