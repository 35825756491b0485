package dirs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Sweep kills and removes the sessions that dead runners left behind, in the
// runner's own cgroup and those above it. A live runner and a live guard hold
// locks on the session's directories, on every hierarchy, so their sessions are
// never touched. Neither is what has the path, on another hierarchy, of a session's
// directory on the primary one: it goes with that (see outskirts). In mode None there is
// nothing to find: Swept is empty. Before it removes a session with a note, with nobody
// left in it, it calls last with the session's CgroupParent and the note.
func (h *Host) Sweep(last func(parent, note string)) ([]Swept, error) {
	found := map[string]*Swept{}
	var failed error
	for _, l := range h.inOrder() {
		for base := l.own; ; base = filepath.Dir(base) {
			if err := h.sweep(l, filepath.Join(base, parentName), found, last); err != nil {
				failed = errors.Join(failed, err)
			}
			if base == l.mount || !strings.HasPrefix(base, l.mount) {
				break
			}
		}
	}
	failed = errors.Join(failed, h.sweepSlices(found, last))
	var swept []Swept
	for _, s := range found {
		swept = append(swept, *s)
	}
	slices.SortFunc(swept, func(a, b Swept) int { return strings.Compare(a.RunID, b.RunID) })
	return swept, failed
}

// inOrder is the hierarchies, with the primary one, if any, first.
func (h *Host) inOrder() []*hierarchy {
	p := h.primary()
	if p == nil {
		return h.v1
	}
	return append([]*hierarchy{p}, slices.DeleteFunc(slices.Clone(h.v1), func(l *hierarchy) bool { return l == p })...)
}

// sweep does it for the sessions in one directory. Most often there is none, or there is
// our own alone.
func (h *Host) sweep(l *hierarchy, parent string, found map[string]*Swept, last func(parent, note string)) error {
	var st unix.Stat_t
	if ours := h.ours(parent); ours > 0 && unix.Stat(parent, &st) == nil && int(st.Nlink) == subdirs0+ours {
		return nil
	}
	fd, err := unix.Open(parent, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return &os.PathError{Op: "open", Path: parent, Err: err}
	}
	// A session is made under a shared lock of the parent. If one is just
	// being made, sweeping can wait for the next run.
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		unix.Close(fd)
		return nil
	}
	stale := map[string]int{}
	locked := "/proc/self/fd/" + strconv.Itoa(fd) // parent may be another by now
	entries, err := os.ReadDir(locked)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // the last session just went, and this with it
	}
	for _, e := range entries {
		if e.IsDir() {
			if lock, err := lockDir(filepath.Join(locked, e.Name())); err == nil {
				stale[e.Name()] = lock
			}
		}
	}
	unix.Close(fd)
	var above []string
	primary := h.primary()
	for name, lock := range stale {
		if l != primary && exists(filepath.Join(primary.mount, below(l.mount, filepath.Join(parent, name)))) {
			unix.Close(lock)
			continue
		}
		id := strings.TrimSuffix(name, guardSuffix)
		if found[id] == nil {
			found[id] = &Swept{RunID: id}
		}
		d := dir{path: filepath.Join(parent, name), v2: l.v2, freezer: l.has("freezer")}
		found[id].Killed += len(pids([]dir{d}))
		ended := func() {}
		if text := note(d); text != "" {
			ended = func() { last(filepath.Join(below(l.mount, d.path), containersName), text) }
		}
		if err := sweepDir(d, ended); err != nil {
			found[id].Err = errors.Join(found[id].Err, err)
		}
		if l == primary { // whose lock a new session of that id takes first
			o := h.outskirts(below(l.mount, d.path), []dir{d})
			found[id].Err = errors.Join(found[id].Err, remove(o.dirs))
			above = append(above, o.above...)
		}
		unix.Close(lock)
	}
	if unix.Rmdir(parent) == nil {
		tidy(above)
	}
	return err
}

// sweepDir ends and removes one stale session directory. Between the two, it calls last.
func sweepDir(d dir, last func()) error {
	dirs := []dir{d}
	(&Session{containers: dir{path: containersPath(d), v2: d.v2}}).NoContainers()
	if err := kill(dirs); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := wait(ctx, dirs); err != nil {
		return err
	}
	last()
	return remove(dirs)
}
