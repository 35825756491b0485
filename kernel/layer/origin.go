package layer

import (
	"strings"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/kernel/internal/slots"
	"github.com/assay-run/assay-run/schema"
)

// origin is where an event comes from: the process, its tool call, its container, the check that it is of, and the
// marks that its paths get for the mounts that it sees.
type origin struct {
	execID            uint64
	toolCall, boundBy string
	container         string
	check             *Check
	class             schema.Class
	mounts            schema.Marks
}

// write puts the origin into a line.
func (o *origin) write(e *schema.KernelEvent) {
	e.ExecID, e.ToolCallID, e.BoundBy = o.execID, o.toolCall, o.boundBy
	e.ContainerID = o.container
	e.Marks |= marksOf(e, o.mounts)
	o.check.write(e)
	e.Class = o.class
}

// marksOf returns those of the marks for mounts that the names of a line get.
func marksOf(e *schema.KernelEvent, mounts schema.Marks) schema.Marks {
	if mounts == 0 {
		return 0
	}
	names := []string{e.Value, e.Target}
	if e.Kind == schema.KindJoin || e.Kind == schema.KindLeave { // their values are cgroups
		names = []string{e.Exe}
	}
	for _, name := range names {
		if strings.HasPrefix(name, "/") || strings.HasPrefix(name, "unix:/") || e.Marks != 0 && name != "" {
			return mounts
		}
	}
	return 0
}

// repeats keeps the origins of the events whose repeats the kernel counts, by its slots.
type repeats struct{ first slots.Table[firstEvent] }

type firstEvent struct {
	id uint64
	origin
}

// knows reports whether ev repeats an event whose origin is kept.
func (r *repeats) knows(ev *kernel.Event) bool { return ev.Repeat && r.first.Get(ev.Slot).id == ev.ID }

// of returns the origin of the event that ev repeats.
func (r *repeats) of(ev *kernel.Event) origin { return r.first.Get(ev.Slot).origin }

// keep keeps the origin of an event that may be repeated.
func (r *repeats) keep(ev *kernel.Event, o *origin) {
	if ev.Slot == 0 || ev.Repeat {
		return
	}
	if first := r.first.At(ev.Slot); first != nil {
		*first = firstEvent{ev.ID, *o}
	}
}
