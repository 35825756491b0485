package dirs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// kill ends every process in the directories. It does not wait until they are
// gone, but none of them can fork any more.
func kill(dirs []dir) error {
	var rest []dir
	for _, d := range dirs {
		if !d.v2 || write(filepath.Join(d.path, "cgroup.kill"), "1") != nil {
			rest = append(rest, d)
		}
	}
	var err error
	if len(rest) > 0 && len(pids(rest)) > 0 {
		freeze(rest, true)
		err = procs.Signal(func() []int { return pids(rest) }, unix.SIGKILL)
		freeze(rest, false)
	}
	thaw(pids(dirs))
	return err
}

// freeze stops or continues everything in the directories, where one of them
// can. The kernel does it in its own time.
func freeze(dirs []dir, on bool) (done bool) {
	for _, d := range dirs {
		switch {
		case d.v2:
			done = write(filepath.Join(d.path, "cgroup.freeze"), map[bool]string{true: "1", false: "0"}[on]) == nil || done
		case d.freezer:
			if on {
				done = write(filepath.Join(d.path, "freezer.state"), "FROZEN") == nil || done
				continue
			}
			// What was frozen below, by whomever, stays so, and on v1 nothing
			// frozen dies.
			for _, path := range nested(d.path) {
				done = write(filepath.Join(path, "freezer.state"), "THAWED") == nil || done
			}
		}
	}
	return done
}

// remove removes the directories and all cgroups below, deepest first. Tasks
// that are just exiting keep a cgroup busy for a moment, and a process that
// slipped in is killed.
func remove(dirs []dir) error {
	for i := len(dirs) - 1; i >= 0; i-- { // the primary goes last
		if err := removeOne(dirs[i]); err != nil {
			return err
		}
	}
	return nil
}

func removeOne(d dir) error {
	if !d.slice {
		if err := unix.Rmdir(d.path); err == nil || err == unix.ENOENT {
			return nil
		}
	}
	wait := 50 * time.Microsecond
	deadline := time.Now().Add(2 * time.Second)
	for {
		var last error
		all := nested(d.path)
		if d.slice { // systemd removes that itself
			all = all[1:]
			if !empty([]dir{d}) {
				last = &os.PathError{Op: "remove cgroup", Path: d.path, Err: unix.EBUSY}
			}
		}
		for _, path := range slices.Backward(all) {
			if err := unix.Rmdir(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				last = &os.PathError{Op: "remove cgroup", Path: path, Err: err}
			}
		}
		if last == nil && d.slice {
			return stopSlice(d.path)
		}
		if last == nil || time.Now().After(deadline) {
			return last
		}
		if errors.Is(last, unix.EBUSY) || errors.Is(last, unix.ENOTEMPTY) {
			_ = kill([]dir{d})
		} else {
			return last
		}
		time.Sleep(wait)
		wait = min(2*wait, 20*time.Millisecond)
	}
}
