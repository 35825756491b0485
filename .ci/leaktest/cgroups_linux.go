package leaktest

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// runs finds the cgroups of runs on every hierarchy, live or not.
func runs() map[string]bool {
	found := map[string]bool{}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir
		}
		if d.IsDir() && filepath.Base(filepath.Dir(path)) == "assay-run" {
			found[path] = true
			return fs.SkipDir
		}
		return nil
	})
	return found
}

// cgroups names the cgroups of runs that were made meanwhile and that no runner or guard
// holds. They may be another test binary's, but no test may leave any.
func (c *checked) cgroups() (left []string) {
	for path := range runs() {
		if !c.runs[path] && !held(path) {
			left = append(left, "cgroup "+path)
		}
	}
	return left
}

// held reports whether a process holds the lock of a run's cgroup. On a hierarchy that only
// the run's containers use, the lock is where the run has its processes.
func held(path string) bool {
	if run := filepath.Join("/sys/fs/cgroup/unified/assay-run", filepath.Base(path)); run != path {
		if _, err := os.Stat(run); err == nil && held(run) {
			return true
		}
	}
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true // it was just removed, or belongs to another user
	}
	defer unix.Close(fd)
	return unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) != nil
}
