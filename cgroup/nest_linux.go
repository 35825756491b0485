package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Nested is a cgroup2 below a group's, which only tells its processes from the
// others of the group: they stay members of the group, under the same limits.
// It goes with its session, or before that with Remove.
type Nested struct {
	group *Group
	path  string
	id    uint64
}

// Nest makes a cgroup below the group's. The error wraps ErrNotSupported where
// the session has no cgroup2 directory of its own. The name becomes a
// directory name.
func (g *Group) Nest(name string) (*Nested, error) {
	if name == "" || name[0] == '.' || strings.ContainsAny(name, "/\x00\n") {
		return nil, fmt.Errorf("create nested group: invalid name %q", name)
	}
	if len(g.dirs) == 0 || !g.dirs[0].v2 {
		return nil, fmt.Errorf("create nested group %s: the session is on no cgroup2 hierarchy: %w", name, ErrNotSupported)
	}
	n := &Nested{group: g, path: filepath.Join(g.dirs[0].path, name)}
	if err := os.Mkdir(n.path, 0o755); err != nil {
		return nil, fmt.Errorf("create nested group: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(n.path, &st); err != nil {
		return nil, errors.Join(fmt.Errorf("create nested group: %w", err), n.Remove())
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
	if ended(pidfd) || !slices.Contains(n.group.list(), pid) || ended(pidfd) {
		return fmt.Errorf("process %d: %w", pid, ErrNotMember)
	}
	if err := write(filepath.Join(n.path, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("move process %d: %w", pid, err)
	}
	if !ended(pidfd) {
		return nil
	}
	// The number may be a stranger's by now: what is alive under it in n goes
	// back to where we are. A dead process is not listed.
	if slices.Contains(pids([]dir{{path: n.path, v2: true}}), pid) {
		_ = write(filepath.Join(n.group.session.host.v2.own, "cgroup.procs"), strconv.Itoa(pid))
	}
	return fmt.Errorf("process %d: %w", pid, ErrNotMember)
}

// Remove removes n, which fails while processes are in it.
func (n *Nested) Remove() error {
	if err := unix.Rmdir(n.path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove nested group: %w", &os.PathError{Op: "rmdir", Path: n.path, Err: err})
	}
	return nil
}

// ended tells whether the process of a pidfd has ended; one that cannot be
// told has.
func ended(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err != nil || n > 0
	}
}
