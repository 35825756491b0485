package kernel

import (
	"net/netip"

	"github.com/assay-run/assay-run/schema"
)

// PathSource tells where a path comes from, and so how far it can be trusted.
type PathSource uint8

const (
	// PathNone: the event has no path.
	PathNone PathSource = iota
	// PathKernelObject: walked from the kernel's own dentry and mount.
	PathKernelObject
	// PathUserMemory: the name as it stood in the caller's memory when the
	// call returned. Another thread could have changed it. Its directory is
	// resolved as the kernel did, by the kernel's own objects, and is the
	// kernel's own path of it; the last part is the caller's, and where it is a
	// symbolic link it is not followed. See Unresolved.
	PathUserMemory
	// PathKernelCopy: as PathUserMemory, but the name is the kernel's own copy,
	// which it worked with: nobody could change it.
	PathKernelCopy
)

// String is the value of path_source in kernel_event.v1, empty for PathNone.
func (s PathSource) String() string {
	switch s {
	case PathKernelObject:
		return "kernel_object"
	case PathUserMemory:
		return "user_memory"
	case PathKernelCopy:
		return "kernel_copy"
	}
	return ""
}

// BPFObject is an object of the BPF subsystem. Writable: the caller's descriptor
// lets it change the object.
type BPFObject struct {
	Type     BPFType
	ID       uint32
	Writable bool
}

// BPFType is what an object is; zero for none.
type BPFType uint8

// Types of object, in the order of enum object in bpf/record.h.
const (
	BPFMap BPFType = 1 + iota
	BPFProg
	BPFLink
)

// Event is one decoded kernel record.
//
// One Event is reused for all calls of the function given to
// [Observer.Read]: it, and every slice in it, is valid only until that function
// returns. Copy what you keep. Fields that a kind does not use are zero.
//
// Times are nanoseconds of CLOCK_BOOTTIME. Pids are those of the initial pid
// namespace (see coverage.go).
type Event struct {
	Kind schema.KernelKind
	// Hook indexes [Report].Hooks and names the hook that saw it.
	Hook HookID
	// Syscall is the name of the system call ("openat2"), "io_uring" for a request
	// that does the same without one, empty for events that come from another hook.
	Syscall string
	// ID is unique within a run and never 0. A Repeat carries the ID of the event it repeats.
	ID uint64

	// Time is when the record was made: after the call it describes, or, for
	// a Repeat, when the slot was flushed. Records of one CPU come in order of
	// Time; records of different CPUs interleave by at most a few
	// milliseconds.
	Time uint64
	// Count is 1, or in a Repeat the number of further occurrences beyond the
	// event with the same ID, which was delivered before it. So the number of
	// times something happened is the sum of Count over its events.
	Count uint64
	// Repeat marks an event that stands for Count coalesced repeats: same
	// process, kind, file or peer, flags and result. All other fields are those
	// of the first occurrence, except Time, Count, First, Last, Bytes and TID (the first's).
	Repeat bool
	// Slot is where repeats of the event are counted, from 1; 0 where there will be
	// none. An event that takes a slot ends what was counted there before.
	Slot uint32
	// First and Last are the times of the first and last occurrence that Count
	// counts. Equal to Time when Repeat is false. Last is the time of one in the
	// same tick of the kernel's timer as the last, so up to 10 ms early.
	First, Last uint64

	// PID is the process (tgid) that acted, TID its thread, PPID the parent
	// process at that moment.
	PID, TID, PPID uint32
	// Start is the boot time at which the process's leader started, in
	// nanoseconds. (PID, Start) identifies a process and survives exec; pids
	// may be reused, pairs are not. It is also what field 22 of
	// /proc/pid/stat shows, there in clock ticks.
	Start uint64
	// CgroupID is the id of the task's cgroup2 directory (its inode number).
	CgroupID uint64

	// Ret is the system call's result: -errno, or what it returned (an fd, a
	// byte count). Zero for events of other hooks.
	Ret int32
	// Errno is -Ret when the call failed, else 0.
	Errno int32
	// NoResult marks an event taken before its outcome was known (a connect
	// seen only by the cgroup hook, an io_uring request).
	NoResult bool
	// Attempted marks an event that was taken before the call was made: whether it
	// was made then, and how it ended, is unknown. NoResult is set, too. Of a
	// schema.KindExit: how the process ended is unknown.
	Attempted bool

	// Path is the file the event is about: absolute and clean, no trailing
	// slash, unless RelativePath is set. Empty when it could not be read
	// (Unreadable) or the kind has none. For unix sockets it is the socket's
	// name as bound: abstract ones begin with '@', unnamed ones are empty.
	Path []byte
	// Path2 is the second path of rename, link, symlink, move_mount and
	// pivot_root. Path of mount is the target, and Name the source as written.
	Path2 []byte
	// Given and Given2 are Path and Path2 as the caller wrote them, where ".." or
	// a symbolic link on the way, or a descriptor in /proc, made them other than
	// those; else empty.
	Given, Given2 []byte
	// Unresolved: the directory of Path or Path2 could not be told from the kernel's
	// objects (a magic link, a link on overlayfs, a ".." behind what is not there), so
	// a symbolic link may be in it, and ".." stands in it as it was given.
	Unresolved bool
	// PathSource applies to Path, Path2 alike.
	PathSource PathSource
	// Truncated: a path or payload is longer than what was kept (4096 bytes,
	// 256 components, the payload cap). Of an exec: Exe; the rest has its own.
	Truncated bool
	// RelativePath: the directory that Path or Path2 is relative to could not
	// be walked, so it stands as the caller wrote it.
	RelativePath bool
	// Unreadable: a read of user or kernel memory failed, so some field is missing.
	Unreadable bool
	// Deleted: the file had no name any more (unlinked, or its directory was).
	// Path is its last one.
	Deleted bool
	// Memfd: the file lives in anonymous memory (memfd_create); Path is
	// "/memfd:NAME". For an exec this and Deleted speak of Exe.
	Memfd bool
	// Unreachable: the file is not below the root of the caller's mount
	// namespace (a lazily unmounted or another namespace's mount); Path starts at that mount.
	Unreachable bool
	// Device (kernel's dev_t: major<<20 | minor), Inode and FileMode (S_IFMT
	// and permissions) identify the file when PathSource is PathKernelObject.
	Device   uint32
	Inode    uint64
	FileMode uint32

	// Place is, of a KindOpen to write or a KindWrite of a file by which the kernel or another
	// process can be told to do something, its name where its file system usually is, whatever
	// Path is: a file of proc, sysfs, binfmt_misc or a v1 cgroup, or /dev/net/tun. It is empty
	// for other files, and where Path is no kernel object. PlaceProcess is, of a KindOpen, the
	// process that a file of proc is about, in the initial pid namespace, 0 for none.
	Place        []byte
	PlaceProcess uint32

	// Flags are the call's flags: O_* for open, AT_* for unlinkat, RENAME_*
	// for renameat2, MS_* for mount, CLONE_* for fork and namespaces, MAP_*
	// for mmap, MSG_* for send.
	Flags uint64
	// Created: the open made the file. Opens through io_uring and failed ones do not tell.
	Created bool
	// Mode is the mode argument of open, mkdir, mknod, chmod; PROT_* of mmap.
	Mode uint32
	// Resolve is openat2's RESOLVE_* flags.
	Resolve uint32
	// UID and GID are chown's arguments (-1 is "leave") as passed.
	UID, GID uint32
	// Name is an extended attribute's name, the source of mount, the file
	// system of fsopen, the name of delete_module, the path of the cgroup2
	// directory that a task was moved to.
	Name []byte
	// Args are the arguments of the privilege kinds that are numbers; those that
	// are addresses are 0. Args[0] of mknod is the device, as the call has it.
	Args [6]uint64

	// BPF is the object that a schema.KindBPF made, got hold of or changed, as far as the
	// command is one of those, and the map that a schema.KindMmapShared maps.
	BPF BPFObject

	// Fork: the new task. ChildPID equals PID for a thread (Thread is true).
	ChildPID, ChildTID uint32
	ChildStart         uint64
	ChildCgroupID      uint64
	Thread             bool
	// SharesFiles: parent and child have one table of descriptors.
	SharesFiles bool

	// MountNS is the number of the task's mount namespace, as /proc/PID/ns/mnt has it: the
	// new task's on schema.KindFork, else the caller's on schema.KindNamespace and the moved one's on
	// schema.KindJoin. 0 is unknown.
	MountNS uint32

	// ExitCode and Signal of schema.KindExit: exactly one is meaningful; Signal is 0
	// for an ordinary exit.
	ExitCode int
	Signal   int
	Core     bool // a core was dumped

	// Exec. Exe is the kernel's path of the image (Deleted, Memfd,
	// Device, Inode and FileMode speak of it), Filename what was passed to execve, Interp the
	// file that the kernel finally ran for a script (else equal to
	// Filename). OldTID is the tid of the calling thread when it was not the
	// leader (it takes over the leader's), else 0.
	Exe, Cwd, Filename, Interp []byte
	OldTID                     uint32
	// Argv is the committed argument vector, empty arguments kept. EnvKeys are
	// names only, in order, entries without '=' left out. ArgvTruncated and EnvTruncated say when
	// the kernel held more.
	Argv, EnvKeys               [][]byte
	ArgvTruncated, EnvTruncated bool
	CwdTruncated                bool
	// ToolCallID and Traceparent are the values of ASSAY_TOOL_CALL_ID and
	// TRACEPARENT, at most 128 bytes, empty when absent or longer.
	ToolCallID, Traceparent []byte

	// Network. Family is AF_*, Proto IPPROTO_*, SockType SOCK_*. Remote is the
	// peer, Local the own address where known; invalid for AF_UNIX (see Path) and when unknown.
	Family, Proto, SockType uint16
	Local, Remote           netip.AddrPort
	// VsockLocal and VsockRemote are the addresses of AF_VSOCK.
	VsockLocal, VsockRemote VsockAddr
	// Claimed: what was read from the caller's memory could have been changed by
	// another that shares it while the kernel used it.
	Claimed bool
	// About is the process that a call on a process is about, in the initial pid namespace: Args
	// have the number that the caller has for it. 0 is none, or not known.
	About uint32
	// FromUser marks a Remote that was read from user memory rather than the kernel's copy.
	FromUser bool

	// Bytes: written to the file by the calls that Count counts; sent to
	// Remote; or the length argument of truncate. BytesIn: received.
	Bytes, BytesIn uint64
	// Peers is, of a schema.KindFlow without a Remote, how many remote endpoints had
	// connected to Local.
	Peers uint64
	// Payload is the start of a ClientHello, or a DNS message, of TCP a segment
	// that has one or a part of one. Ingress tells its direction.
	Payload []byte
	Ingress bool
}

// setResult sets what a call returned.
func (e *Event) setResult(ret int32) {
	switch ret {
	case -512, -513, -514, -516: // ERESTARTSYS and its kin, see include/linux/errno.h
		// A signal came. Whether the call begins anew or returns EINTR is
		// decided after the tracepoint; a program can only ever see EINTR.
		ret = -4
	}
	e.Ret, e.Errno = ret, 0
	if ret < 0 && ret >= -4095 {
		e.Errno = -ret
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
	if call.modeArg != noArg {
		e.Mode = uint32(args[call.modeArg])
	}
	switch call.name {
	case "creat":
		e.Flags = 0x241 // O_CREAT|O_WRONLY|O_TRUNC
	case "unlinkat":
		if e.Flags&0x200 != 0 { // AT_REMOVEDIR
			e.Kind = schema.KindRmdir
		}
	case "chown", "lchown", "fchown":
		e.UID, e.GID = uint32(args[1]), uint32(args[2])
	case "fchownat":
		e.UID, e.GID = uint32(args[2]), uint32(args[3])
	case "truncate", "ftruncate":
		e.Bytes = args[1]
	case "truncate64", "ftruncate64":
		e.Bytes = args[1] | args[2]<<32
	case "mknod":
		e.Args[0] = uint64(uint32(args[2]))
	case "mknodat":
		e.Args[0] = uint64(uint32(args[3]))
	case "fallocate":
		e.Args = [6]uint64{args[1], args[2], args[3]}
		if ia32 { // in halves
			e.Args = [6]uint64{args[1], args[2] | args[3]<<32, args[4] | args[5]<<32}
		}
	}
	switch e.Kind {
	case schema.KindSetID, schema.KindCapset, schema.KindPtrace, schema.KindMount, schema.KindNamespace,
		schema.KindModule, schema.KindIOUring, schema.KindCompatSyscall, schema.KindPrivileged, schema.KindSocket,
		schema.KindBPF:
		for i := range e.Args {
			if call.numbers&(1<<i) != 0 {
				e.Args[i] = args[i]
			}
		}
	}
}

// Carrier reports whether e is the making of such a socket. One whose result is not known counts.
func (e *Event) Carrier() bool {
	return e.Kind == schema.KindSocket && e.Errno == 0 && Carries(uint64(uint32(e.Args[0])), uint64(uint32(e.Args[2])))
}

// Kinds of records that are no line of the layer: those of an [Event] are the number that
// they have in it. As in bpf/record.h.
const (
	// KindMovedV1: a task was moved in a v1 hierarchy, and stays in the session; Args: the
	// hierarchy's id, the cgroup's; Name: its path.
	KindMovedV1 schema.KernelKind = 240 + iota
	// KindKernelExec: the kernel itself started a program, outside of every session; Name:
	// as it was told to; Args: whether it did so for a task of the session, one of the
	// Asked constants. PID is then that task's.
	KindKernelExec
	kindExecArgs    // part of an exec's argv; joined by the decoder
	kindExecEnv     // an exec's environment keys; joined by the decoder
	kindRepeat      // a flushed coalescing slot; joined by the decoder
	kindRequestDone // the end of an io_uring request; joined by the decoder

	kindCount = 256 // K_COUNT
)

// Whom the kernel started a program for, in the order of enum asked in bpf/exec.h.
const (
	AskedNot   = iota // for somebody outside of the session
	Asked             // a task of the session waited for it
	AskedMaybe        // nobody waited for it
)

// coreDump is the Syscall of a KindOpen by which the kernel itself wrote the core dump of
// the process, which is no call. NoResult: the dump is not known to be whole.
const coreDump = "core_dump"

// urgent are the kinds whose records go to a ring that a flood of files cannot fill.
var urgent = []schema.KernelKind{
	schema.KindExec, schema.KindExecFailed, schema.KindFork, schema.KindExit, schema.KindConnect,
	schema.KindConnectResult,
	schema.KindSetID, schema.KindCapset, schema.KindPtrace, schema.KindMount, schema.KindNamespace, schema.KindBPF,
	schema.KindMemfd, schema.KindModule, schema.KindIOUring, schema.KindPrivileged, schema.KindSignal,
	schema.KindSocket,
	schema.KindLeave, schema.KindJoin, schema.KindChroot, schema.KindCompatSyscall, KindMovedV1, KindKernelExec,
	kindExecArgs,
}

// eventKinds are the kinds that an Event can have.
var eventKinds = func() (known [kindCount]bool) {
	for _, k := range append(schema.Kinds(), KindMovedV1, KindKernelExec) {
		known[k] = true
	}
	return known
}()
