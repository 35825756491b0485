package dirs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Nested is a cgroup2 below a group's.
type Nested struct {
	group *Group
	path  string
	id    uint64
}

// Nest makes a cgroup below the group's. The error wraps procs.ErrNotSupported
// without cgroup2.
func (g *Group) Nest(name string) (*Nested, error) {
	if !g.dirs[0].v2 {
		return nil, fmt.Errorf("the session is on no cgroup2 hierarchy: %w", procs.ErrNotSupported)
	}
	n := &Nested{group: g, path: filepath.Join(g.dirs[0].path, name)}
	if err := makeDir(n.path); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Stat(n.path, &st); err != nil {
		return nil, errors.Join(err, n.Remove())
	}
	n.id = st.Ino
	return n, nil
}

// ID is the cgroup2 id as BPF programs see it. It is never used again.
func (n *Nested) ID() uint64 { return n.id }

// Adopt moves the process that pidfd refers to into n. Only a process of the
// group is taken; pid must be its number here. A process that ends meanwhile
// is an error, and one that got its number is left alone.
func (n *Nested) Adopt(pid, pidfd int) error {
	if procs.Ended(pidfd) || !slices.Contains(n.group.list(), pid) || procs.Ended(pidfd) {
		return fmt.Errorf("process %d: %w", pid, procs.ErrNotMember)
	}
	if err := write(filepath.Join(n.path, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("move process %d: %w", pid, err)
	}
	if !procs.Ended(pidfd) {
		return nil
	}
	// The number may be a stranger's by now: what is alive under it in n goes
	// back to where we are. A dead process is not listed.
	if slices.Contains(pids([]dir{{path: n.path, v2: true}}), pid) {
		_ = write(filepath.Join(n.group.session.host.v2.own, "cgroup.procs"), strconv.Itoa(pid))
	}
	return fmt.Errorf("process %d: %w", pid, procs.ErrNotMember)
}

// Remove removes n, which fails while processes are in it.
func (n *Nested) Remove() error {
	if err := unix.Rmdir(n.path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove nested group: %w", &os.PathError{Op: "rmdir", Path: n.path, Err: err})
	}
	return nil
}
