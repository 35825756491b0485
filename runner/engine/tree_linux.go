package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/assay-run/assay-run/cgroup/tree"
	"github.com/assay-run/assay-run/kernel/container"
	"github.com/assay-run/assay-run/runner/internal/rundir"
)

// Errors of Tree, and causes with which Follow ends an observation.
var (
	ErrVersion1 = errors.New("its engine put it only into cgroups of version 1")
	ErrStopped  = errors.New("it does not run")
	ErrRemoved  = errors.New("the container was removed")
	ErrEnded    = errors.New("the container ended")
	// ErrElsewhere means that the engine did not use the directory that Tree made.
	ErrElsewhere = errors.New("the engine put the container into another cgroup")
)

// stopped is the type of the causes with which Follow ends an observation.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

// Over reports whether Follow ended the observation, given its cause. If nothing of the container was observed by
// then, the container was missed.
func Over(cause error) bool { return errors.As(cause, &stopped{}) }

// noted stores the paths of directories in a directory of this run, so that a sweep removes them even if this process
// and its sweeper are killed.
func noted(dirs []string) (forget func()) {
	d, err := rundir.Open() // where the place does not depend on a login session
	if err != nil {
		return func() {} // then only the sweeper removes them
	}
	_ = d.NoteCgroups(dirs)
	return func() { _ = d.Remove() }
}

// directory returns the cgroup2 directory of a running container.
func directory(c *Container) (string, error) {
	path, err := tree.Of(c.PID)
	if errors.Is(err, tree.ErrNotCgroup2) {
		return "", fmt.Errorf("container %s: %w", c.Name, ErrVersion1)
	}
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("container %s: %w", c.Name, ErrEnded) // it has ended since the engine answered
	}
	if err != nil {
		return "", fmt.Errorf("container %s: %w", c.Name, err)
	}
	// A container may make cgroups inside its own. All of them belong to it.
	for dir := path; dir != "/"; dir = filepath.Dir(dir) {
		if found, ok := container.Of(filepath.Base(dir)); ok && found.ID == c.ID {
			return dir, nil
		}
	}
	if _, ok := container.Of(path); ok {
		return "", fmt.Errorf(
			"container %s: the process %d that the engine names is not in it: the engine is in another PID namespace",
			c.Name,
			c.PID,
		)
	}
	if inVersion1(c) {
		return "", fmt.Errorf("container %s: %w", c.Name, ErrVersion1)
	}
	return "", fmt.Errorf("container %s: %w: it is in %s with whoever started it", c.Name, ErrShared, path)
}

// inVersion1 reports whether a cgroup of version 1 is the container's.
func inVersion1(c *Container) bool {
	lines, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.PID))
	for line := range strings.Lines(string(lines)) {
		if found, ok := container.Of(strings.TrimSpace(line)); ok && found.ID == c.ID {
			return true
		}
	}
	return false
}

// patience is the time between two attempts to reach an engine that does not answer.
const patience = 200 * time.Millisecond
