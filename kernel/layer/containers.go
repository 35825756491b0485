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

// containers knows which container an event is of.
//
// An engine's runtime sets a container up in a process that it made outside of the run and moved into it. The process
// becomes the container's first by executing a program in another mount namespace. A runtime that was started inside of
// the run counts as the agent, which could pretend to be one.
type containers struct {
	only    string // the container that all events are of; empty: the cgroups tell
	cgroups *cgroups
	mounts  *mounts
	procs   *table
	checks  *Checks
	asked   func(container string, t uint64) (pid uint32, at uint64) // Options.Starter
}

func newContainers(only, dir string, mounts *mounts, procs *table, checks *Checks,
	asked func(container string, t uint64) (pid uint32, at uint64)) *containers {
	return &containers{only: only, cgroups: newCgroups(dir), mounts: mounts, procs: procs, checks: checks, asked: asked}
}

// of is the id of the container that ev was done in, by its cgroup.
func (c *containers) of(ev *kernel.Event, p *process) string {
	switch {
	case c.only != "":
		return c.only
	case ev.Kind == schema.KindLeave && !ev.Repeat:
		if p != nil {
			return p.container
		}
		return ""
	}
	id, at := ev.Task.CgroupID, ""
	switch ev.Kind {
	case schema.KindFork:
		id = ev.Child.CgroupID
	case schema.KindJoin:
		at = ev.Value
	}
	return c.cgroups.container(id, at)
}

// enter returns the container that ev is of, and notes that p is in there, and whether it still sets the container up.
func (c *containers) enter(ev *kernel.Event, p *process) string {
	id := c.of(ev, p)
	if p == nil || ev.Repeat {
		return id
	}
	if id == "" {
		id = p.container // moved on, as into the cgroup of a tool call
	}
	p.container = id
	begins := ev.Kind == schema.KindExec && c.mounts.elsewhere(p)
	if begins && (p.setup || c.only != "") {
		c.mounts.begin(id, p.mountNS)
	}
	if c.only != "" {
		return id
	}
	switch ev.Kind {
	case schema.KindJoin:
		if p.setup = id != ""; p.setup && p.check == nil {
			p.check = c.checks.during(ev.Time)
		}
	case schema.KindExec:
		p.setup = p.setup && c.mounts.recorder != 0 && !begins
	}
	return id
}

// admit returns the container of a process that was there before the run was observed. Its ancestors come first.
func (c *containers) admit(ev *kernel.Event, p *process) string {
	p.container = c.of(ev, p)
	if c.only != "" && c.mounts.elsewhere(p) {
		c.mounts.begin(p.container, p.mountNS)
	}
	return p.container
}

// starter returns the process of the run that asked an engine for the container whose first process ev is the join of.
// It is nil if nobody of the run did, or if its number is another's now.
func (c *containers) starter(ev *kernel.Event, container string) *process {
	if c.asked == nil || ev.Kind != schema.KindJoin || container == "" {
		return nil
	}
	pid, at := c.asked(container, ev.Time)
	by := c.procs.byPID[pid]
	if pid == 0 || by == nil || by.start == 0 || by.start > at {
		return nil
	}
	return by
}

// cgroups recognizes the containers of a session by the names of its cgroups.
type cgroups struct {
	dir     string // the session's directory; empty: none is recognized
	byID    map[uint64]string
	unknown uint64 // how many were gone before they could be named

	last uint64 // asked for
	is   string
}

func newCgroups(dir string) *cgroups { return &cgroups{dir: dir, byID: make(map[uint64]string)} }

// container returns the container of the cgroup with that id. at is the cgroup's path, if an event has it.
func (c *cgroups) container(id uint64, at string) string {
	if id == 0 || c.dir == "" {
		return ""
	}
	if id == c.last {
		return c.is
	}
	in, ok := c.byID[id]
	if !ok {
		if at != "" {
			at = c.below(at)
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
