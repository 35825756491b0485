package schema

import "strconv"

// KernelKind is the kind of a kernel event: its number is "event_type", its
// name "kind". Numbers up to 99 are kernel_event.v0's and fixed; those added
// by v1 start at 100, never change and are never reused.
type KernelKind uint16

// Kernel event kinds. The comment says what Value and Target hold.
const (
	KindOpen           KernelKind = 1  // any form of open: the path
	KindConnect        KernelKind = 2  // the remote endpoint
	KindExec           KernelKind = 4  // a successful exec: the executable
	KindFileBlocked    KernelKind = 10 // policy denied: the path
	KindConnectBlocked KernelKind = 20 // policy denied: the endpoint

	KindFork       KernelKind = 100 // a new process; the event is the child's
	KindExit       KernelKind = 101 // a process ended: its last thread went
	KindExecFailed KernelKind = 102 // the path that was to be executed
	KindJoin       KernelKind = 103 // a process first seen without its fork
	KindLeave      KernelKind = 104 // a task was moved out of the session cgroup: the cgroup's path
	KindThread     KernelKind = 105 // a new thread; the event is its own
	KindChdir      KernelKind = 106 // the new directory
	KindChroot     KernelKind = 107 // the new root

	KindUnlink      KernelKind = 110 // the path
	KindRename      KernelKind = 111 // old path; Target: new path
	KindLink        KernelKind = 112 // existing path; Target: new path
	KindSymlink     KernelKind = 113 // the new link; Target: its content
	KindMkdir       KernelKind = 114 // the path
	KindRmdir       KernelKind = 115 // the path
	KindMknod       KernelKind = 116 // the path
	KindTruncate    KernelKind = 117 // the path; Args: the new length, or fallocate's mode, offset, length (Call)
	KindChmod       KernelKind = 118 // the path
	KindChown       KernelKind = 119 // the path; Args: uid, gid as passed
	KindSetxattr    KernelKind = 120 // the path; Target: attribute name
	KindRemovexattr KernelKind = 121 // the path; Target: attribute name
	KindWrite       KernelKind = 122 // bytes written to a file: the path
	KindMmapShared  KernelKind = 123 // a writable shared mapping: the path
	KindUtime       KernelKind = 124 // its times were set: the path

	KindBind   KernelKind = 130 // the local endpoint as asked for
	KindListen KernelKind = 131 // the local endpoint
	KindAccept KernelKind = 132 // the remote endpoint
	KindSendto KernelKind = 133 // a datagram's peer
	KindDNS    KernelKind = 134 // the name asked for
	KindTLS    KernelKind = 135 // the server name of a ClientHello
	KindFlow   KernelKind = 136 // bytes exchanged with the remote endpoint

	// KindConnectResult tells how the opening of a TCP connection to the remote
	// endpoint ended: 0, the error, or without a result when the socket was closed
	// and had no error of its own: its process gave it up, or connect itself failed
	// and says why. A connect that goes on in the background (EINPROGRESS) has no
	// other end.
	KindConnectResult KernelKind = 137

	KindSetID         KernelKind = 150 // the set*id family; Call, Args
	KindCapset        KernelKind = 151 // Args
	KindPtrace        KernelKind = 152 // Args: request, pid
	KindMount         KernelKind = 153 // mount and its kin: where; Target: the source, or the second path; Call
	KindNamespace     KernelKind = 154 // unshare, setns, a clone that makes some; Call, Flags
	KindBPF           KernelKind = 155 // Args: command
	KindMemfd         KernelKind = 156 // the name
	KindModule        KernelKind = 157 // kernel modules; Call
	KindIOUring       KernelKind = 158 // io_uring_setup; Args: entries
	KindIOUringOp     KernelKind = 159 // a request's file; Target: the second; Args: opcode
	KindCompatSyscall KernelKind = 160 // a 32-bit or x32 call, not decoded; Call

	// KindSignal tells of a signal to a process outside of the run: its name; Args:
	// the pid, the signal's number.
	KindSignal KernelKind = 161
	// KindPrivileged is any other call that changes what a process or the host may
	// do; Call, Args, and the path where it takes one. With Call kernel_helper, a
	// file was written from which the kernel takes a program that it starts.
	KindPrivileged KernelKind = 162
	KindSocket     KernelKind = 163 // a socket of another family than unix and inet, or a raw one; Args: family, type, protocol

	maxKind = 164
)

var kindNames = [maxKind]string{
	KindOpen: "openat", KindConnect: "connect", KindExec: "exec",
	KindFileBlocked: "file_blocked", KindConnectBlocked: "connect_blocked",
	KindFork: "fork", KindExit: "exit", KindExecFailed: "exec_failed",
	KindJoin: "join", KindLeave: "leave", KindThread: "thread",
	KindChdir: "chdir", KindChroot: "chroot",
	KindUnlink: "unlink", KindRename: "rename", KindLink: "link",
	KindSymlink: "symlink", KindMkdir: "mkdir", KindRmdir: "rmdir",
	KindMknod: "mknod", KindTruncate: "truncate", KindChmod: "chmod",
	KindChown: "chown", KindSetxattr: "setxattr",
	KindRemovexattr: "removexattr", KindWrite: "write",
	KindMmapShared: "mmap_shared", KindUtime: "utime",
	KindBind: "bind", KindListen: "listen", KindAccept: "accept",
	KindSendto: "sendto", KindDNS: "dns", KindTLS: "tls", KindFlow: "flow", KindConnectResult: "connect_result",
	KindSetID: "setid", KindCapset: "capset", KindPtrace: "ptrace",
	KindMount: "mount", KindNamespace: "namespace", KindBPF: "bpf",
	KindMemfd: "memfd_create", KindModule: "module",
	KindIOUring: "io_uring_setup", KindIOUringOp: "io_uring_op",
	KindCompatSyscall: "compat_syscall", KindSignal: "signal", KindPrivileged: "privileged", KindSocket: "socket",
}

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
