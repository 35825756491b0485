package layer

import (
	"path"
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
