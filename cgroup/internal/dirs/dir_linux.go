package dirs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// has tells whether a controller's files are there, or may be.
func (d dir) has(controller string) bool {
	return d.v2 || slices.Contains(strings.Split(d.controllers, ","), controller)
}

// dir is one directory of a session or group on one hierarchy.
type dir struct {
	path        string
	v2, freezer bool
	slice       bool // of systemd's, on v2

	// Of a session's directory on v1:
	number      int    // the hierarchy's
	controllers string // joined by commas
	limited     bool   // the session has a limit there
}

// subdirs0 is the number of links of a cgroup's directory without another in it: kernfs
// counts those, which saves reading dozens of control files' names (fs/kernfs/inode.c,
// kernfs_refresh_inode).
const subdirs0 = 2

// nested lists path and every cgroup below it, parents first.
func nested(path string) []string {
	all := []string{path}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Nlink == subdirs0 {
		return all
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return all
	}
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, nested(filepath.Join(path, e.Name()))...)
		}
	}
	return all
}

// pids lists the processes in the directories and below them, each once.
// A threaded cgroup2 refuses to list processes: its threads' ids do as well,
// since a signal to one thread's id by pidfd is for its whole process. This
// process is left out: v1 lists it while one of its threads is a launcher.
func pids(dirs []dir) []int {
	var found []int
	self := os.Getpid()
	for _, d := range dirs {
		for _, path := range nested(d.path) {
			b, err := procs.ReadFile(filepath.Join(path, "cgroup.procs"))
			if errors.Is(err, unix.EOPNOTSUPP) {
				b, _ = procs.ReadFile(filepath.Join(path, "cgroup.threads"))
			}
			for len(b) > 0 {
				n := 0
				i := 0
				for ; i < len(b) && b[i] != '\n'; i++ {
					n = n*10 + int(b[i]-'0')
				}
				b = b[min(i+1, len(b)):]
				if n > 0 && n != self { // 0 is a process outside our pid namespace
					found = append(found, n)
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// empty tells whether no live process is in the directories or below.
func empty(dirs []dir) bool {
	for _, d := range dirs {
		if d.v2 {
			if n, ok := keyed(filepath.Join(d.path, "cgroup.events"), "populated"); ok && n == 0 {
				continue
			}
		}
		if len(pids([]dir{d})) > 0 {
			return false
		}
	}
	return true
}
