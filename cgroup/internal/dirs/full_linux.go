package dirs

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// makeDir makes a cgroup. The error is an *os.PathError, or a *procs.FullError where
// the host has room for no more.
func makeDir(path string) error { return notMade(path, unix.Mkdir(path, 0o755)) }

// notMade sorts why the kernel did not make a cgroup (cgroup_mkdir in
// kernel/cgroup/cgroup.c): EAGAIN is a limit of a cgroup above, ENOSPC that there is no
// id left, of which the memory controller has 65,535.
func notMade(path string, err error) error {
	switch err {
	case nil:
		return nil
	case unix.EAGAIN:
		e := &procs.FullError{Path: path, Err: err, Reason: "a cgroup above has a limit for cgroups below it that is reached",
			Remedy: "raise cgroup.max.descendants and cgroup.max.depth of the cgroups above " + filepath.Dir(path) + ", outside of this container"}
		if file, most := limitAbove(path); file != "" {
			e.Reason, e.Remedy = fmt.Sprintf("the limit in %s is reached (%d)", file, most), "raise it: echo max > "+file
		}
		return e
	case unix.ENOSPC:
		return &procs.FullError{Path: path, Err: err, Reason: "the kernel has no id left for another cgroup",
			Remedy: "remove cgroups that nobody uses (/proc/cgroups counts them); removed ones keep their ids while files that they read are cached: echo 3 > /proc/sys/vm/drop_caches"}
	}
	return &os.PathError{Op: "create cgroup", Path: path, Err: err}
}

// limitAbove finds the cgroup.max.descendants or cgroup.max.depth that keeps a cgroup
// from being made, and its value. The file is empty if there is none to be seen.
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
