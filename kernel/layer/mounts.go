package layer

import (
	"strings"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// mounts follows which mount namespace p is in, and marks the paths of b.out.
func (b *Builder) mounts(ev *kernel.Event, p *process) {
	if p == nil || ev.Repeat { // a repeat is marked as the event that it repeats
		return
	}
	if ev.MountNS != 0 && !ev.Thread {
		p.mountNS = ev.MountNS
		if p.starting && ev.MountNS != b.o.MountNS { // that is the run's own anyway
			b.ownNS = ev.MountNS
		}
	}
	b.mark(b.elsewhere(p))
}

// elsewhere tells whether the paths of p are of other mounts than the run's.
func (b *Builder) elsewhere(p *process) bool {
	return b.o.MountNS != 0 && p != nil && p.mountNS != 0 && p.mountNS != b.o.MountNS && p.mountNS != b.ownNS
}

func (b *Builder) mark(elsewhere bool) {
	if !elsewhere {
		return
	}
	e := &b.out
	names := []string{e.Value, e.Target}
	if e.Kind == schema.KindJoin || e.Kind == schema.KindLeave { // their values are cgroups
		names = []string{e.Exe}
	}
	for _, name := range names {
		if strings.HasPrefix(name, "/") || strings.HasPrefix(name, "unix:/") || e.Marks != 0 && name != "" {
			e.Marks |= schema.MarkMountNamespace
			return
		}
	}
}
