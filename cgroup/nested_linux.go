package cgroup

import (
	"fmt"

	"github.com/assay-run/assay-run/cgroup/internal/dirs"
)

// Nested is a cgroup2 below a group's, which only tells its processes from the
// others of the group: they stay members of the group, under the same limits.
// It goes with its session, or before that with Remove.
type Nested struct {
	dir *dirs.Nested
}

// Nest makes a cgroup below the group's. The error wraps ErrNotSupported where
// the session has no cgroup2 directory of its own. The name becomes a
// directory name.
func (g *Group) Nest(name string) (*Nested, error) {
	if !validName(name) {
		return nil, fmt.Errorf("create nested group: invalid name %q", name)
	}
	n, err := g.members.Nest(name)
	if err != nil {
		return nil, fmt.Errorf("create nested group %s: %w", name, err)
	}
	return &Nested{n}, nil
}

// ID is the cgroup2 id as BPF programs see it. It is never used again.
func (n *Nested) ID() uint64 { return n.dir.ID() }

// Adopt moves the process that pidfd refers to into n. Only a process of the
// group is taken, else the error wraps ErrNotMember; pid must be its number here. A
// process that ends meanwhile is an error, and one that got its number is left alone.
func (n *Nested) Adopt(pid, pidfd int) error { return n.dir.Adopt(pid, pidfd) }

// Remove removes n, which fails while processes are in it.
func (n *Nested) Remove() error { return n.dir.Remove() }
