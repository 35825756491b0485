package layer

import (
	"strings"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/surface"
)

// line makes the line of ev, and before it one for its process if that is new.
func (b *Builder) line(ev *kernel.Event, late bool) {
	b.expect(ev)
	if ev.Kind == kernel.KindMovedV1 || ev.Kind == kernel.KindKernelExec {
		b.beside(ev, late)
		return
	}
	p, parent, joined := b.process(ev)
	if joined && ev.Kind != kernel.KindJoinedCgroup {
		b.begin(ev, p, late)
		b.out.Kind, b.out.PPID, b.out.CgroupID = schema.KindJoin, ev.PPID, ev.CgroupID
		b.check(p, ev.CgroupID)
		b.contain(ev, p)
		b.stats.Added++
		b.finish(ev, p)
	}
	b.begin(ev, p, late)
	b.out.ParentExecID = parent
	b.convert(ev, p)
	b.check(p, ev.CgroupID)
	b.contain(ev, p)
	if joined {
		b.started(ev, p)
	}
	b.mounts(ev, p)
	b.class(ev, p)
	helper := b.reach(ev)
	b.finish(ev, p)
	if helper {
		b.helperLine(ev, p, late)
	}
	if ev.Kind == kernel.KindExit && p != nil {
		b.procs.exit(p)
	}
}

// process finds or makes the instance that ev belongs to, and tells which one
// forked it. It is nil only for what comes after a process was forgotten.
func (b *Builder) process(ev *kernel.Event) (p *process, parent uint64, joined bool) {
	p = b.procs.find(ev)
	switch {
	case ev.Kind == kernel.KindFork && !ev.Thread:
		if p != nil { // the first process is forked by the runner
			parent = p.execID
		}
		child := b.procs.fork(ev, p)
		if p == nil {
			child.check = b.o.Checks.of(ev.ChildCgroupID, ev.Time)
		}
		if child.check != nil {
			b.stats.CheckForks++
		}
		return child, parent, false
	case p != nil, ev.Repeat, ev.Kind == kernel.KindTraffic:
		return p, 0, false
	}
	p = b.procs.join(ev)
	p.check = b.o.Checks.of(ev.CgroupID, ev.Time)
	return p, 0, true
}

// begin sets what all events have.
func (b *Builder) begin(ev *kernel.Event, p *process, late bool) {
	b.out = schema.KernelEvent{RunID: b.o.RunID, TNS: b.rel(ev.Time), PID: ev.PID, TID: ev.TID, Late: late}
	if b.out.TID == 0 {
		b.out.TID = ev.PID
	}
	if p != nil {
		b.out.ExecID, b.out.ToolCallID, b.out.BoundBy = p.execID, p.toolCall, p.boundBy
	}
	if ev.Repeat {
		b.out.Repeat, b.out.Count, b.out.TFirstNS, b.out.TLastNS = true, max(ev.Count, 1), b.rel(ev.First), b.rel(ev.Last)
	}
}

func (b *Builder) rel(t uint64) int64 { return int64(t - b.o.Start) }

// class classifies b.out. A repeat has the class, the instance and the tool
// call of the event it repeats.
func (b *Builder) class(ev *kernel.Event, p *process) {
	if ev.Repeat {
		if f := b.procs.first.Get(ev.Slot); f.id == ev.ID {
			b.out.ExecID, b.out.Class = f.execID, f.class
			b.out.ToolCallID, b.out.BoundBy = f.toolCall, f.boundBy
			b.mark(f.elsewhere)
			return
		}
	}
	switch {
	case p == nil || b.out.Class == schema.ClassCheck:
	case p.starting && b.out.Kind != schema.KindFork && b.out.Kind != schema.KindExecFailed && b.out.Kind != schema.KindExit:
		b.out.Class = schema.ClassRunner
	case p.hook && b.out.Kind != schema.KindFork && ofHook(&b.out):
		b.out.Class = schema.ClassRunner
	case p.setup:
		b.out.Class = schema.ClassSetup
	default:
		b.out.Class = surface.Classify(&b.out, p.exe)
	}
	if ev.Slot == 0 || ev.Repeat {
		return
	}
	if first := b.procs.first.At(ev.Slot); first != nil {
		*first = eventID{ev.ID, b.out.ExecID, b.out.Class, b.out.ToolCallID, b.out.BoundBy, b.elsewhere(p), b.out.ContainerID}
	}
}

// ofHook tells whether an event of a hook's process is what every hook does: that it
// is executed, looks at itself, and ends. All else stays the agent's, who chose the
// hook's environment.
func ofHook(e *schema.KernelEvent) bool {
	switch e.Kind {
	case schema.KindExec, schema.KindExit:
		return true
	case schema.KindOpen:
		return !e.Failed() && !e.Creates() && !e.Writes() && (strings.HasPrefix(e.Value, "/proc/") || strings.HasPrefix(e.Value, "/sys/"))
	}
	return false
}

// finish counts b.out, adds it to the surface and hands it out.
func (b *Builder) finish(ev *kernel.Event, p *process) {
	e := &b.out
	if b.o.Bind != nil {
		b.o.Bind(ev, e)
		if p != nil && (e.Kind == schema.KindFork || e.Kind == schema.KindExec || e.Kind == schema.KindJoin) && e.BoundBy != schema.BoundByWindow {
			p.toolCall, p.boundBy = e.ToolCallID, e.BoundBy
		}
	}
	n := e.Times()
	b.counts.Seen += n
	b.stats.ByClass[e.Class] += n
	b.kinds[e.Kind&255] += n
	const process = schema.FieldArgv | schema.FieldEnvKeys
	if e.Truncated&^process != 0 {
		b.stats.Cut++
	}
	if e.Truncated&process != 0 {
		b.stats.CutArguments++
	}
	if e.UserMemory && e.Kind == schema.KindOpen && e.Result >= 0 && !e.Attempted {
		b.stats.UserPaths++
	}
	if b.o.Surface != nil {
		if err := b.o.Surface.Add(e); err != nil && b.err == nil {
			b.err = err
		}
	}
	switch {
	case b.err != nil:
		b.counts.Dropped += n
		b.stats.Dropped++
	default:
		if b.err = b.o.Sink(e); b.err != nil {
			b.counts.Dropped += n
			b.stats.Dropped++
			return
		}
		b.counts.Written++
		b.stats.Written++
		b.counts.Coalesced += n - 1
	}
}
