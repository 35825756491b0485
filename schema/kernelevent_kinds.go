package schema

import "strconv"

//go:generate go run ./internal/kinds

// KernelKind is the kind of a kernel event: its number is "event_type", its
// name "kind". Numbers up to 99 are kernel_event.v0's and fixed; those added
// by v1 start at 100, never change and are never reused.
type KernelKind uint16

// The one table of kernel event kinds: the number, the name that stands before the colon,
// and what Value and Target hold. After a change, run go generate ./schema: the names in
// Go, enum kind of the BPF programs and the pairs in the JSON Schema are made from it.
const (
	KindOpen           KernelKind = 1  // openat: any form of open: the path
	KindConnect        KernelKind = 2  // connect: the remote endpoint
	KindExec           KernelKind = 4  // exec: a successful exec: the executable
	KindFileBlocked    KernelKind = 10 // file_blocked: policy denied: the path
	KindConnectBlocked KernelKind = 20 // connect_blocked: policy denied: the endpoint

	KindFork       KernelKind = 100 // fork: a new process; the event is the child's
	KindExit       KernelKind = 101 // exit: a process ended: its last thread went
	KindExecFailed KernelKind = 102 // exec_failed: the path that was to be executed
	KindJoin       KernelKind = 103 // join: a process first seen without its fork
	KindLeave      KernelKind = 104 // leave: a task was moved out of the session cgroup: the cgroup's path
	KindThread     KernelKind = 105 // thread: a new thread; the event is its own
	KindChdir      KernelKind = 106 // chdir: the new directory
	KindChroot     KernelKind = 107 // chroot: the new root

	KindUnlink  KernelKind = 110 // unlink: the path
	KindRename  KernelKind = 111 // rename: old path; Target: new path
	KindLink    KernelKind = 112 // link: existing path; Target: new path
	KindSymlink KernelKind = 113 // symlink: the new link; Target: its content
	KindMkdir   KernelKind = 114 // mkdir: the path
	KindRmdir   KernelKind = 115 // rmdir: the path
	KindMknod   KernelKind = 116 // mknod: the path
	// truncate: the path; Args: the new length, or fallocate's mode, offset, length (Call)
	KindTruncate    KernelKind = 117
	KindChmod       KernelKind = 118 // chmod: the path
	KindChown       KernelKind = 119 // chown: the path; Args: uid, gid as passed
	KindSetxattr    KernelKind = 120 // setxattr: the path; Target: attribute name
	KindRemovexattr KernelKind = 121 // removexattr: the path; Target: attribute name
	KindWrite       KernelKind = 122 // write: bytes written to a file: the path
	KindMmapShared  KernelKind = 123 // mmap_shared: a writable shared mapping: the path
	KindUtime       KernelKind = 124 // utime: its times were set: the path

	KindBind   KernelKind = 130 // bind: the local endpoint as asked for
	KindListen KernelKind = 131 // listen: the local endpoint
	KindAccept KernelKind = 132 // accept: the remote endpoint
	KindSendto KernelKind = 133 // sendto: a datagram's peer
	KindDNS    KernelKind = 134 // dns: the name asked for
	KindTLS    KernelKind = 135 // tls: the server name of a ClientHello
	KindFlow   KernelKind = 136 // flow: bytes exchanged with the remote endpoint

	// At its first read or write, and once with each other peer. A unix socket's name is its peer's, or its own
	// where the peer has none.
	KindForeignSocket KernelKind = 138 // foreign_socket: the peer of a socket that the run did not make; Local

	// Right after the command's exec; the lifecycle event process_started lists every such descriptor.
	KindInherited KernelKind = 139 // inherited: the peer of a socket that was open before the run; Local; Args: fd

	// How the opening of a TCP connection to the remote endpoint ended: 0, the error,
	// or without a result when the socket was closed and had no error of its own: its
	// process gave it up, or connect itself failed and says why. A connect that goes on
	// in the background (EINPROGRESS) has no other end.
	KindConnectResult KernelKind = 137 // connect_result: the remote endpoint

	KindSetID         KernelKind = 150 // setid: the set*id family; Call, Args
	KindCapset        KernelKind = 151 // capset: Args
	KindPtrace        KernelKind = 152 // ptrace: Args: request, pid
	KindMount         KernelKind = 153 // mount: mount and its kin: where; Target: the source, or the second path; Call
	KindNamespace     KernelKind = 154 // namespace: unshare, setns, a clone that makes some; Call, Flags
	KindBPF           KernelKind = 155 // bpf: Args: command
	KindMemfd         KernelKind = 156 // memfd_create: the name
	KindModule        KernelKind = 157 // module: kernel modules; Call
	KindIOUring       KernelKind = 158 // io_uring_setup: io_uring_setup; Args: entries
	KindIOUringOp     KernelKind = 159 // io_uring_op: a request's file; Target: the second; Args: opcode
	KindCompatSyscall KernelKind = 160 // compat_syscall: a 32-bit or x32 call, not decoded; Call

	// signal: to a process outside of the run: the signal's name; Args: the pid, the signal's number
	KindSignal KernelKind = 161
	// Any other call that changes what a process or the host may do; Call, Args. With
	// Call kernel_helper, a file was written from which the kernel takes a program that
	// it starts.
	KindPrivileged KernelKind = 162 // privileged: the path where it takes one
	// socket: a socket of another family than unix and inet, or a raw one; Args: family, type, protocol
	KindSocket KernelKind = 163
)

// String returns the kind's name, or event_<number> for a number that has none.
func (k KernelKind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "event_" + strconv.Itoa(int(k))
}

// ParseKind is the inverse of String; ok is false for any other name.
func ParseKind(s string) (k KernelKind, ok bool) {
	if s == "" {
		return 0, false
	}
	for i, n := range kindNames {
		if n == s {
			return KernelKind(i), true
		}
	}
	if len(s) > 6 && s[:6] == "event_" {
		n, err := strconv.ParseUint(s[6:], 10, 16)
		if err == nil && KernelKind(n).String() == s {
			return KernelKind(n), true
		}
	}
	return 0, false
}

// Kinds returns every kind that has a name, in the order of their numbers.
func Kinds() []KernelKind {
	var ks []KernelKind
	for i, n := range kindNames {
		if n != "" {
			ks = append(ks, KernelKind(i))
		}
	}
	return ks
}

// v0 reports whether kernel_event.v0 knows the kind by its name.
func (k KernelKind) v0() bool {
	switch k {
	case KindOpen, KindConnect, KindExec, KindFileBlocked, KindConnectBlocked:
		return true
	}
	return false
}

// untouched is no set: the name is none of a thing that is touched. unsaid is the same of a
// kind that touches does not know.
const (
	untouched Access = 1 << 7
	unsaid    Access = 1<<7 | 1
)

// touches is what an event of the kind does to Value and Target.
func (k KernelKind) touches(e *KernelEvent) (value, target Access) {
	switch k {
	case KindOpen:
		return e.openAccess(), untouched
	case KindWrite, KindMmapShared, KindTruncate:
		return AccessWrite, untouched
	case KindMkdir, KindMknod, KindSymlink:
		return AccessCreate, untouched
	case KindLink:
		return 0, AccessCreate
	case KindRename:
		return AccessRemove, AccessCreate
	case KindUnlink, KindRmdir:
		return AccessRemove, untouched
	case KindChmod, KindChown, KindSetxattr, KindRemovexattr, KindUtime:
		return AccessChange, untouched
	case KindPrivileged:
		if e.Call == "cgroup_v1_left" { // the value is a cgroup's name in its hierarchy
			return untouched, untouched
		}
		return 0, untouched
	case KindFileBlocked, KindExecFailed, KindChroot, KindIOUringOp:
		return 0, untouched
	case KindExec:
		return AccessRun, untouched
	case KindConnect, KindSendto, KindConnectBlocked, KindForeignSocket, KindInherited:
		return AccessConnect, untouched
	case KindFork, KindExit, KindJoin, KindLeave, KindThread, KindChdir, KindBind, KindListen, KindAccept, KindDNS,
		KindTLS, KindFlow,
		KindConnectResult, KindSetID, KindCapset, KindPtrace, KindMount, KindNamespace, KindBPF, KindMemfd, KindModule,
		KindIOUring,
		KindCompatSyscall, KindSignal, KindSocket:
		return untouched, untouched
	}
	return unsaid, unsaid
}
