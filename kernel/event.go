package kernel

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// BPFObject is an object of the BPF subsystem. Writable: the caller can change the object through its descriptor.
type BPFObject struct {
	Type     BPFType
	ID       uint32
	Writable bool
	// Program is, of a BPFProg, what it is attached to (enum bpf_prog_type of linux/bpf.h).
	Program uint8
}

// LoadsProgram reports whether the event loads a BPF program that traces the kernel, and can change it or the memory of
// processes (traces), or one that handles packets or addresses (network). Programs of other types act on the sockets
// and cgroups that they are attached to.
func (e *Event) LoadsProgram() (traces, network bool) {
	const progLoad = 5
	if e.Kind != schema.KindBPF || e.Errno != 0 || e.Arg(0) != progLoad {
		return false, false
	}
	switch e.BPF.Program {
	case 1, 9, 15, 20, 21, 23, 25: // SOCKET_FILTER, CGROUP_SOCK, _DEVICE, _SYSCTL, _SOCKOPT, LIRC_MODE2, SK_REUSEPORT
		return false, false
	case 3, 4, 6, 8, 10, 11, 12, 13, 14, 16, 18, 19, 22, 30, 32: // SCHED_CLS to NETFILTER
		return false, true
	}
	return true, false
}

// BPFType is what an object is; zero for none.
type BPFType uint8

// Types of object, in the order of enum object in bpf/record.h.
const (
	BPFMap BPFType = 1 + iota
	BPFProg
	BPFLink
)

// Task is a thread of a process at one moment.
type Task struct {
	// PID is the process (tgid) in the initial pid namespace (see coverage.go), TID its thread, PPID the
	// parent process.
	PID, TID, PPID uint32
	// Start is the boot time at which the process's leader started, in
	// nanoseconds. (PID, Start) identifies a process and survives exec; pids
	// may be reused, pairs are not. It is also what field 22 of
	// /proc/pid/stat shows, there in clock ticks.
	Start uint64
	// CgroupID is the id of the task's cgroup2 directory (its inode number).
	CgroupID uint64
}

// Event is one decoded kernel record: the line that it becomes, as far as one record tells it, and what
// places that line in a run.
//
// Of the line, the decoder sets every field that comes from the record. RunID, Seq, TNS, TFirstNS, TLastNS,
// ExecID, ParentExecID, Class, Names, DNS, ToolCallID, BoundBy, Check, ContainerID and Late come from the run.
// Count is 1 where Repeat is false.
//
// One Event is reused for all calls of the function given to [Observer.Read], which may change it: copy it to
// keep it. What it refers to is never changed again. Fields that a kind does not use are zero.
//
// Times are nanoseconds of CLOCK_BOOTTIME.
type Event struct {
	schema.KernelEvent
	// Task is who acted, Child the new task of a schema.KindFork.
	Task, Child Task
	// Hook indexes [Report].Hooks and names the hook that saw it.
	Hook HookID
	// Syscall is the name of the system call ("openat2"), "io_uring" for a request
	// that does the same without one, empty for events that come from another hook.
	Syscall string
	// Errno is the number of the error that the call failed with, else 0.
	Errno int32
	// opening is what a KindUnmodelled opens.
	opening Opening
	// ID is unique within a run and never 0. A Repeat carries the ID of the event that it repeats, which was
	// delivered before it. All other fields are those of that event, except Time, Count, First, Last and the
	// bytes. The number of times something happened is the sum of Count over its events.
	ID uint64
	// Slot counts the repeats of the event, from 1; 0 if there will be none. An event that takes a slot ends the count
	// of the event that had it.
	Slot uint32

	// Time is when the record was made: after the call it describes, or, for
	// a Repeat, when the slot was flushed. Records of one CPU come in order of
	// Time; records of different CPUs interleave by at most a few
	// milliseconds.
	Time uint64
	// First and Last are the times of the first and last of Count occurrences, equal to Time if Repeat is false. Last
	// can be up to 10 ms early: it is exact to a tick of the kernel's timer.
	First, Last uint64

	// Device (kernel's dev_t: major<<20 | minor), Inode and FileMode (S_IFMT
	// and permissions) identify the file where Value is the path of an open file or of a program.
	Device   uint32
	Inode    uint64
	FileMode uint32

	// Place is the name of a file that controls the kernel or another process, at the usual mount point of its file
	// system, whatever Value is: a file of proc, sysfs, binfmt_misc or a cgroup, /dev/net/tun, PlaceMemory, another
	// device by its number as /dev/char/1:3, or "magic:" with the type of another file system that keeps no files, and
	// the name there. It is set for a KindWrite and a KindOpen to write, and for a KindOpen to read of a process's
	// memory, if Value is a kernel object. PlaceProcess is, of a KindOpen, the process that a file of proc is about, in
	// the initial pid namespace; 0 for none.
	Place        string
	PlaceProcess uint32

	// BPF is the object that a schema.KindBPF made, opened or changed, or the map that a schema.KindMmapShared maps;
	// zero for other commands.
	BPF BPFObject

	// MountType is the type of file system that mount(2) was given, or its first eight bytes.
	MountType string

	// Tasks is how many tasks a schema.KindJoin or schema.KindLeave moved: a process is moved with its threads.
	Tasks uint64

	// MovedByRun: another process of the session moved the task of a schema.KindJoin or schema.KindLeave.
	MovedByRun bool

	// Thread: the fork made a thread of Task's process. SharesFiles: parent and child have one table of
	// descriptors.
	Thread, SharesFiles bool

	// MountNS is the number of the task's mount namespace, as /proc/PID/ns/mnt has it: the
	// new task's on schema.KindFork, else the caller's on schema.KindNamespace and the moved one's on
	// schema.KindJoin. 0 is unknown.
	MountNS uint32

	// Interp is the file that the kernel ran for a script, or what was passed to execve.
	Interp string
	// CallInEnv and Traceparent are the values of ASSAY_TOOL_CALL_ID and
	// TRACEPARENT in an exec's environment, at most 128 bytes, empty when absent or longer.
	CallInEnv, Traceparent string

	// Peer and Own are the ends of a network event; invalid if unknown, and for unix sockets and vsock. SockType is
	// SOCK_*.
	Peer, Own netip.AddrPort
	SockType  uint16
	// FromUser: an address was read from user memory rather than the kernel's copy.
	FromUser bool
	// PeerUnknown: nobody knows whom the run exchanged data with through a schema.KindForeignSocket, which is not
	// connected, or of a family whose peers no hook sees.
	PeerUnknown bool
	// About is the process that a call acts on, in the initial pid namespace; Args have its id as the caller sees it.
	// 0 is none or unknown. Of a schema.KindSignal it is the parent of the process that got the signal.
	About uint32

	// Way identifies the directory entries that the names led through, by four bytes each, little-endian: see
	// [Event.Ways]. It is empty in a run of one task.
	Way string
	// Begun is, if Way is set, when an earlier call of the task ended, so that this one began later; 0 if unknown.
	Begun uint64

	// Payload is the start of a ClientHello, or a DNS message; of TCP, a segment with one or a part of one. Ingress
	// says whether it was received.
	Payload []byte
	Ingress bool
}

// Filename is what was passed to execve.
func (e *Event) Filename() string {
	if e.Target != "" {
		return e.Target
	}
	return e.Value
}

// Arg is one of Args, 0 beyond their end.
func (e *Event) Arg(i int) uint64 {
	if i < len(e.Args) {
		return e.Args[i]
	}
	return 0
}

// setArgs sets Args without zeroes at the end, but at least the first.
func (e *Event) setArgs(args ...uint64) {
	n := len(args)
	for n > 1 && args[n-1] == 0 {
		n--
	}
	e.Args = slices.Clone(args[:n])
}

// KernelObject reports whether Value, if any, is the kernel's own path of an object.
func (e *Event) KernelObject() bool { return !e.UserMemory && !e.KernelCopy }

// cut notes that the event's paths are not whole.
func (e *Event) cut(names bool) {
	if e.Truncated |= schema.FieldValue; names && e.Target != "" {
		e.Truncated |= schema.FieldTarget
	}
}

// SetEnds sets the ends of a network event, and the fields of the line about them. family is AF_*, proto IPPROTO_*.
// For a unix socket, Value must be its name: abstract ones begin with '@', unnamed ones are empty.
func (e *Event) SetEnds(family, proto uint16, own, peer netip.AddrPort) {
	e.Own, e.Peer = own, peer
	e.Protocol = protocol(family, proto, e.SockType)
	switch {
	case e.Kind == schema.KindDNS:
		e.Remote = Endpoint(peer)
	case e.Kind == schema.KindTLS:
		e.Remote, e.Protocol = Endpoint(peer), "tcp"
	case family == afUnix:
		e.Value = "unix:" + e.Value
	case e.Kind == schema.KindBind || e.Kind == schema.KindListen:
		if e.Value = Endpoint(own); e.Errno != 0 && own.Port() == 0 && own.Addr().IsUnspecified() {
			e.Value = "" // the arguments were invalid
		}
	default:
		e.Local, e.Value = Endpoint(own), Endpoint(peer)
	}
}

// VsockAddr is an address of AF_VSOCK: a machine and a port, see vsock(7).
type VsockAddr struct{ CID, Port uint32 }

// SetVsock sets Value to own if the event is a bind or a listen, otherwise to peer.
func (e *Event) SetVsock(own, peer VsockAddr) {
	a := peer
	if e.Kind == schema.KindBind || e.Kind == schema.KindListen {
		a = own
	}
	if e.Value = ""; a != (VsockAddr{}) {
		e.Value = fmt.Sprintf("vsock:%d:%d", a.CID, a.Port)
	}
}

// Address families of socket(7), from linux/socket.h.
const (
	afUnix    = 1
	afNetlink = 16
	afPacket  = 17
	afVsock   = 40
)

// protocol names the transport; "" when it isn't known.
func protocol(family, proto, sockType uint16) string {
	switch family {
	case afUnix:
		return "unix"
	case afNetlink:
		return "netlink"
	case afPacket:
		return "packet"
	case afVsock:
		return "vsock"
	}
	switch proto {
	case 1, 58:
		return "icmp"
	case 6:
		return "tcp"
	case 17:
		return "udp"
	case 33:
		return "dccp"
	case 132:
		return "sctp"
	case 136:
		return "udplite"
	case 262:
		return "mptcp"
	}
	switch sockType {
	case 1:
		return "tcp"
	case 2:
		return "udp"
	case 3:
		return "raw"
	}
	return ""
}

// Endpoint is an address in the form of the lines, "" for none.
func Endpoint(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return Unmapped(a).String()
}

// Unmapped is the address with an IPv4-mapped IPv6 address replaced by the IPv4 address.
func Unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// setResult sets what a call returned. known is false if its end was not seen.
func (e *Event) setResult(ret int32, known bool) {
	switch ret {
	case -512, -513, -514, -516: // ERESTARTSYS and its kin, see include/linux/errno.h
		// A signal came. Whether the call begins anew or returns EINTR is
		// decided after the tracepoint; a program can only ever see EINTR.
		ret = -4
	}
	e.Errno = 0
	if ret < 0 && ret >= -4095 {
		e.Errno = -ret
	}
	e.Result = int64(ret)
	switch e.Kind {
	case schema.KindConnectResult:
		e.HasResult = known
	case schema.KindFlow, schema.KindDNS, schema.KindTLS:
	case schema.KindWrite: // what was written is in BytesOut
		e.HasResult = known && e.Syscall != "" && e.Errno != 0
	default:
		e.HasResult = known && e.Syscall != ""
	}
}

// arguments sets what follows from a system call's arguments. ia32 is a 32-bit
// program's call.
func (e *Event) arguments(call *sysCall, args [6]uint64, ia32 bool) {
	// Arguments that are ints come with arbitrary upper halves.
	if call.flagsArg != noArg {
		e.Flags = args[call.flagsArg]
		if call.name != "openat2" && call.name != "unshare" && call.name != "clone3" {
			e.Flags = uint64(uint32(e.Flags))
		}
	}
	switch call.name {
	case "creat":
		e.Flags = 0x241 // O_CREAT|O_WRONLY|O_TRUNC
	case "unlinkat":
		if e.Flags&0x200 != 0 { // AT_REMOVEDIR
			e.Kind = schema.KindRmdir
		}
	case "chown", "lchown", "fchown":
		e.setArgs(uint64(uint32(args[1])), uint64(uint32(args[2])))
	case "fchownat":
		e.setArgs(uint64(uint32(args[2])), uint64(uint32(args[3])))
	case "truncate", "ftruncate":
		e.setArgs(args[1])
	case "truncate64", "ftruncate64":
		e.setArgs(args[1] | args[2]<<32)
	case "mknod":
		e.device(uint32(args[1]), args[2])
	case "mknodat":
		e.device(uint32(args[2]), args[3])
	case "fallocate":
		e.Call = call.name
		if ia32 { // in halves
			e.setArgs(args[1], args[2]|args[3]<<32, args[4]|args[5]<<32)
		} else {
			e.setArgs(args[1], args[2], args[3])
		}
	case "sendmsg", "sendmmsg":
		e.Call = call.name
	}
	switch e.Kind {
	case schema.KindOpen, schema.KindMkdir, schema.KindMknod, schema.KindChmod:
		if call.modeArg != noArg {
			e.Mode = uint32(args[call.modeArg])
		}
	case schema.KindCompatSyscall:
		e.Call = call.name
	case schema.KindMemfd:
		e.Call = call.name
		e.setArgs(0)
	case schema.KindSetID, schema.KindCapset, schema.KindPtrace, schema.KindMount, schema.KindNamespace,
		schema.KindModule,
		schema.KindIOUring, schema.KindPrivileged, schema.KindSocket, schema.KindBPF, schema.KindIPC:
		e.Call = call.name
		for i := range args {
			if call.numbers&(1<<i) == 0 {
				args[i] = 0
			}
		}
		e.setArgs(args[:]...)
	}
}

// device sets the device that a mknod makes, if any.
func (e *Event) device(mode uint32, device uint64) {
	if t := mode & 0o170000; t == 0o20000 || t == 0o60000 {
		e.setArgs(uint64(uint32(device)))
	}
}

// Carrier reports whether e made a socket that [Carries] data. If the result is not known, it counts as made.
func (e *Event) Carrier() bool {
	return e.Kind == schema.KindSocket && e.Errno == 0 && Carries(uint64(uint32(e.Arg(0))), uint64(uint32(e.Arg(2))))
}

// Kinds of records that are no lines of the layer, as in bpf/record.h. Only the first three are kinds of an [Event].
const (
	// KindMovedV1: a task was moved in a v1 hierarchy, and stays in the session; Args: the
	// hierarchy's id, the cgroup's; Value: its path.
	KindMovedV1 schema.KernelKind = 240 + iota
	// KindKernelExec: the kernel itself started a program, outside of every session. Value is the program's name, and
	// the first of Args one of the Asked constants; with Asked, Task is the task of the session.
	KindKernelExec
	// KindUnmodelled: a call, or an operation of one, that no line tells of; Args: its number, the operation; Value:
	// its name. See [Event.Opens].
	KindUnmodelled
	kindExecArgs    // part of an exec's argv; joined by the decoder
	kindExecEnv     // an exec's environment keys; joined by the decoder
	kindRepeat      // a flushed coalescing slot; joined by the decoder
	kindRequestDone // the end of an io_uring request; joined by the decoder

	kindCount = 256 // K_COUNT
)

// Whether the kernel started a program for the session, in the order of enum asked in bpf/exec.h.
const (
	AskedNot   = iota // for somebody outside of the session
	Asked             // a task of the session waited for it
	AskedMaybe        // nobody waited for it
)

// coreDump is the Syscall of a KindOpen for the core dump that the kernel itself wrote. Without a result, the dump may
// not be whole.
const coreDump = "core_dump"

// Ways decodes e.Way. The entry 0 stands for every entry that others than this host's tasks can change.
func (e *Event) Ways() iter.Seq2[uint32, Way] {
	return func(yield func(uint32, Way) bool) {
		for b := e.Way; len(b) >= 4; b = b[4:] {
			w := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
			if !yield(w>>1, Way(w&1)) {
				return
			}
		}
	}
}

// Way says what a call did with a directory entry, in the order of WAY_CHANGED in bpf/record.h.
type Way uint8

const (
	// Through: a name led through the entry.
	Through Way = iota
	// Changed: the call made it lead elsewhere.
	Changed
)

// urgent are the kinds whose records go to a ring that a flood of files cannot fill.
var urgent = []schema.KernelKind{
	schema.KindExec, schema.KindExecFailed, schema.KindFork, schema.KindExit, schema.KindConnect,
	schema.KindConnectResult,
	schema.KindSetID, schema.KindCapset, schema.KindPtrace, schema.KindMount, schema.KindNamespace, schema.KindBPF,
	schema.KindMemfd, schema.KindModule, schema.KindIOUring, schema.KindPrivileged, schema.KindSignal,
	schema.KindForeignSocket,
	schema.KindSocket, schema.KindIPC,
	schema.KindLeave, schema.KindJoin, schema.KindChroot, schema.KindCompatSyscall, KindMovedV1, KindKernelExec,
	KindUnmodelled, kindExecArgs,
}

// eventKinds are the kinds that an Event can have.
var eventKinds = func() (known [kindCount]bool) {
	for _, k := range append(schema.Kinds(), KindMovedV1, KindKernelExec, KindUnmodelled) {
		known[k] = true
	}
	return known
}()
