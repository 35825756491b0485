package dirs

import (
	"os"
	"path/filepath"
	"strconv"
)

// thaw gets processes out of v1 freezer cgroups that are none of the session's,
// into which they have gone or been put: what is frozen on v1 does not die. Only
// the processes themselves are moved, to where we are, which thaws them: others in
// those cgroups may be frozen for a reason.
func thaw(members []int) {
	if len(members) == 0 {
		return
	}
	own, mounted := freezerOf("self")
	if !mounted {
		return
	}
	var home string
	for _, pid := range members {
		path, ok := freezerOf(strconv.Itoa(pid))
		if !ok || path == own {
			continue
		}
		if home == "" {
			if home = freezerHome(); home == "" {
				return
			}
		}
		_ = write(filepath.Join(home, "cgroup.procs"), strconv.Itoa(pid))
	}
}

// freezerOf is the cgroup of a process in the v1 hierarchy of the freezer.
func freezerOf(pid string) (path string, ok bool) {
	m, err := memberOf(pid)
	in, ok := m.v1["freezer"]
	return in.path, ok && err == nil
}

// freezerHome is the directory of our own cgroup there, empty where it cannot be
// written to.
func freezerHome() string {
	_, v1, _, _ := hierarchies()
	for _, h := range v1 {
		if f, err := os.OpenFile(filepath.Join(h.own, "cgroup.procs"), os.O_WRONLY, 0); h.has("freezer") && err == nil {
			f.Close()
			return h.own
		}
	}
	return ""
}
