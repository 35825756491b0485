package dirs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// containersName is the directory of a session below which container engines make
// cgroups. It holds no process itself, so that on cgroup2 they can switch
// controllers on in it, and it is the session's own, so that who runs us can end
// what another user's engine put there.
const containersName = "containers"

// outskirts is what an engine makes for the session's containers on hierarchies
// where the session has no directory: it knows one path and uses it on all. Until then
// they are names only. They are in use as long as the session's directory on the primary
// hierarchy is there, which is made first and removed last (see Sweep).
type outskirts struct {
	dirs []dir
	// above are the directories over those that were not there when the session
	// began, the deepest first.
	above []string
}

// outskirts of a session whose directory below the root of each hierarchy is path.
func (h *Host) outskirts(path string, has []dir) (o outskirts) {
	var seen []string
	for _, m := range h.mounts {
		d := dir{path: filepath.Join(m.dir, path), v2: m.v2, freezer: slices.Contains(m.controllers, "freezer")}
		if slices.Contains(seen, m.id) || slices.ContainsFunc(has, func(own dir) bool { return own.path == d.path }) {
			continue
		}
		if !exists(m.dir) { // nobody makes or removes anything where this user may not look
			continue
		}
		seen = append(seen, m.id)
		o.dirs = append(o.dirs, d)
		above := filepath.Dir(d.path)
		for o.above = append(o.above, above); ; o.above = append(o.above, above) {
			if above = filepath.Dir(above); len(above) <= len(m.dir) || exists(above) {
				break
			}
		}
	}
	return o
}

// claimOutskirts makes and locks those on v1 now, for a run that will have containers:
// sweeps of earlier builds look at nothing but the lock. Where we may not, no engine that
// runs as us makes any.
func (s *Session) claimOutskirts() {
	for _, m := range s.host.mounts {
		path := filepath.Join(m.dir, below(s.mount, s.Path()))
		h := &hierarchy{mount: m.dir, v2: m.v2, controllers: m.controllers}
		if h.v2 || !h.useful(false) || !slices.ContainsFunc(s.outskirts.dirs, func(d dir) bool { return d.path == path }) {
			continue
		}
		base := filepath.Dir(filepath.Dir(path))
		if os.MkdirAll(base, 0o755) == nil {
			_, _ = s.create(place{h: h, base: base})
		}
	}
}

// tidy removes what is above the directories, once no session is left beside this
// one whose engine could be making something there.
func tidy(above []string) {
	for _, path := range above {
		_ = unix.Rmdir(path)
	}
}

// below is a directory of a hierarchy as its root sees it.
func below(mount, path string) string {
	return "/" + strings.Trim(strings.TrimPrefix(path, mount), "/")
}

// CgroupParent is the session's directory for containers as an engine takes it: a
// path below the root of each hierarchy, or the name of a slice.
func (s *Session) CgroupParent() string {
	if s.containers.slice {
		return filepath.Base(s.containers.path)
	}
	return filepath.Join(below(s.mount, s.dirs[0].path), containersName)
}

// Apart tells whether a hierarchy with a limit has the session elsewhere than where
// an engine puts the containers: they are not limited then.
func (s *Session) Apart() bool {
	for _, d := range s.dirs[1:] {
		for _, m := range s.host.mounts {
			if strings.HasPrefix(d.path, m.dir+"/") && below(m.dir, d.path) != below(s.mount, s.dirs[0].path) {
				return true
			}
		}
	}
	return false
}

// makeContainers makes the directory on the primary hierarchy.
func (s *Session) makeContainers() error {
	s.containers = s.dirs[0]
	s.containers.path = containersPath(s.dirs[0])
	if s.containers.slice {
		if err := startSlice(s.containers.path, s.runID, Limits{}); err != nil {
			return err
		}
	} else if err := makeDir(s.containers.path); err != nil {
		return err
	}
	// The kernel keeps a cgroup directory's times only after a call that sets an
	// attribute (fs/kernfs/inode.c); from then on they tell of what comes and goes in it.
	if err := os.Chmod(s.containers.path, 0o755); err != nil {
		return err
	}
	s.untouched = modified(s.containers.path)
	return nil
}

// modified is when an entry of a directory was last made or removed; zero if unknown.
func modified(path string) (t unix.Timespec) {
	var st unix.Stat_t
	if unix.Stat(path, &st) == nil {
		t = st.Mtim
	}
	return t
}

// HadContainers tells whether an engine has made a cgroup below CgroupParent,
// which may have gone since.
func (s *Session) HadContainers() bool { return modified(s.containers.path) != s.untouched }

// NoContainers makes the kernel refuse further containers, where it can: an engine
// may otherwise start again what we end. See cgroup.max.descendants in cgroup-v2.rst.
func (s *Session) NoContainers() {
	if s.containers.v2 {
		_ = write(filepath.Join(s.containers.path, "cgroup.max.descendants"), "0")
	}
}

// Containers are the cgroups in which there are containers, or what supervises
// them, below CgroupParent.
func (s *Session) Containers() []string {
	var found []string
	for _, path := range nested(s.containers.path)[1:] {
		found = append(found, strings.TrimPrefix(path, s.containers.path))
	}
	return found
}
