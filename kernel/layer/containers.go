package layer

import (
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/container"
	"github.com/assay-run/assay-run/schema"
)

// maxCgroups bounds the cgroups that are remembered. Their ids are never used twice.
const maxCgroups = 1 << 14

// cgroups tells the containers of a session from the names of its cgroups.
type cgroups struct {
	dir     string // the session's directory; empty: none is told
	byID    map[uint64]string
	unknown uint64 // how many were gone before they could be named

	last uint64 // asked for
	is   string
}

// container is the id of the container that b.out was done in.
func (b *Builder) container(ev *kernel.Event, p *process) string {
	c := &b.cgroups
	switch {
	case b.o.Container != "":
		return b.o.Container
	case c.dir == "":
		return ""
	case ev.Repeat:
		if f := b.procs.first.Get(ev.Slot); f.id == ev.ID {
			return f.container
		}
	case ev.Kind == kernel.KindLeftCgroup:
		if p != nil {
			return p.container
		}
		return ""
	}
	id := ev.CgroupID
	if ev.Kind == kernel.KindFork && !ev.Thread {
		id = ev.ChildCgroupID
	}
	if id == 0 {
		return ""
	}
	if id == c.last {
		return c.is
	}
	in, ok := c.byID[id]
	if !ok {
		at := ""
		if ev.Kind == kernel.KindJoinedCgroup {
			at = c.below(string(ev.Name))
		}
		in = c.name(id, at)
	}
	c.last, c.is = id, in
	return in
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

// contain says which container the event is of, and whether an engine's runtime is
// still setting that up: it does what is needed for the container in a process that
// it made outside of the run and moved in, which becomes the container's first by
// executing a program in another mount namespace. Who sets up a container from
// inside of the run is not told from the agent, who could claim to.
func (b *Builder) contain(ev *kernel.Event, p *process) {
	b.out.ContainerID = b.container(ev, p)
	if b.out.ContainerID == "" && p != nil && !ev.Repeat {
		b.out.ContainerID = p.container // moved on, as into the cgroup of a tool call
	}
	if p == nil || ev.Repeat || b.o.Container != "" {
		return
	}
	switch ev.Kind {
	case kernel.KindJoinedCgroup:
		p.setup = b.out.ContainerID != ""
	case kernel.KindExec:
		p.setup = p.setup && b.o.MountNS != 0 && !b.elsewhere(p)
	}
	p.container = b.out.ContainerID
}

// started makes a container's first process the child of the one that asked an engine
// for it, and of its tool call. b.out is its join.
func (b *Builder) started(ev *kernel.Event, p *process) {
	if b.o.Starter == nil || b.out.Kind != schema.KindJoin || b.out.ContainerID == "" {
		return
	}
	pid, at := b.o.Starter(b.out.ContainerID, ev.Time)
	by := b.procs.byPID[pid]
	if pid == 0 || by == nil || by.start == 0 || by.start > at {
		return // it is not of the run, or its number is another's now
	}
	b.out.ParentExecID = by.execID
	if by.toolCall != "" {
		p.toolCall, p.boundBy = by.toolCall, schema.BoundByLineage
		b.out.ToolCallID, b.out.BoundBy = p.toolCall, p.boundBy
	}
}
