package layer

import (
	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// mounts knows which mount namespaces there are, and which of them have other files under the run's names.
type mounts struct {
	recorder uint32 // Options.MountNS; 0: unknown, and no path is marked
	made     uint32 // the one that the runner made for the command
	// roots are those in which the first programs of containers began, by the container's id. An engine outside of the
	// session made them.
	roots map[string]uint32
}

func newMounts(recorder uint32) *mounts {
	return &mounts{recorder: recorder, roots: make(map[string]uint32)}
}

// enter follows which mount namespace p is in. Nothing follows from a repeat, nor from the process of a new thread.
func (m *mounts) enter(ev *kernel.Event, p *process) {
	if p == nil || ev.Repeat || ev.MountNS == 0 || ev.Thread {
		return
	}
	p.mountNS = ev.MountNS
	if p.starting && ev.MountNS != m.recorder { // that is the run's own anyway
		m.made = ev.MountNS
	}
}

// begin notes the mount namespace of a container's first program.
func (m *mounts) begin(container string, mountNS uint32) {
	if m.roots[container] == 0 && len(m.roots) < maxCgroups {
		m.roots[container] = mountNS
	}
}

// elsewhere reports whether the paths of p are of other mounts than the run's.
func (m *mounts) elsewhere(p *process) bool {
	return m.recorder != 0 && p != nil && p.mountNS != 0 && p.mountNS != m.recorder && p.mountNS != m.made
}

// marks returns the marks that the paths of p get for the mounts that it sees.
func (m *mounts) marks(p *process) schema.Marks {
	switch {
	case !m.elsewhere(p):
		return 0
	case p.container != "" && m.roots[p.container] == p.mountNS:
		return schema.MarkMountNamespace | schema.MarkContainer
	}
	return schema.MarkMountNamespace
}
