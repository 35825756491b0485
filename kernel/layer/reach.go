package layer

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// Inherited describes the descriptors that a command begins with, which somebody else has opened.
type Inherited struct {
	// Sockets are those with a peer, whose lines follow the command's exec: of each the fields of a network event,
	// and Args.
	Sockets []schema.KernelEvent
	// Carriers counts the tunnels and rings of io_uring. Memories are the processes whose memory is open.
	Carriers uint64
	Memories []uint64
}

// inheritance is what processes begin with, as Options says.
type inheritance struct {
	atStart func() *Inherited
	held    map[uint32]*Inherited
	begun   bool // the command has been executed
}

// begin returns what the command begins with, if p has just executed it, or nil.
func (i *inheritance) begin(p *process) *Inherited {
	if i.begun || i.atStart == nil || p == nil || p.starting || p.check != nil {
		return nil
	}
	list := i.atStart()
	i.begun = list != nil
	return list
}

// Reach is what a run did to others than its own processes, or unobserved.
type Reach struct {
	// Helper is the first file with the name of a helper program of the kernel that was opened for writing, or written;
	// Helpers counts them.
	Helper  string
	Helpers uint64
	// Started is the first program that the kernel itself started after that, for a call of the run, or for an unknown
	// reason, as StartedFor says. StartedTimes counts them.
	Started, StartedFor string
	StartedTimes        uint64
	// LeftV1 are the controllers of the v1 hierarchies in which tasks left the run's cgroup; LeftV1To is the first
	// one's new cgroup.
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
	// RunnerActs counts other calls that changed the recorder's own process, as its limits or its
	// priority; RunnerAct is the first one. RunnerAsked: one made the kernel send it signals.
	RunnerActs  uint64
	RunnerAct   string
	RunnerAsked bool
	// Joined counts the processes from outside that the run moved into its cgroup; JoinedFirst is the first.
	Joined      uint64
	JoinedFirst uint32
	// Injected: it traced a process, or opened the memory of one to write, so that what a program does may not be what
	// its file says.
	Injected bool
	// KernelChanges counts the kernel modules that were loaded or removed and other ways into the kernel itself;
	// KernelChange is the first.
	KernelChanges uint64
	KernelChange  string
	// SharedTables counts the tasks of the command that shared their descriptors with another task.
	SharedTables uint64
	// Carriers counts sockets and tunnels that can carry data whose peer no hook
	// sees; MayCarry those of which it is not known whether they do, or whether the run used them.
	Carriers, MayCarry uint64
	// ForeignDNS counts the sockets that the run did not make and used, whose peer is a DNS server.
	ForeignDNS uint64
}

// actOnRunner notes a call by which, or a file through which, the recorder's own process was changed.
func (r *Reach) actOnRunner(ev *kernel.Event, what string, times uint64) {
	if r.RunnerActs == 0 {
		r.RunnerAct = what
	}
	r.RunnerActs += times
	r.RunnerAsked = r.RunnerAsked || signals(ev)
}

// changeKernel notes a call or a device by which the kernel itself can have been changed.
func (r *Reach) changeKernel(what string, times uint64) {
	if r.KernelChanges == 0 {
		r.KernelChange = what
	}
	r.KernelChanges += times
}

// portDNS is where the observer looks for DNS messages.
const portDNS = 53

// reach finds out what a run did beyond itself.
type reach struct {
	did      Reach
	recorder uint32 // Options.Recorder
	procs    *table
	movedV1  func(hierarchy, cgroup uint64, path string) (controllers string, left bool) // Options.MovedV1
}

func newReach(recorder uint32, procs *table,
	movedV1 func(hierarchy, cgroup uint64, path string) (controllers string, left bool)) *reach {
	return &reach{recorder: recorder, procs: procs, movedV1: movedV1}
}

// inherit notes what a process began with, or had when it was found.
func (r *reach) inherit(list *Inherited) {
	r.did.MayCarry += list.Carriers
	for _, pid := range list.Memories {
		r.touchProcess(pid, 1)
	}
}

// note notes what ev did beyond the run. It returns the helper of the kernel's that it changed, which has a line of its
// own, "" for none.
func (r *reach) note(ev *kernel.Event, p *process) (changed string) {
	did, n := &r.did, max(ev.Count, 1)
	switch ev.Kind {
	case schema.KindSignal:
		// What the recorder has started outside of the run, as its guard, is the recorder's as well.
		if ev.Arg(0) == uint64(r.recorder) || ev.About == r.recorder && ev.About != 0 {
			if did.RunnerSignals == 0 {
				did.RunnerSignal = ev.Arg(1)
			}
			did.RunnerSignals += n
		}
	case schema.KindPtrace:
		did.Injected = did.Injected || ev.Errno == 0
		if traces(ev) && !ev.Attempted { // mostly refused: not known to have reached anybody
			r.touchProcess(uint64(ev.About), n)
		}
		if ev.Syscall == "pidfd_getfd" && ev.Errno == 0 && ev.About == r.recorder {
			did.actOnRunner(ev, ev.Syscall, n)
		}
	case schema.KindBPF:
		traces, network := ev.LoadsProgram()
		switch {
		case p != nil && p.own && !did.Injected: // what a recorder loads is known
		case traces:
			did.changeKernel("bpf", n)
		case network:
			did.Carriers += n
		}
	case schema.KindConnect, schema.KindSendto:
		// Of other families a hook or a flow has the peer, whatever the memory said.
		if ev.Claimed && ev.Protocol == "vsock" && ev.Errno == 0 {
			did.MayCarry += n
		}
	case schema.KindJoin:
		if ev.MovedByRun {
			if did.Joined == 0 {
				did.JoinedFirst = ev.Task.PID
			}
			did.Joined++
		}
	case schema.KindModule:
		if ev.Errno == 0 && !ev.Attempted {
			did.changeKernel(ev.Syscall, n)
		}
	case schema.KindSocket:
		if ev.Carrier() {
			did.Carriers += n
		}
	case schema.KindForeignSocket:
		if ev.PeerUnknown {
			did.MayCarry += n
		}
		if ev.Peer.Port() == portDNS {
			did.ForeignDNS += n
		}
	case schema.KindPrivileged:
		if ev.Syscall == "ioctl" && ev.Errno == 0 && uint32(ev.Arg(1)) == tunSetIff {
			did.Carriers += n
		}
		if ev.Errno == 0 && (ev.About == r.recorder && ev.About != 0 || ofMany(ev)) {
			did.actOnRunner(ev, ev.Syscall, n)
		}
		if ev.Errno == 0 && !ev.Attempted && reachesMachine(ev) {
			did.changeKernel(ev.Syscall, n)
		}
	case schema.KindOpen, schema.KindWrite:
		if ev.Errno != 0 {
			return ""
		}
		if ev.Kind == schema.KindOpen && !ev.Writes() {
			if pid := uint64(ev.PlaceProcess); pid != 0 && pid != uint64(ev.Task.PID) { // its memory, to read
				r.touchProcess(pid, n)
			}
			return ""
		}
		name := ev.Value // of a file that the observer knows by nothing else
		if ev.KernelObject() {
			if ev.Place == "" {
				return ""
			}
			name = ev.Place
		}
		switch {
		case name == "/dev/net/tun":
			did.Carriers += n
		case name == kernel.PlaceMemory:
			did.changeKernel(name, n)
		case helper(name):
			if did.Helpers == 0 {
				did.Helper = name
			}
			did.Helpers += n
			if !ev.Repeat {
				return name
			}
		default:
			pid, ok := memoryOf(name)
			did.Injected = did.Injected || ok
			if ev.PlaceProcess != 0 {
				pid = uint64(ev.PlaceProcess)
			}
			if ok && pid != uint64(ev.Task.PID) && !ev.Attempted {
				r.touchProcess(pid, n)
			}
			if !ok && ev.PlaceProcess != 0 && ev.PlaceProcess == r.recorder {
				did.actOnRunner(ev, name, n)
			}
		}
	}
	return ""
}

// touchProcess notes that the run reached into the process of that pid, where it is
// none of the run's.
func (r *reach) touchProcess(pid, times uint64) {
	if r.procs.has(uint32(pid)) {
		return
	}
	did := &r.did
	if did.TracedTimes == 0 {
		did.Traced = pid
	}
	did.TracedTimes += times
	if pid == uint64(r.recorder) {
		did.RecorderTraced += times
	}
}

// startedFor says for whom the kernel started a program, by the Asked constants.
var startedFor = [...]string{
	kernel.AskedNot: "after that", kernel.Asked: "for a call of the run", kernel.AskedMaybe: "perhaps for the run",
}

// outside notes what others did to a run: a move out of its cgroup in a v1 hierarchy, and a program that the kernel
// started for the run or after the run had changed a helper. It returns the call and the second name of the line that
// tells of that, and whether a process of the run did it. No call: there is no such line.
func (r *reach) outside(ev *kernel.Event) (call, target string, ofRun bool) {
	did := &r.did
	switch {
	case ev.Kind == kernel.KindKernelExec && (did.Helpers > 0 || ev.Arg(0) != kernel.AskedNot):
		if did.StartedTimes == 0 {
			did.Started, did.StartedFor = ev.Value, startedFor[ev.Arg(0)%uint64(len(startedFor))]
		}
		did.StartedTimes++
		return "kernel_helper_started", "", ev.Arg(0) == kernel.Asked
	case ev.Kind == kernel.KindMovedV1 && r.movedV1 != nil:
		controllers, left := r.movedV1(ev.Arg(0), ev.Arg(1), ev.Value)
		if !left {
			break
		}
		if len(did.LeftV1) == 0 {
			did.LeftV1To = ev.Value
		}
		if !slices.Contains(did.LeftV1, controllers) {
			did.LeftV1 = append(did.LeftV1, controllers)
		}
		return "cgroup_v1_left", controllers, true
	}
	return "", "", false
}

// ofMany reports whether a call changed all processes of a group or a user, of which the recorder may be one.
func ofMany(ev *kernel.Event) bool {
	switch ev.Syscall {
	case "setpriority":
		return ev.Arg(0) != 0 // PRIO_PROCESS
	case "ioprio_set":
		return ev.Arg(0) != 1 // IOPRIO_WHO_PROCESS
	}
	return false
}

// reachesMachine reports whether a call starts another kernel, or lets a process do what devices do.
func reachesMachine(ev *kernel.Event) bool {
	switch ev.Syscall {
	case "kexec_load", "kexec_file_load":
		return true
	case "iopl":
		return ev.Arg(0) != 0
	case "ioperm":
		return ev.Arg(2) != 0 // to allow
	}
	return false
}

// tunSetIff is TUNSETIFF of linux/if_tun.h, the ioctl that makes a descriptor a tunnel.
const tunSetIff = 0x400454ca

// traces reports whether a call was a successful ptrace of another process, or reached into its memory.
func traces(ev *kernel.Event) bool {
	switch ev.Syscall {
	case "process_vm_readv", "process_vm_writev":
	case "ptrace":
		if ev.Arg(0) == 0 { // PTRACE_TRACEME
			return false
		}
	default:
		return false
	}
	return ev.Errno == 0 && ev.About != 0
}

// signals reports whether a call makes the kernel send signals to the process that it acts on.
func signals(ev *kernel.Event) bool {
	switch ev.Syscall {
	case "fcntl", "ioctl":
		return true
	case "prlimit64":
		return ev.Arg(1) <= 1 // RLIMIT_CPU, RLIMIT_FSIZE
	}
	return false
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

// helper reports whether the file has the name of a program that the kernel itself starts, outside of every session.
func helper(name string) bool {
	switch name {
	case "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug",
		"/proc/sys/kernel/poweroff_cmd",
		"/sys/kernel/uevent_helper":
		return true
	}
	return strings.HasPrefix(name, "/proc/sys/fs/binfmt_misc/") ||
		strings.HasPrefix(name, "/proc/sys/kernel/usermodehelper/") ||
		path.Base(name) == "release_agent"
}
