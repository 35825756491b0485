package dirs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// has reports whether a controller's files exist or may exist.
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

// empty reports whether no live process is in the directories or below.
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

// words reads a file of words; nil when it cannot be read.
func words(path string) []string {
	b, err := procs.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}

// keyed reads one value of a flat keyed cgroup file.
func keyed(path, key string) (int64, bool) {
	w := words(path)
	for i := 0; i+1 < len(w); i += 2 {
		if w[i] == key {
			n, err := strconv.ParseInt(w[i+1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// number reads a file of one number.
func number(path string) (int64, bool) {
	w := words(path)
	if len(w) != 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(w[0], 10, 64)
	return n, err == nil
}

// exists reports whether there is such a file.
func exists(path string) bool { return unix.Access(path, unix.F_OK) == nil }

// write writes a whole value to an existing cgroup file in one system call.
func write(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	for {
		switch _, err := unix.Write(fd, []byte(value)); err {
		case nil:
			return nil
		case unix.EINTR:
		default:
			return &os.PathError{Op: "write " + value + " to", Path: path, Err: err}
		}
	}
}

// makeDir makes a cgroup. The error is an *os.PathError, or a *procs.FullError where
// the host has room for no more.
func makeDir(path string) error { return notMade(path, unix.Mkdir(path, 0o755)) }

// notMade explains why the kernel did not make a cgroup (cgroup_mkdir in kernel/cgroup/cgroup.c):
// EAGAIN means a limit of a cgroup above, ENOSPC that no id is left: the memory controller has
// 65,535.
func notMade(path string, err error) error {
	switch err {
	case nil:
		return nil
	case unix.EAGAIN:
		e := &procs.FullError{Path: path, Err: err,
			Reason: "a cgroup above has a limit for cgroups below it that is reached",
			Remedy: "raise cgroup.max.descendants and cgroup.max.depth of the cgroups above " + filepath.Dir(path) +
				", outside of this container"}
		if file, most := limitAbove(path); file != "" {
			e.Reason, e.Remedy = fmt.Sprintf("the limit in %s is reached (%d)", file, most),
				"raise it: echo max > "+file
		}
		return e
	case unix.ENOSPC:
		return &procs.FullError{Path: path, Err: err, Reason: "the kernel has no id left for another cgroup",
			Remedy: "remove cgroups that nobody uses (/proc/cgroups counts them); removed ones keep their ids while " +
				"files that they read are cached: echo 3 > /proc/sys/vm/drop_caches"}
	}
	return &os.PathError{Op: "create cgroup", Path: path, Err: err}
}

// limitAbove finds the cgroup.max.descendants or cgroup.max.depth that keeps a cgroup
// from being made, and its value. The file is empty if none is visible.
func limitAbove(path string) (file string, most int64) {
	depth := int64(0)
	for dir := filepath.Dir(path); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		below, _ := keyed(filepath.Join(dir, "cgroup.stat"), "nr_descendants")
		for name, now := range map[string]int64{"cgroup.max.descendants": below, "cgroup.max.depth": depth} {
			if most, limited := number(filepath.Join(dir, name)); limited && now >= most {
				return filepath.Join(dir, name), most
			}
		}
		depth++
	}
	return "", 0
}

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

// freeze stops or continues everything in the directories, and reports whether one of them supports it. It does not
// wait for the kernel to finish.
func freeze(dirs []dir, on bool) (done bool) {
	for _, d := range dirs {
		switch {
		case d.v2:
			done = write(filepath.Join(d.path, "cgroup.freeze"), map[bool]string{true: "1", false: "0"}[on]) == nil ||
				done
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

// thaw moves processes of the session out of v1 freezer cgroups that are not the session's, into this process's own
// cgroup. This thaws them: on v1, a frozen process does not die. Other processes in those cgroups stay frozen.
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
