package dirs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// A slice of systemd's is where its name says: "a-b.slice" is below "a.slice". The
// session's has no dash, so nothing above it is left behind. No run id has a dot.
const (
	slicePrefix      = "assay_run_"
	sliceSuffix      = ".slice"
	containersSuffix = "-" + containersName + sliceSuffix
)

func sliceName(runID string) string {
	return slicePrefix + strings.ReplaceAll(runID, "-", ".") + sliceSuffix
}

func sliceRunID(name string) string {
	return strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(name, slicePrefix), sliceSuffix), ".", "-")
}

// containersPath is the directory for containers of the session in a directory.
func containersPath(session dir) string {
	if session.slice {
		return filepath.Join(session.path, strings.TrimSuffix(filepath.Base(session.path), sliceSuffix)+containersSuffix)
	}
	return filepath.Join(session.path, containersName)
}

// Slices tells whether a session can be a slice of the systemd that has the hierarchy
// that is seen here, and whose process 1 is in init.scope.
func (h *Host) Slices() bool {
	return h.mode == Unified && os.Geteuid() == 0 && exists("/run/systemd/system") && exists(filepath.Join(h.v2.mount, "init.scope"))
}

// createSlice makes and locks a slice that is the session, with its limits: systemd sets
// again what it knows of, and nothing else. It is at the top of the hierarchy, outside
// of the runner's own unit.
func (s *Session) createSlice(p place, l Limits) (dir, error) {
	d := dir{path: filepath.Join(p.base, sliceName(s.runID)), v2: true, slice: true}
	making, err := lockMaking(p.base, systemdTime)
	if err != nil {
		return dir{}, err
	}
	defer unix.Close(making)
	for end := time.Now().Add(procs.LockWait); ; time.Sleep(procs.LockLook) {
		err := endStale(d, s.runID)
		if err == nil {
			err = startSlice(d.path, s.runID, l)
		}
		if err == nil {
			lock, err := lockDir(d.path)
			if err != nil {
				return dir{}, errors.Join(err, stopSlice(d.path))
			}
			s.locks = append(s.locks, lock)
			return d, nil
		}
		if !errors.Is(err, procs.ErrInUse) || time.Now().After(end) {
			return dir{}, err
		}
	}
}

// lockMaking takes the lock that keeps others from making slices and from sweeping them: a
// slice that is just being made has no lock of its own.
func lockMaking(mount string, patience time.Duration) (int, error) {
	fd, err := unix.Open(mount, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: mount, Err: err}
	}
	for end := time.Now().Add(patience); ; time.Sleep(procs.LockLook) {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return fd, nil
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR || !time.Now().Before(end) {
			unix.Close(fd)
			return -1, &os.PathError{Op: "lock", Path: mount, Err: err}
		}
	}
}

// endStale ends the session that a dead runner left as this slice, if one did. The error
// wraps procs.ErrInUse if the slice is somebody's.
func endStale(d dir, runID string) error {
	lock, err := lockDir(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
		return nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("cgroup %s: %w", d.path, procs.ErrInUse)
	case err != nil:
		return err
	}
	defer unix.Close(lock)
	if ours, err := isOurs(d, runID); err != nil {
		return err
	} else if !ours {
		return fmt.Errorf("somebody else's slice %s: %w", d.path, procs.ErrInUse)
	}
	return sweepDir(d, func() {})
}

// sweepSlices does what sweep does, for sessions that are slices.
func (h *Host) sweepSlices(found map[string]*Swept, last func(parent, note string)) error {
	if !h.Slices() {
		return nil
	}
	paths, _ := filepath.Glob(filepath.Join(h.v2.mount, slicePrefix+"?*"+sliceSuffix))
	if len(paths) == 0 {
		return nil
	}
	making, err := lockMaking(h.v2.mount, 0)
	if err != nil {
		return nil // one is just being made: sweeping can wait for the next run
	}
	stale := map[string]int{}
	for _, path := range paths {
		if lock, err := lockDir(path); err == nil {
			stale[path] = lock
		}
	}
	unix.Close(making)
	var failed error
	for path, lock := range stale {
		id, d := sliceRunID(filepath.Base(path)), dir{path: path, v2: true, slice: true}
		if ours, err := isOurs(d, id); err != nil || !ours {
			failed = errors.Join(failed, err)
		} else {
			if found[id] == nil {
				found[id] = &Swept{RunID: id}
			}
			found[id].Killed += len(pids([]dir{d}))
			text := note(d)
			found[id].Err = errors.Join(found[id].Err, sweepDir(d, func() {
				if text != "" {
					last(filepath.Base(containersPath(d)), text)
				}
			}))
		}
		unix.Close(lock)
	}
	return failed
}
