//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// Report returns the account so far.
func (o *Observer) Report() Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	hooks := o.final
	if hooks == nil {
		if hooks = o.hooks(); o.stopped && o.ended { // they stay as they are
			o.final = hooks
		}
	}
	t := &o.tally
	r := Report{
		Hooks:    append([]HookStatus(nil), hooks...),
		Received: t.received.Load(), Decoded: t.decoded.Load(), Malformed: t.malformed.Load(),
		Delivered: t.delivered.Load(), Joined: t.joined.Load(), SelfTest: t.selfTest.Load(),
		Repeats: t.repeats.Load(), FinalRepeats: t.finalRepeats.Load(), Endpoints: t.endpoints.Load(),
		Forks: hooks[HookFork].Fired, Exits: hooks[HookExit].Fired,
		LeftCgroup: t.left.Load(), JoinedCgroup: t.entered.Load(),
		IOUringUsed:       t.ioUring.Load() > 0,
		DescriptorsPassed: t.passed.Load(),
		SharedFiles:       t.sharedFiles.Load(), Claimed: t.claimed.Load(), MemoryOpened: t.memory.Load(), Carriers: t.carriers.Load(),
		IOUringUnseen: !hooks[HookIOUring].Attached && t.kinds[KindIOUring].Load() > 0,
		Threads:       t.threads.Load(), Errors: t.errors.Load(), QUICPeers: t.quic.Load(),
		SelfTestNS: int64(o.testTime), Shared: o.loaded.lease != nil, Found: o.loaded.foundPinned, Present: len(o.loaded.present),
	}
	if o.loaded.alone != nil {
		r.Alone = firstLine(o.loaded.alone.Error())
	}
	for op := range t.unfollowed {
		if t.unfollowed[op].Load() > 0 {
			r.IOUringUnfollowed = append(r.IOUringUnfollowed, uint8(op))
		}
	}
	for k := range r.Kinds {
		r.Kinds[k] = t.kinds[k].Load()
	}
	r.Reasons = o.reasons(&r)
	return r
}

// hooks reads the counters. The caller holds mu.
func (o *Observer) hooks() []HookStatus {
	out := make([]HookStatus, hookCount)
	if o.loaded.slot.passed() {
		o.tally.passed.Store(true)
	}
	misses := o.loaded.misses()
	for h := range out {
		s := &out[h]
		*s = o.loaded.status(HookID(h))
		s.SelfTested = o.tested[h]
		if slices.Contains(o.lost, hooks[h].progs[0]) {
			s.Attached, s.Detail = false, "detached before the run ended"
		}
		s.RecursionMisses = misses[hooks[h].progs[0]] - o.loaded.before[hooks[h].progs[0]]
		s.PerCPU, s.Counts = o.counts(HookID(h))
	}
	return out
}

// counts reads a hook's counters of each CPU, and adds them up.
func (o *Observer) counts(h HookID) (each []Counts, all Counts) {
	cells := o.loaded.slot.cells()
	each = make([]Counts, o.loaded.cpus)
	for cpu := range each {
		c := &cells[cpu*hookCells+int(h)]
		each[cpu] = Counts{c.Fired, c.Filtered, c.Coalesced, c.Emitted, c.Dropped, c.FailedReads}
		all.add(each[cpu])
	}
	return each, all
}

// status tells whether everything a hook needs is in place.
func (l *loaded) status(h HookID) HookStatus {
	s := HookStatus{Hook: h, Name: hooks[h].name, Required: hooks[h].required, Attached: true}
	for i, name := range hooks[h].progs {
		_, everywhere := l.links[name]
		_, here := l.own[name]
		err := errors.Join(l.failed[name], l.refuse[name])
		switch {
		case err != nil:
			s.Attached, s.Detail = false, fmt.Sprintf("program %s: %v", name, err)
		case l.progs[name] == nil || (i == 0 || h == HookIOUring) && !everywhere && !here:
			s.Attached, s.Detail = false, fmt.Sprintf("program %s is not loaded", name)
		}
	}
	return s
}

// missing is how many records that were sent did not come, or came twice.
func (o *Observer) missing(r *Report) uint64 {
	var emitted, droppedNet uint64
	for _, h := range r.Hooks {
		emitted += h.Emitted
		switch h.Hook {
		case HookConnect4, HookConnect6, HookSendmsg4, HookSendmsg6, HookBind4, HookBind6, HookTCP, HookSkbIn, HookSkbOut:
			droppedNet += h.Dropped
		}
	}
	seen := &o.rd.seen
	n := seen.missing
	if gaps := seen.highest - min(seen.highest, seen.nets); gaps > droppedNet {
		n += gaps - droppedNet
	}
	return max(n, max(emitted, r.Received)-min(emitted, r.Received))
}

// again is the remedy where nothing is known to be wrong with the host.
const again = "run the command again, and report a bug if it happens again"

// remedyLate is what catches a foreign process's first instruction.
const remedyLate = "attach to a container that is created and not started yet"

// reasons judges the report.
func (o *Observer) reasons(r *Report) []Reason {
	var out []Reason
	add := func(code, remedy, format string, args ...any) {
		out = append(out, Reason{code, fmt.Sprintf(format, args...), remedy})
	}
	var dropped, misses, unread uint64
	for i := range r.Hooks {
		h := &r.Hooks[i]
		dropped += h.Dropped
		unread += h.FailedReads
		misses += h.RecursionMisses
		if h.Required && !h.Attached {
			add(CodeHookMissing, "run assay-run doctor, and provide what it says is missing", "hook %s is not attached: %s", h.Name, h.Detail)
		} else if hooks[i].selfTested && o.testTime > 0 && o.testErr == nil && !h.SelfTested && !o.spared[i] {
			add(CodeHookSilent, again, "hook %s did not fire in the self-test", h.Name)
		}
	}
	switch {
	case o.testErr == nil:
	case cgroupsFull(o.testErr):
		add(CodeFull, "raise cgroup.max.descendants and cgroup.max.depth of the cgroups above, or remove cgroups that nobody uses",
			"the self-test could make no cgroup, so nothing shows that the hooks fire: %v", o.testErr)
	default:
		add(CodeSelfTest, again, "the self-test could not run, so nothing shows that the hooks fire: %v", o.testErr)
	}
	if dropped > 0 {
		add(CodeDrops, "give the recorder more CPU time, or use a larger --kernel-buffer", "%s found no room in the ring buffer", schema.Count(dropped, "event", "events"))
	}
	if misses > 0 {
		add(CodeMisses, "run the command again", "the kernel skipped a program %s because it was already running", schema.Count(misses, "time", "times"))
	}
	if unread > 0 {
		add(CodeFailedReads, "give the host more memory, or run the command again", "%s a field that could not be read", schema.Count(unread, "event lacks", "events lack"))
	}
	if r.Malformed > 0 {
		add(CodeMalformed, again, "%s could not be decoded", schema.Count(r.Malformed, "record", "records"))
	}
	if o.ended {
		if missing := o.missing(r); missing > 0 {
			add(CodeMissing, "make sure that no other process reads the observer's ring buffers", "%s emitted", schema.Count(missing, "record is missing although it was", "records are missing although they were"))
		}
	}
	if n := o.bpf.count(); n > 0 {
		add(CodeBPF, "run the command without CAP_SYS_ADMIN and CAP_BPF", "the run changed BPF objects that it did not create, %s", schema.Count(n, "time", "times"))
	}
	for _, what := range o.tampered {
		add(CodeTampered, "run the command without root, or without CAP_SYS_ADMIN and CAP_BPF", "somebody changed the observer: %s", what)
	}
	for _, name := range o.lost {
		add(CodeHookLost, "keep others from detaching BPF programs: run the command without CAP_SYS_ADMIN and CAP_BPF", "program %s was detached before the run ended", name)
	}
	// Of processes that were there before, no fork was seen.
	late := o.foreign && (r.Present > 0 || o.loaded.usedBefore)
	switch {
	case late && r.Present > 0:
		add(CodeAttachedLate, remedyLate, "%s before assay-run attached: what happened until then was not recorded", schema.Count(r.Present, "process was running", "processes were running"))
	case late:
		add(CodeAttachedLate, remedyLate, "processes had run in the cgroup before assay-run attached: what they did was not recorded")
	}
	began, ended := r.Forks+r.JoinedCgroup, r.Exits+r.LeftCgroup
	if alive := o.foreign && began > ended; o.stopped && began != ended && !late && !alive {
		add(CodeUnmatched, again, "%s began and %d ended, so some were not seen", schema.Count(began, "task", "tasks"), ended)
	}
	if r.LeftCgroup > 0 {
		add(CodeLeftCgroup, "run the command as a user that cannot write to other cgroups", "%s moved or forked out of the session cgroup, where nothing records them", schema.Count(r.LeftCgroup, "task was", "tasks were"))
	}
	return out
}
