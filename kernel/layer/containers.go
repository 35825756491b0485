package layer

import (
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/assay-run/assay-run/kernel/container"
)

// maxCgroups bounds the cgroups that are remembered. Their ids are never used twice.
const maxCgroups = 1 << 14

// cgroups recognizes the containers of a session by the names of its cgroups.
type cgroups struct {
	dir     string // the session's directory; empty: none is recognized
	byID    map[uint64]string
	unknown uint64 // how many were gone before they could be named
	// roots are the mount namespaces in which the first programs of containers began, by the container's id. An engine
	// outside of the session made them.
	roots map[string]uint32

	last uint64 // asked for
	is   string
}

// below is the part of a cgroup's path after the session's.
func (c *cgroups) below(name string) string {
	_, rest, _ := strings.Cut(name, "/"+path.Base(c.dir)+"/")
	return rest
}

// name remembers the container of a cgroup by its path, and looks for that where it
// is empty.
func (c *cgroups) name(id uint64, at string) string {
	if at == "" {
		at = c.find(id)
	}
	if at == "" {
		c.unknown++
	}
	in, _ := container.Of(at)
	if c.byID == nil {
		c.byID = map[uint64]string{}
	}
	if len(c.byID) < maxCgroups {
		c.byID[id] = in.ID
	}
	return in.ID
}

// begin notes the mount namespace of a container's first program.
func (c *cgroups) begin(container string, mountNS uint32) {
	if c.roots == nil {
		c.roots = map[string]uint32{}
	}
	if c.roots[container] == 0 && len(c.roots) < maxCgroups {
		c.roots[container] = mountNS
	}
}

// find is the path below the session of the cgroup with that id, which is the inode
// number of its directory; empty where it has gone.
func (c *cgroups) find(id uint64) (found string) {
	_ = filepath.WalkDir(c.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			if inode(info) == id {
				found = "/" + strings.TrimPrefix(name[len(c.dir):], "/")
				return fs.SkipAll
			}
		}
		return nil
	})
	return found
}
