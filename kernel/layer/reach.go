package layer

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Reach is what a run did that reaches beyond its own processes, or around what
// is observed of it.
type Reach struct {
	// Helper is the first file that was opened for writing, or written, from
	// which the kernel takes a program that it starts; Helpers counts.
	Helper  string
	Helpers uint64
	// Started is the first program that the kernel started by itself after that, and
	// StartedTimes counts them.
	Started      string
	StartedTimes uint64
	// LeftV1 are the controllers of v1 hierarchies that tasks of the run left its
	// cgroup in, and LeftV1To where the first went.
	LeftV1   []string
	LeftV1To string
	// Traced is the first process outside of the run that the run traced or whose
	// memory it read or opened to write; TracedTimes counts.
	Traced      uint64
	TracedTimes uint64
	// RecorderTraced counts how often that was the recorder's own process.
	RecorderTraced uint64
	// RunnerSignals counts signals to the recorder's own process; RunnerSignal is
	// the first one's number.
	RunnerSignals uint64
	RunnerSignal  uint64
	// Carriers counts sockets and tunnels that can carry data whose peer no hook
	// sees.
	Carriers uint64
}

// reach notes what ev did beyond the run. It reports whether that was a change of a
// helper of the kernel's, which has a line of its own.
func (b *Builder) reach(ev *kernel.Event) (changed bool) {
	r, n := &b.stats.Reach, max(ev.Count, 1)
	switch ev.Kind {
	case kernel.KindSignal:
		if ev.Args[0] == uint64(os.Getpid()) {
			if r.RunnerSignals == 0 {
				r.RunnerSignal = ev.Args[1]
			}
			r.RunnerSignals += n
		}
	case kernel.KindPtrace:
		if pid, ok := traced(ev); ok && !ev.Attempted { // mostly refused: not known to have reached anybody
			b.touchProcess(pid, n)
		}
	case kernel.KindNewSocket:
		if ev.Carrier() {
			r.Carriers += n
		}
	case kernel.KindOpen, kernel.KindWrite:
		if ev.Errno != 0 || ev.Kind == kernel.KindOpen && !b.out.Writes() {
			return false
		}
		name := b.out.Value
		switch {
		case name == "/dev/net/tun":
			r.Carriers += n
		case helper(name):
			if r.Helpers == 0 {
				r.Helper = name
			}
			r.Helpers += n
			return !ev.Repeat
		default:
			if pid, ok := memoryOf(name); ok && pid != uint64(ev.PID) && !ev.Attempted {
				b.touchProcess(pid, n)
			}
		}
	}
	return false
}

// touchProcess notes that the run reached into the process of that pid, where it is
// none of the run's.
func (b *Builder) touchProcess(pid, times uint64) {
	if b.procs.has(uint32(pid)) {
		return
	}
	r := &b.stats.Reach
	if r.TracedTimes == 0 {
		r.Traced = pid
	}
	r.TracedTimes += times
	if pid == uint64(os.Getpid()) {
		r.RecorderTraced += times
	}
}

// traced is the process that a successful ptrace or process_vm call was aimed at;
// ok is false where none is, or where its pid is one of a pid namespace.
func traced(ev *kernel.Event) (pid uint64, ok bool) {
	if ev.Errno != 0 || ev.PidLevel > 0 {
		return 0, false
	}
	switch ev.Syscall {
	case "process_vm_readv", "process_vm_writev":
		pid = ev.Args[0]
	case "ptrace":
		pid = ev.Args[1]
	}
	return uint64(uint32(pid)), pid != 0
}

// memoryOf is the process whose memory the file is.
func memoryOf(name string) (pid uint64, ok bool) {
	rest, proc := strings.CutPrefix(name, "/proc/")
	num, mem := strings.CutSuffix(rest, "/mem")
	if i := strings.Index(num, "/task/"); i >= 0 {
		num = num[:i]
	}
	pid, err := strconv.ParseUint(num, 10, 32)
	return pid, proc && mem && err == nil
}

// helper reports whether the kernel takes from that file the name of a program that
// it starts itself, outside of every cgroup.
func helper(name string) bool {
	switch name {
	case "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/poweroff_cmd",
		"/sys/kernel/uevent_helper":
		return true
	}
	return strings.HasPrefix(name, "/proc/sys/fs/binfmt_misc/") || strings.HasPrefix(name, "/proc/sys/kernel/usermodehelper/") ||
		path.Base(name) == "release_agent"
}

// helperLine adds the line that calls a change of a helper by its name.
func (b *Builder) helperLine(ev *kernel.Event, p *process, late bool) {
	name := b.out.Value
	b.begin(ev, p, late)
	b.out.Kind, b.out.Value, b.out.Call = schema.KindPrivileged, name, "kernel_helper"
	b.out.Repeat, b.out.Count, b.out.TFirstNS, b.out.TLastNS = false, 0, 0, 0
	b.stats.Added++
	b.finish(ev, p)
}

// beside makes a line of what happened to a run beside its processes' own doing: a
// move in a v1 hierarchy that leads out of its cgroup there, and a program that the
// kernel started once the run had changed a helper. Other such events are filtered.
func (b *Builder) beside(ev *kernel.Event, late bool) {
	r, name := &b.stats.Reach, string(ev.Name)
	var p *process
	var call, target string
	switch {
	case ev.Kind == kernel.KindKernelExec && r.Helpers > 0:
		if r.StartedTimes == 0 {
			r.Started = name
		}
		r.StartedTimes++
		call = "kernel_helper_started"
	case ev.Kind == kernel.KindMovedV1 && b.o.MovedV1 != nil:
		controllers, left := b.o.MovedV1(ev.Args[0], ev.Args[1], name)
		if !left {
			break
		}
		if len(r.LeftV1) == 0 {
			r.LeftV1To = name
		}
		if !slices.Contains(r.LeftV1, controllers) {
			r.LeftV1 = append(r.LeftV1, controllers)
		}
		p, call, target = b.procs.find(ev), "cgroup_v1_left", controllers
	}
	if call == "" {
		b.counts.Seen++
		b.counts.Filtered++
		b.stats.Filtered++
		return
	}
	b.begin(ev, p, late)
	b.out.Kind, b.out.Call, b.out.Value, b.out.Target = schema.KindPrivileged, call, name, target
	b.check(p, ev.CgroupID)
	b.class(ev, p)
	b.finish(ev, p)
}
