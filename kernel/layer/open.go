package layer

import (
	"maps"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// keptOpen bounds the calls and operations that are told apart. The rest are counted in one that opens every claim.
const keptOpen = 256

// restOpen is the call of that one.
const restOpen = "further calls"

// opens notes what claims are open after b.out, the line of ev, unless assay-run itself or a check did it.
func (b *Builder) opens(ev *kernel.Event, p *process) {
	if b.out.Class == schema.ClassRunner || b.out.Class == schema.ClassCheck ||
		p != nil && p.own && !b.stats.Reach.Injected {
		return
	}
	o, ok := ev.Opens()
	if !ok {
		return
	}
	if b.open == nil {
		b.open = make(map[[2]string]*schema.OpenCall)
	}
	key := [2]string{o.Call, o.Operation}
	if len(b.open) >= keptOpen && b.open[key] == nil {
		key = [2]string{restOpen}
		o = kernel.Opening{Call: restOpen, Claims: []string{schema.SubjectPrograms, schema.SubjectFiles,
			schema.SubjectHosts, schema.SubjectPrivilege}, Why: "there were too many to name them"}
	}
	c := b.open[key]
	if c == nil {
		c = &schema.OpenCall{Call: o.Call, Operation: o.Operation, Claims: o.Claims, Why: o.Why}
		if p != nil {
			c.Program = p.exe
		}
		b.open[key] = c
	}
	c.Count += max(ev.Count, 1)
}

// unmodelled notes a call that makes no line.
func (b *Builder) unmodelled(ev *kernel.Event, p *process) {
	b.out = &ev.KernelEvent
	b.check(p, ev.Task.CgroupID)
	b.class(ev, p)
	b.opens(ev, p)
	n := max(ev.Count, 1)
	b.counts.Seen += n
	b.counts.Filtered += n
	b.stats.Filtered++
	if b.out.Class == schema.ClassRunner {
		b.stats.Own.Count(ev)
	}
}

// openCalls are the calls that opens noted, in the order of their names.
func (b *Builder) openCalls() (list []schema.OpenCall) {
	for _, c := range slices.SortedFunc(maps.Values(b.open), func(x, y *schema.OpenCall) int {
		return strings.Compare(x.Call+" "+x.Operation, y.Call+" "+y.Operation)
	}) {
		list = append(list, *c)
	}
	return list
}
