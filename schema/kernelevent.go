package schema

import (
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// KernelEvent is one line of layers/kernel.ndjson in kernel_event.v1, a
// superset of kernel_event.v0. The struct holds only what cannot be derived:
// "kind", "errno", "access_mode", "operation_flags", "status",
// "network_destination" and "network_port" follow from Kind, Result, Flags and
// Value when a line is written, and are checked against them when one is read.
//
// A field with its default value is left out of the line; each field's comment gives the default. Facts about a process
// are written once, on the event that began the process instance (fork, exec, join); other events refer to it by
// ExecID. Strings are the kernel's bytes, which need not be UTF-8; [AppendJSON] says how they are written.
type KernelEvent struct {
	RunID string // run_id
	// Seq is stamped by the recorder: contiguous from 0.
	Seq uint64 // seq
	// TNS is nanoseconds of CLOCK_BOOTTIME since run_started. It is negative for an event that was observed just
	// before that. (The self-test is never recorded.)
	TNS int64 // t_ns
	// Kind gives both "event_type" (its number) and "kind" (its name).
	Kind KernelKind
	// PID is the process (thread group) that acted, in the initial pid
	// namespace; on fork it is the child. It may be reused within a run;
	// ExecID is not.
	PID uint32 // pid
	// TID is the acting thread; left out when 0 or equal to PID.
	TID uint32 // tid
	// PPID is the parent's pid; on fork, exec and join events.
	PPID uint32 // ppid
	// ExecID is the process instance: a new one begins at every fork and at
	// every successful exec. Counted from 1; 0 (left out) is unknown.
	ExecID uint64 // exec_id
	// ParentExecID is, on fork, the instance that forked; on exec, the instance
	// of the same process that this one replaces; on join, the parent, or the
	// instance that asked an engine for the container. 0 (left out) is unknown.
	ParentExecID uint64 // parent_exec_id
	// CgroupID is the acting task's cgroup2 id; on fork, exec, join and
	// connect_blocked events, 0 (left out) elsewhere.
	CgroupID uint64 // cgroup_id
	// Class distinguishes the program's own work from its start-up noise; agent is the
	// default and left out.
	Class Class // class

	// Value is the object acted on: a path, an endpoint ("ip:port",
	// "[ip6]:port", "unix:/path", "unix:@abstract"), a host name (dns, tls).
	// Empty is written as null.
	Value string // value
	// Target is the second name: rename's and link's new path, symlink's
	// content, the cgroup that a leave went to.
	Target string // target
	// Given and TargetGiven are the names as the caller wrote them. They are left out unless ".." or a symbolic link
	// before the last part makes Value or Target differ from them.
	Given       string // given
	TargetGiven string // target_given
	// Flags are the call's own flags (open flags, clone flags, unlinkat's...).
	// Always written on openat, else left out when 0.
	Flags uint64 // flags
	// Mode is the create mode (openat with O_CREAT or O_TMPFILE, mkdir, mknod) or the new mode (chmod). It is left out
	// when 0, except in an openat that can create a file.
	Mode uint32 // mode
	// Resolve is openat2's resolve flags; left out when 0.
	Resolve uint64 // resolve
	// Created is true if the openat made the file. False means that the file existed or that it is not known; it is
	// left out then.
	Created bool // created
	// HasResult is true if Result is known. Otherwise return_value, status and errno are left out.
	HasResult bool
	// Result is the call's return value: negative is -errno.
	Result int64 // return_value, status, errno
	// Attempted is true if the call was seen before it was made: status is "attempted", and the result is unknown (no
	// HasResult). On an exit, it is not known how the process ended, and exit_code and signal are left out.
	Attempted bool
	// UserMemory is true if Value was read from the caller's memory, so that the kernel may have used another value:
	// path_source "user_memory". The default, left out, is "kernel_object".
	UserMemory bool // path_source
	// KernelCopy is true if Value is the directory that the kernel reached, joined with the kernel's own copy of the
	// name: path_source "kernel_copy". Not with UserMemory.
	KernelCopy bool // path_source
	// Claimed is true if another thread or process could have changed what was read from the caller's memory while the
	// kernel used it: arguments "claimed", left out when false.
	Claimed bool // arguments
	// DirectoryClaimed is true if a directory or symbolic link in Value or Target could have led elsewhere while the
	// kernel used it: directory "claimed", left out when false.
	DirectoryClaimed bool // directory
	// Truncated names the fields that were cut, by their JSON names.
	Truncated Fields // truncated
	// Marks say more about Value (on exec: about Exe). 0 is left out.
	Marks Marks // marks
	// Repeat is true if the line stands for Count more occurrences of an earlier event of the same instance with equal
	// fields, which the kernel coalesced. The first happened at TFirstNS, the last at TLastNS or in the timer tick (at
	// most 10 ms) after it. TNS is when the count was reported. How often something happened is the sum of "count" over
	// its lines. When Repeat is false, the three are left out, and Times returns 1.
	Repeat   bool
	Count    uint64 // count
	TFirstNS int64  // t_first_ns
	TLastNS  int64  // t_last_ns
	// BytesOut and BytesIn are bytes written or sent, read or received; left
	// out when 0.
	BytesOut uint64 // bytes_out
	BytesIn  uint64 // bytes_in

	// Protocol is tcp, udp, unix, ...; left out when empty.
	Protocol string // protocol
	// Local is the local endpoint of a network event, where it is known.
	Local string // local
	// Peers is the number of remote endpoints that connected to Local, on a flow that counts them together and has no
	// Value; 0 is left out.
	Peers uint64 // peers
	// Remote is the server of a dns or tls event.
	Remote string // remote
	// Names are the host names of Value's address, as DNS or TLS gave them, sorted.
	Names []string // names
	// DNS is the message of a dns event.
	DNS *DNSMessage // dns

	// Exe, Cwd, Argv and EnvKeys describe a process; on exec and join events
	// (exec_failed has Argv too where it is known). Nil Argv and EnvKeys are
	// left out, empty ones written as [].
	Exe     string   // exe
	Cwd     string   // cwd
	Argv    []string // argv
	EnvKeys []string // env_keys
	// Loader is the file that the kernel mapped to begin the program of an exec, as the file itself asks for
	// (PT_INTERP): it is executed first. It is left out where it is a library in a directory of the system's, as for
	// most programs, and where there is none.
	Loader string // loader

	// WaitStatus is an exit event's status as wait(2) encodes it, written as
	// exit_code, or as signal and core_dumped.
	WaitStatus uint32

	// Call is the system call's name where a kind covers several of them
	// (setresuid for setuid, ...); left out when empty.
	Call string // call
	// Args are the arguments of a privileged call as passed, addresses as 0; nil
	// is left out.
	Args []uint64 // args
	// RuleID is the policy rule that denied; 0 is left out.
	RuleID uint64 // rule_id
	// ToolCallID is the tool call this event belongs to, and BoundBy how that
	// is known: cgroup, env, lineage or window. Left out when empty.
	ToolCallID string // tool_call_id
	BoundBy    string // bound_by
	// Check is the check of the outcome contract that the process was started for. It is on the event that began the
	// instance (fork, exec, join); all events of the instance have ClassCheck. Left out when empty.
	Check string // check
	// Baseline is true if the check ran before the agent: phase "baseline", left out when false.
	Baseline bool // phase
	// ContainerID is the container of the process, from the name that the engine gave its cgroup; left out when empty.
	ContainerID string // container_id
	// V0 is true if the line was read in the closed v0 form, which has no t_ns. It is not written.
	V0 bool
	// Late is true if later events had already been written when the event arrived, so that its line is out of order.
	// Left out when false.
	Late bool // late
}

// Times returns the number of occurrences that the line stands for.
func (e *KernelEvent) Times() uint64 {
	if e.Repeat {
		return e.Count
	}
	return 1
}

// Failed reports whether the call is known to have failed. A connect that goes
// on in the background (EINPROGRESS) has not.
func (e *KernelEvent) Failed() bool {
	return e.HasResult && e.Result < 0 && (e.Kind != KindConnect || e.Result != -115)
}

// Errno returns the name of the error that the call failed with (ENOENT, ...),
// or "" when it did not.
func (e *KernelEvent) Errno() string {
	if !e.HasResult || e.Result >= 0 {
		return ""
	}
	return errnoName(-e.Result)
}

// Blocked reports whether the event is a policy denial.
func (e *KernelEvent) Blocked() bool {
	return e.Kind == KindFileBlocked || e.Kind == KindConnectBlocked
}

// Open flags of Linux on x86-64 and arm64 that this package derives from. The
// two differ in O_DIRECTORY, O_NOFOLLOW and O_DIRECT alone; none is used here
// but O_TMPFILE's own bit (fcntl.h: __O_TMPFILE), which is common.
const (
	openWrOnly  = 0o1
	openRdWr    = 0o2
	openCreat   = 0o100
	openExcl    = 0o200
	openTrunc   = 0o1000
	openAppend  = 0o2000
	openTmpfile = 0o20000000
)

// Changes reports whether the open created the file, or asked to create or truncate it.
func (e *KernelEvent) Changes() bool { return e.Created || e.Flags&(openCreat|openTrunc) != 0 }

// Writes reports whether an openat's flags ask for more than reading: write
// access, creation, truncation, or a mode that does not exist.
func (e *KernelEvent) Writes() bool {
	return e.Flags&(openWrOnly|openRdWr|openCreat|openTrunc|openAppend|openTmpfile) != 0
}

// OpenIntent returns v0's access_mode and operation_flags for the flags of an openat.
func OpenIntent(flags uint64) (access string, ops []string) {
	for _, op := range operations {
		if flags&op.bits != 0 {
			ops = append(ops, op.name)
		}
	}
	return accessMode(flags), ops
}

// Creates reports whether an openat's flags ask for creation.
func (e *KernelEvent) Creates() bool { return e.Flags&(openCreat|openTmpfile) != 0 }

// Touches yields what the event touches, and how: paths of files, of a program and of its loader (AccessRun), an
// endpoint (AccessConnect). It does not look at whether the call failed: see Failed and Blocked. Empty names are left
// out. Some kinds touch nothing, such as chdir, bind and flow.
func (e *KernelEvent) Touches() iter.Seq2[string, Access] {
	return func(yield func(string, Access) bool) {
		if e.NoFile() {
			return
		}
		value, target := e.Kind.touches(e)
		if e.Value != "" && value < untouched && !yield(e.Value, value) {
			return
		}
		if e.Target != "" && target < untouched && !yield(e.Target, target) {
			return
		}
		if e.Loader != "" {
			yield(e.Loader, AccessRun)
		}
	}
}

// Modifies reports whether the event changed a file or directory, or opened a file for writing, also if the name is not
// known.
func (e *KernelEvent) Modifies() bool {
	if e.NoFile() {
		return false
	}
	value, target := e.Kind.touches(e)
	return value < untouched && value&AccessModify != 0 || target < untouched && target&AccessModify != 0
}

// NoFile reports whether Value names something that is in no file system: an anonymous inode, such as a mapped ring of
// io_uring.
func (e *KernelEvent) NoFile() bool {
	return !e.UserMemory && e.Marks&MarkRelative == 0 && strings.HasPrefix(e.Value, "anon_inode:[")
}

// Makes reports whether the event made a name that did not exist before. It is also false if that is not known: for
// most renames, and for an open by a recorder that did not write "created".
func (e *KernelEvent) Makes() bool {
	switch e.Kind {
	case KindOpen:
		return e.Created || e.Flags&openCreat != 0 && e.Flags&openExcl != 0
	case KindRename:
		return e.Flags&renameNoReplace != 0
	case KindMkdir, KindMknod, KindSymlink, KindLink: // they fail where it exists
		return true
	}
	return false
}

const renameNoReplace = 1 // linux/fs.h

// Name returns one of the event's paths for display. A path in another mount namespace gets the suffix [OtherMounts],
// so that nobody takes it for a file of the run's own namespace.
func (e *KernelEvent) Name(path string) string {
	if e.Marks&MarkMountNamespace == 0 || path == "" {
		return path
	}
	return path + OtherMounts
}

// OtherMounts is the suffix of a path in another mount namespace; see [KernelEvent.Name].
const OtherMounts = " (mount_namespace)"

func (e *KernelEvent) openAccess() (a Access) {
	if e.Creates() {
		a |= AccessCreate
	}
	if e.Writes() {
		a |= AccessWrite
	}
	if mode := e.Flags & 3; mode == 0 || mode == openRdWr {
		a |= AccessRead
	}
	return a
}

// rare reports whether the event has any of the members from [commonMembers] on. This is much faster than asking each
// member. TestEveryFieldIsWritten fails if a field is missing here.
func (e *KernelEvent) rare() bool {
	return e.PPID != 0 || e.ParentExecID != 0 || e.CgroupID != 0 || e.Target != "" || e.Given != "" ||
		e.TargetGiven != "" || e.Claimed || e.DirectoryClaimed || e.Truncated != 0 || e.Marks != 0 ||
		e.Kind == KindExit || e.Kind == KindConnectBlocked || e.Protocol != "" || e.Local != "" || e.Peers != 0 ||
		e.Remote != "" || e.Names != nil || e.DNS != nil || e.Exe != "" || e.Cwd != "" || e.Argv != nil ||
		e.EnvKeys != nil || e.Loader != "" || e.Call != "" || e.Args != nil || e.RuleID != 0 || e.ToolCallID != "" ||
		e.BoundBy != "" || e.Check != "" || e.Baseline || e.ContainerID != "" || e.Late
}

// text returns the field that a key of "raw" names, or nil.
func (e *KernelEvent) text(key string) *string {
	name, index, _ := strings.Cut(key, ".")
	m, ok := memberIndex()[name]
	if !ok {
		return nil
	}
	if field := kernelMembers[m].text; field != nil && name == key {
		return field(e)
	}
	if field := kernelMembers[m].texts; field != nil {
		texts := field(e)
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(texts) && strconv.Itoa(i) == index {
			return &texts[i]
		}
	}
	return nil
}

// status says how a call ended; it is empty if that is not known.
func (e *KernelEvent) status() string {
	switch {
	case e.Attempted:
		return statusAttempted
	case !e.HasResult:
		return ""
	case e.Result < 0:
		return "error"
	}
	return "success"
}

// class returns the name of the class; empty for the default.
func (e *KernelEvent) class() string {
	if e.Class == ClassAgent {
		return ""
	}
	return e.Class.String()
}

// pathSource says where Value comes from; empty means an object of the kernel.
func (e *KernelEvent) pathSource() string {
	switch {
	case e.UserMemory:
		return "user_memory"
	case e.KernelCopy:
		return "kernel_copy"
	}
	return ""
}

// access returns the access mode of an openat; empty for other kinds.
func (e *KernelEvent) access() string {
	if e.Kind != KindOpen {
		return ""
	}
	return accessMode(e.Flags)
}

// Marks qualify a path.
type Marks uint8

// Members of [Marks], in the order they are written.
const (
	MarkDeleted     Marks = 1 << iota // "deleted": the file had no name any more
	MarkMemfd                         // "memfd": the file lives in anonymous memory
	MarkRelative                      // "relative": relative to a directory that is not known
	MarkUnreachable                   // "unreachable": outside the mount namespace's root
	MarkUnreadable                    // "unreadable": a field is missing, its memory could not be read
	// "unresolved": no object of the kernel says which directory it was; links and ".." are as given
	MarkUnresolved
	MarkMountNamespace // "mount_namespace": a path in another mount namespace than the run's, as in a container
	// "container": the path is below the root of the event's container, in the mount namespace that the container's
	// first program began in. It comes with MarkMountNamespace.
	MarkContainer
)

var markNames = [...]string{"deleted", "memfd", "relative", "unreachable", "unreadable", "unresolved",
	"mount_namespace", "container"}

// String lists the members, separated by commas.
func (m Marks) String() string {
	var names []string
	for i, n := range markNames {
		if m&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, ",")
}

// DNSMessage is what a dns event saw: a query, or an answer to one.
type DNSMessage struct {
	// Type is the question's record type (A, AAAA, ...).
	Type string `json:"type"`
	// Response is false for a query, true for an answer.
	Response bool `json:"response,omitempty"`
	// RCode is the answer's response code (NOERROR, NXDOMAIN, ...).
	RCode string `json:"rcode,omitempty"`
	// Answers are the answer's records in their order, CNAME chains included.
	Answers []DNSAnswer `json:"answers,omitempty"`
}

// DNSAnswer is one record of an answer.
type DNSAnswer struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// Data is the address or the canonical name; empty for other types.
	Data string `json:"data,omitempty"`
}

// Fields is a set of names of string fields of a [KernelEvent].
type Fields uint8

// Members of [Fields].
const (
	FieldValue Fields = 1 << iota
	FieldTarget
	FieldExe
	FieldCwd
	FieldArgv
	FieldEnvKeys
)

var fieldNames = [...]string{"value", "target", "exe", "cwd", "argv", "env_keys"}

// Access is how an event touches a file, a program or an endpoint: a set of the constants below. The empty set means
// that the event only names it.
type Access uint8

// Members of [Access].
const (
	AccessRead    Access = 1 << iota // a file opened for reading
	AccessWrite                      // a file opened for writing, written, truncated, or mapped to be written
	AccessCreate                     // a new name, or a file opened with O_CREAT
	AccessRemove                     // a name that is removed
	AccessChange                     // mode, owner, times or attributes of a file
	AccessRun                        // a program
	AccessConnect                    // an endpoint that is connected or sent to

	// AccessModify is every access that changes files.
	AccessModify = AccessWrite | AccessCreate | AccessRemove | AccessChange
)

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
	// ipc: a System V or POSIX object by which processes exchange data: the message queue; Call, Args: key or id
	KindIPC KernelKind = 164
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

// untouched is not a set: it says that the event does not touch the name. unsaid says the same for a kind that touches
// does not know; a test fails then.
const (
	untouched Access = 1 << 7
	unsaid    Access = 1<<7 | 1
)

// touches returns what an event of the kind does to Value and to Target.
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
		KindCompatSyscall, KindSignal, KindSocket, KindIPC:
		return untouched, untouched
	}
	return unsaid, unsaid
}

// Class says why an event happened. Package kernel/layer has the rules.
type Class uint8

// Classes. The capability surface keeps ClassAgent alone.
const (
	ClassAgent         Class = iota // the program's own doing: the default
	ClassLoader                     // the dynamic loader starting a program
	ClassLocale                     // libc's locale and character set tables
	ClassRuntime                    // a language runtime looking for its own parts
	ClassIntrospection              // a program reading about itself and the host
	ClassLookup                     // a search for a program in a directory of PATH that does not have it
	ClassCheck                      // a check of the outcome contract: the runner's doing
	ClassRunner                     // what the runner did in the run's process before the command
	ClassSetup                      // a container engine's runtime preparing a container
	NumClasses         = iota
)

var classNames = [...]string{"agent", "loader", "locale", "runtime", "introspection", "lookup", "check", "runner",
	"setup"}

// String returns the class's name in JSON.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "agent"
}

// ParseClass is the inverse of String; ok is false for any other name.
func ParseClass(s string) (c Class, ok bool) {
	for i, n := range classNames {
		if n == s {
			return Class(i), true
		}
	}
	return 0, false
}

// member is one member of a kernel event's line.
type member struct {
	key string // what is written before its value: `,"seq":`
	in  forms
	codec
}

func (m *member) name() string { return m.key[2 : len(m.key)-2] }

// forms say which forms of a line may have a member, and which must have it.
type forms uint8

const (
	inV0 forms = 1 << iota // the closed v0 form may have it; kernel_event.v1 may have all members
	neededV0
	neededV1

	needed       = inV0 | neededV0 | neededV1
	v1Only forms = 0
)

// codec writes the value of a member into a line, and reads it from one.
type codec struct {
	// has reports whether an event has the member. If it is nil, write decides.
	has func(e *KernelEvent) bool
	// write appends the key and the value, or nothing if the value is the default. bad reports whether a string in it
	// was not UTF-8. It is nil if the member before it or [AppendJSON] writes the member.
	write func(dst []byte, key string, e *KernelEvent) (_ []byte, bad bool)
	// read reads the value. [kernelDecoder.rules] checks what depends on other members.
	read func(d *kernelDecoder) error
	// text or texts is set if the strings are the kernel's bytes. If they are not UTF-8, "raw" has them.
	text  func(e *KernelEvent) *string
	texts func(e *KernelEvent) []string
}

// kernelMembers are the members of a line in the order they are written, with the forms that have each and its codec.
// Most lines have none of the members from [commonMembers] on.
var kernelMembers = [...]member{
	{`,"schema":`, needed, codec{write: writeSchema, read: readSchema}},
	{`,"run_id":`, needed, codec{write: writeRunID, read: readRunID}},
	{`,"seq":`, needed, uintCodec(0, func(e *KernelEvent) *uint64 { return &e.Seq })},
	{`,"t_ns":`, neededV1, intCodec(func(e *KernelEvent) *int64 { return &e.TNS })},
	{`,"pid":`, needed, uintCodec(0, func(e *KernelEvent) *uint32 { return &e.PID })},
	{`,"tid":`, v1Only, uintCodec(0, func(e *KernelEvent) *uint32 { return &e.TID }).where(hasTID)},
	{`,"exec_id":`, v1Only, optionalUintCodec(1, func(e *KernelEvent) *uint64 { return &e.ExecID })},
	{`,"event_type":`, needed, uintCodec(0, func(e *KernelEvent) *KernelKind { return &e.Kind })},
	{`,"kind":`, needed, codec{write: writeKind, read: func(d *kernelDecoder) error { return d.part(&d.kind) }}},
	{`,"value":`, needed, codec{write: writeValue, read: readValue, text: valueOf}},
	{`,"flags":`, inV0, uintCodec(0, func(e *KernelEvent) *uint64 { return &e.Flags }).where(hasFlags)},
	{`,"mode":`, inV0, uintCodec(0, func(e *KernelEvent) *uint32 { return &e.Mode }).where(hasMode)},
	{`,"resolve":`, inV0, optionalUintCodec(1, func(e *KernelEvent) *uint64 { return &e.Resolve })},
	{`,"created":`, v1Only, constantCodec("true", func(e *KernelEvent) *bool { return &e.Created }).where(isOpen)},
	{`,"return_value":`, inV0, intCodec(func(e *KernelEvent) *int64 { return &e.Result }).where(hasResult)},
	{`,"access_mode":`, inV0, derivedCodec((*KernelEvent).access, func(d *kernelDecoder) *[]byte { return &d.access })},
	{`,"operation_flags":`, inV0, codec{has: hasOperations, write: writeOperations, read: readOperations}},
	{`,"status":`, inV0, derivedCodec((*KernelEvent).status, func(d *kernelDecoder) *[]byte { return &d.status })},
	{`,"errno":`, v1Only, codec{has: hasErrno, write: writeErrno, read: readErrno}},
	{`,"class":`, v1Only, derivedCodec((*KernelEvent).class, func(d *kernelDecoder) *[]byte { return &d.class })},
	{`,"path_source":`, v1Only,
		derivedCodec((*KernelEvent).pathSource, func(d *kernelDecoder) *[]byte { return &d.source })},
	{`,"count":`, v1Only, codec{has: isRepeat, write: writeRepeat, read: optionalUintCodec(1, countOf).read}},
	{`,"t_first_ns":`, v1Only, codec{read: intCodec(func(e *KernelEvent) *int64 { return &e.TFirstNS }).read}},
	{`,"t_last_ns":`, v1Only, codec{read: intCodec(func(e *KernelEvent) *int64 { return &e.TLastNS }).read}},
	{`,"bytes_out":`, v1Only, optionalUintCodec(1, func(e *KernelEvent) *uint64 { return &e.BytesOut })},
	{`,"bytes_in":`, v1Only, optionalUintCodec(1, func(e *KernelEvent) *uint64 { return &e.BytesIn })},

	{`,"ppid":`, v1Only, optionalUintCodec(1, func(e *KernelEvent) *uint32 { return &e.PPID })},
	{`,"parent_exec_id":`, v1Only, optionalUintCodec(1, func(e *KernelEvent) *uint64 { return &e.ParentExecID })},
	{`,"cgroup_id":`, inV0, optionalUintCodec(0, func(e *KernelEvent) *uint64 { return &e.CgroupID })},
	{`,"target":`, v1Only, textCodec(func(e *KernelEvent) *string { return &e.Target })},
	{`,"given":`, v1Only, textCodec(func(e *KernelEvent) *string { return &e.Given })},
	{`,"target_given":`, v1Only, textCodec(func(e *KernelEvent) *string { return &e.TargetGiven })},
	{`,"arguments":`, v1Only, constantCodec(`"claimed"`, func(e *KernelEvent) *bool { return &e.Claimed })},
	{`,"directory":`, v1Only, constantCodec(`"claimed"`, func(e *KernelEvent) *bool { return &e.DirectoryClaimed })},
	{`,"exe":`, v1Only, textCodec(func(e *KernelEvent) *string { return &e.Exe })},
	{`,"cwd":`, v1Only, textCodec(func(e *KernelEvent) *string { return &e.Cwd })},
	{`,"argv":`, v1Only, textsCodec(func(e *KernelEvent) *[]string { return &e.Argv })},
	{`,"env_keys":`, v1Only, textsCodec(func(e *KernelEvent) *[]string { return &e.EnvKeys })},
	{`,"loader":`, v1Only, textCodec(func(e *KernelEvent) *string { return &e.Loader })},
	{`,"exit_code":`, v1Only, codec{write: writeEnding, read: readExitCode}},
	{`,"signal":`, v1Only, codec{read: func(d *kernelDecoder) error { return d.part(&d.signal) }}},
	{`,"core_dumped":`, v1Only, codec{read: func(d *kernelDecoder) error { return d.only("true") }}},
	{`,"marks":`, v1Only, setCodec(markNames[:], func(e *KernelEvent) *Marks { return &e.Marks })},
	{`,"network_destination":`, inV0, codec{write: writeDestination, read: readDestination}},
	{`,"network_port":`, inV0, codec{read: func(d *kernelDecoder) error { return d.unsigned(&d.port) }}},
	{`,"rule_id":`, inV0, optionalUintCodec(0, func(e *KernelEvent) *uint64 { return &e.RuleID })},
	{`,"protocol":`, v1Only, ownTextCodec(func(e *KernelEvent) *string { return &e.Protocol })},
	{`,"local":`, v1Only, textCodec(func(e *KernelEvent) *string { return &e.Local })},
	{`,"peers":`, v1Only, optionalUintCodec(1, func(e *KernelEvent) *uint64 { return &e.Peers })},
	{`,"remote":`, v1Only, textCodec(func(e *KernelEvent) *string { return &e.Remote })},
	{`,"names":`, v1Only, codec{write: writeNames, read: readNames}},
	{`,"dns":`, v1Only, codec{write: writeDNS, read: readDNS}},
	{`,"call":`, v1Only, ownTextCodec(func(e *KernelEvent) *string { return &e.Call })},
	{`,"args":`, v1Only, codec{write: writeArgs, read: readArgs}},
	{`,"truncated":`, v1Only, setCodec(fieldNames[:], func(e *KernelEvent) *Fields { return &e.Truncated })},
	{`,"tool_call_id":`, v1Only, ownTextCodec(func(e *KernelEvent) *string { return &e.ToolCallID })},
	{`,"bound_by":`, v1Only, ownTextCodec(func(e *KernelEvent) *string { return &e.BoundBy })},
	{`,"check":`, v1Only, ownTextCodec(func(e *KernelEvent) *string { return &e.Check })},
	{`,"phase":`, v1Only, constantCodec(`"baseline"`, func(e *KernelEvent) *bool { return &e.Baseline })},
	{`,"container_id":`, v1Only, ownTextCodec(func(e *KernelEvent) *string { return &e.ContainerID })},
	{`,"late":`, v1Only, constantCodec("true", func(e *KernelEvent) *bool { return &e.Late })},
	{`,"raw":`, v1Only, codec{read: readRaw}},
}

func valueOf(e *KernelEvent) *string    { return &e.Value }
func countOf(e *KernelEvent) *uint64    { return &e.Count }
func hasTID(e *KernelEvent) bool        { return e.TID != e.PID && e.TID != 0 }
func hasFlags(e *KernelEvent) bool      { return e.Flags != 0 || e.Kind == KindOpen }
func hasMode(e *KernelEvent) bool       { return e.Mode != 0 || e.Kind == KindOpen && e.Creates() }
func isOpen(e *KernelEvent) bool        { return e.Kind == KindOpen }
func hasResult(e *KernelEvent) bool     { return e.HasResult }
func hasOperations(e *KernelEvent) bool { return e.Kind == KindOpen && e.Flags&operationBits != 0 }
func hasErrno(e *KernelEvent) bool      { return e.HasResult && e.Result < 0 }
func isRepeat(e *KernelEvent) bool      { return e.Repeat }

// commonMembers is the number of members before ppid, the first that most lines do not have.
const commonMembers = 26

// AppendJSON appends e as one kernel_event.v1 object, without a newline, and
// returns the extended buffer. It allocates only to grow dst.
//
// A string that is not UTF-8 is written as [Readable] does, so that every line is valid JSON. Its exact bytes are in
// the object "raw", in base64, under the field's name ("value", "target", "given", "target_given", "exe", "cwd",
// "local", "remote") or its name and index ("argv.2", "env_keys.0").
// [DecodeKernelEvent] restores them: no byte is lost.
func AppendJSON(dst []byte, e *KernelEvent) []byte {
	members := kernelMembers[:]
	if !e.rare() {
		members = kernelMembers[:commonMembers]
	}
	anyBad := false
	for i := range members {
		m := &members[i]
		if m.write == nil || m.has != nil && !m.has(e) {
			continue
		}
		var bad bool
		dst, bad = m.write(dst, m.key, e)
		anyBad = anyBad || bad
	}
	if anyBad {
		dst = appendRaw(dst, e)
	}
	return append(dst, '}')
}

// appendRaw writes the exact bytes of every string that is not UTF-8.
func appendRaw(dst []byte, e *KernelEvent) []byte {
	dst = append(dst, `,"raw":`...)
	sep := byte('{')
	for i := range kernelMembers {
		m := &kernelMembers[i]
		if m.text != nil {
			if s := *m.text(e); !utf8.ValidString(s) {
				dst = append(append(append(dst, sep, '"'), m.name()...), `":"`...)
				dst = append(base64.StdEncoding.AppendEncode(dst, []byte(s)), '"')
				sep = ','
			}
		}
		if m.texts == nil {
			continue
		}
		for j, s := range m.texts(e) {
			if !utf8.ValidString(s) {
				dst = append(append(append(dst, sep, '"'), m.name()...), '.')
				dst = append(strconv.AppendInt(dst, int64(j), 10), `":"`...)
				dst = append(base64.StdEncoding.AppendEncode(dst, []byte(s)), '"')
				sep = ','
			}
		}
	}
	return append(dst, '}')
}

// where leaves the member out if has returns false.
func (c codec) where(has func(*KernelEvent) bool) codec {
	c.has = has
	return c
}

// uintCodec is a whole number that is always written. Reading refuses numbers below least.
func uintCodec[T ~uint16 | ~uint32 | ~uint64](least uint64, field func(*KernelEvent) *T) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
			return strconv.AppendUint(append(dst, key...), uint64(*field(e)), 10), false
		},
		read: func(d *kernelDecoder) error {
			v, err := d.whole(least, uint64(^T(0)))
			*field(d.e) = T(v)
			return err
		},
	}
}

// optionalUintCodec is a whole number that is left out when it is 0.
func optionalUintCodec[T ~uint32 | ~uint64](least uint64, field func(*KernelEvent) *T) codec {
	c := uintCodec(least, field)
	c.write = func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
		if n := *field(e); n != 0 {
			dst = strconv.AppendUint(append(dst, key...), uint64(n), 10)
		}
		return dst, false
	}
	return c
}

// intCodec is a number that may be negative.
func intCodec(field func(*KernelEvent) *int64) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
			return strconv.AppendInt(append(dst, key...), *field(e), 10), false
		},
		read: func(d *kernelDecoder) error {
			n, err := d.number()
			if err == nil {
				*field(d.e), err = signed(n)
			}
			return err
		},
	}
}

// derivedCodec is a string that follows from other members. It needs no escape, and is left out if it is empty.
// [kernelDecoder.rules] compares what is read with those members.
func derivedCodec(from func(*KernelEvent) string, to func(*kernelDecoder) *[]byte) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
			if s := from(e); s != "" {
				dst = append(append(dst, key...), '"')
				dst = append(append(dst, s...), '"')
			}
			return dst, false
		},
		read: func(d *kernelDecoder) error { return d.part(to(d)) },
	}
}

// textCodec is a string of the kernel's bytes that is left out when it is empty.
func textCodec(field func(*KernelEvent) *string) codec {
	c := ownTextCodec(field)
	c.text = field
	c.write = func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
		s := *field(e)
		if s == "" {
			return dst, false
		}
		return appendString(append(dst, key...), s)
	}
	return c
}

// ownTextCodec is a string that the recorder makes, which is UTF-8. It is left out when it is empty.
func ownTextCodec(field func(*KernelEvent) *string) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
			if s := *field(e); s != "" {
				dst, _ = appendString(append(dst, key...), s)
			}
			return dst, false
		},
		read: func(d *kernelDecoder) error { return d.full(field(d.e)) },
	}
}

// textsCodec is a list of strings of the kernel's bytes. It is left out when it is nil.
func textsCodec(field func(*KernelEvent) *[]string) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) { return appendTexts(dst, key, *field(e)) },
		read:  func(d *kernelDecoder) error { return d.texts(field(d.e)) },
		texts: func(e *KernelEvent) []string { return *field(e) },
	}
}

// constantCodec is a member that has always the same value, or is left out.
func constantCodec(value string, field func(*KernelEvent) *bool) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
			if *field(e) {
				dst = append(append(dst, key...), value...)
			}
			return dst, false
		},
		read: func(d *kernelDecoder) error { *field(d.e) = true; return d.only(value) },
	}
}

// setCodec is a list of the names of a set's bits. It is left out when the set is empty.
func setCodec[T ~uint8](names []string, field func(*KernelEvent) *T) codec {
	return codec{
		write: func(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
			set := *field(e)
			if set == 0 {
				return dst, false
			}
			dst = append(dst, key...)
			sep := `["`
			for i, n := range names {
				if set&(1<<i) != 0 {
					dst = append(append(dst, sep...), n...)
					sep = `","`
				}
			}
			return append(dst, `"]`...), false
		},
		read: func(d *kernelDecoder) error {
			set, err := d.names(names)
			*field(d.e) = T(set)
			return err
		},
	}
}

func appendTexts(dst []byte, key string, texts []string) (_ []byte, anyBad bool) {
	if texts == nil {
		return dst, false
	}
	dst = append(append(dst, key...), '[')
	for i, s := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		var bad bool
		dst, bad = appendString(dst, s)
		anyBad = anyBad || bad
	}
	return append(dst, ']'), anyBad
}

func writeSchema(dst []byte, _ string, _ *KernelEvent) ([]byte, bool) {
	return append(dst, `{"schema":"`+KernelEventV1+`"`...), false
}

func readSchema(d *kernelDecoder) error {
	s, err := d.str()
	if d.e.V0 = string(s) == KernelEventV0; err == nil && !d.e.V0 && string(s) != KernelEventV1 {
		err = fmt.Errorf("is %.100q, want %q or %q", s, KernelEventV1, KernelEventV0)
	}
	return err
}

func writeRunID(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	dst, _ = appendString(append(dst, key...), e.RunID)
	return dst, false
}

func readRunID(d *kernelDecoder) error {
	s, err := d.str()
	if d.e.RunID = d.run; string(s) != d.run { // one string for all lines of a run
		d.e.RunID = string(s)
	}
	if err == nil && !isRunID(d.e.RunID) {
		err = errors.New("is not one or more ASCII letters, digits, '_' or '-'")
	}
	return err
}

func writeKind(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	if int(e.Kind) >= len(kindNames) || kindNames[e.Kind] == "" { // without garbage
		dst = append(append(dst, key...), `"event_`...)
		return append(strconv.AppendUint(dst, uint64(e.Kind), 10), '"'), false
	}
	dst = append(append(dst, key...), '"')
	return append(append(dst, kindNames[e.Kind]...), '"'), false
}

func writeValue(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	dst = append(dst, key...)
	if e.Value == "" {
		return append(dst, "null"...), false
	}
	return appendString(dst, e.Value)
}

func readValue(d *kernelDecoder) error {
	if d.word("null") {
		return nil
	}
	s, err := d.str()
	d.e.Value = string(s)
	return err
}

var operations = [...]struct {
	bits uint64
	name string
}{{openCreat, "create"}, {openTrunc, "truncate"}, {openAppend, "append"}, {openExcl, "exclusive"}}

const operationBits = openCreat | openTrunc | openAppend | openExcl

func writeOperations(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	dst = append(dst, key...)
	sep := `["`
	for _, op := range operations {
		if e.Flags&op.bits != 0 {
			dst = append(append(dst, sep...), op.name...)
			sep = `","`
		}
	}
	return append(dst, `"]`...), false
}

// readOperations reads operation_flags into bits as [operations] has them: in its
// order, none of them twice.
func readOperations(d *kernelDecoder) error {
	next := 0
	return d.array(func() error {
		s, err := d.str()
		if err != nil {
			return err
		}
		for next < len(operations) && operations[next].name != string(s) {
			next++
		}
		if next == len(operations) {
			return fmt.Errorf("%.64q is not known, or not in its place", s)
		}
		d.ops |= operations[next].bits
		return nil
	})
}

func readErrno(d *kernelDecoder) error { return d.part(&d.errno) }

func writeErrno(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	n := -e.Result
	dst = append(append(dst, key...), '"')
	if n > 0 && n < int64(len(errnoNames)) && errnoNames[n] != "" {
		return append(append(dst, errnoNames[n]...), '"'), false
	}
	return append(strconv.AppendInt(append(dst, "errno_"...), n, 10), '"'), false // without garbage
}

// writeRepeat writes count, t_first_ns and t_last_ns.
func writeRepeat(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	dst = strconv.AppendUint(append(dst, key...), e.Count, 10)
	dst = strconv.AppendInt(append(dst, `,"t_first_ns":`...), e.TFirstNS, 10)
	return strconv.AppendInt(append(dst, `,"t_last_ns":`...), e.TLastNS, 10), false
}

// writeEnding writes what wait(2) packs into a status: the low seven bits are the signal, bit 7 the core dump, the next
// eight the exit code.
func writeEnding(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	s := e.WaitStatus
	switch {
	case e.Kind != KindExit || e.Attempted:
	case s&0x7f == 0:
		dst = strconv.AppendUint(append(dst, key...), uint64(s>>8&0xff), 10)
	case s&0x80 == 0:
		dst = append(append(append(dst, `,"signal":"`...), SignalName(s&0x7f)...), '"')
	default:
		dst = append(append(append(dst, `,"signal":"`...), SignalName(s&0x7f)...), `","core_dumped":true`...)
	}
	return dst, false
}

func readExitCode(d *kernelDecoder) (err error) {
	d.exit, err = d.whole(0, 255)
	return err
}

// writeDestination writes network_destination and network_port.
func writeDestination(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	if e.Kind != KindConnectBlocked {
		return dst, false
	}
	host, port, ok := splitEndpoint(e.Value)
	if !ok {
		return dst, false
	}
	dst, _ = appendString(append(dst, key...), host)
	return strconv.AppendUint(append(dst, `,"network_port":`...), port, 10), false
}

func readDestination(d *kernelDecoder) error { return d.part(&d.host) }

// writeNames writes what the recorder knows, and so is UTF-8.
func writeNames(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	dst, _ = appendTexts(dst, key, e.Names)
	return dst, false
}

func readNames(d *kernelDecoder) error {
	err := d.texts(&d.e.Names)
	if err == nil && len(d.e.Names) == 0 {
		err = errEmpty
	}
	return err
}

func writeDNS(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	m := e.DNS
	if m == nil {
		return dst, false
	}
	dst, _ = appendString(append(append(dst, key...), `{"type":`...), m.Type)
	if m.Response {
		dst = append(dst, `,"response":true`...)
	}
	if m.RCode != "" {
		dst, _ = appendString(append(dst, `,"rcode":`...), m.RCode)
	}
	sep := `,"answers":[{"name":`
	for _, a := range m.Answers {
		dst, _ = appendString(append(dst, sep...), a.Name)
		dst, _ = appendString(append(dst, `,"type":`...), a.Type)
		if a.Data != "" {
			dst, _ = appendString(append(dst, `,"data":`...), a.Data)
		}
		dst = append(dst, '}')
		sep = `,{"name":`
	}
	if len(m.Answers) > 0 {
		dst = append(dst, ']')
	}
	return append(dst, '}'), false
}

func readDNS(d *kernelDecoder) error {
	m := &DNSMessage{}
	d.e.DNS = m
	return d.closed([]string{"type", "response", "rcode", "answers"}, 1, func(i int) error {
		switch i {
		case 0:
			return d.text(&m.Type)
		case 1:
			m.Response = true
			return d.only("true")
		case 2:
			return d.full(&m.RCode)
		}
		err := d.array(func() error {
			m.Answers = append(m.Answers, DNSAnswer{})
			a := &m.Answers[len(m.Answers)-1]
			return d.closed([]string{"name", "type", "data"}, 2, func(i int) error {
				switch i {
				case 0:
					return d.text(&a.Name)
				case 1:
					return d.text(&a.Type)
				}
				return d.full(&a.Data)
			})
		})
		if err == nil && len(m.Answers) == 0 {
			err = errEmpty
		}
		return err
	})
}

func writeArgs(dst []byte, key string, e *KernelEvent) ([]byte, bool) {
	if e.Args == nil {
		return dst, false
	}
	dst = append(append(dst, key...), '[')
	for i, a := range e.Args {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, a, 10)
	}
	return append(dst, ']'), false
}

func readArgs(d *kernelDecoder) error {
	d.e.Args = []uint64{}
	return d.array(func() error {
		var n uint64
		err := d.unsigned(&n)
		d.e.Args = append(d.e.Args, n)
		return err
	})
}

// readRaw reads the exact bytes of strings, in base64, by the name of a field.
func readRaw(d *kernelDecoder) error {
	d.raw = make(map[string]string)
	err := d.object(func(key []byte) error {
		name := string(key)
		if _, twice := d.raw[name]; twice {
			return fmt.Errorf("key %.100q is repeated", name)
		}
		var text string
		err := d.full(&text)
		d.raw[name] = text
		return err
	})
	if err == nil && len(d.raw) == 0 {
		err = errEmpty
	}
	return err
}

// DecodeKernelEvent reads one line, without its newline, into e, which it overwrites. Every reader of the kernel layer
// uses it. It reads kernel_event.v1 and the closed v0 form; for v0 it sets V0 and leaves the fields that only v1 has
// at their defaults.
//
// It accepts what the JSON Schemas accept, unless a derived value contradicts the members that it derives from, or a
// number does not fit its field. Errors wrap [ErrSyntax], [ErrDuplicateKey] or [ErrSchema]; e is then undefined.
// Strings of e do not refer to line. e may be used again for the next line, which gets new slices.
func DecodeKernelEvent(line []byte, e *KernelEvent) error {
	d := kernelDecoders.Get().(*kernelDecoder)
	err := d.line(line, e)
	*d = kernelDecoder{}
	kernelDecoders.Put(d)
	if err == nil {
		return nil
	}
	if serr := checkSyntax(line); serr != nil {
		return serr
	}
	if errors.Is(err, errNotJSON) {
		// The line is valid JSON after all, so the scanner is wrong.
		return fmt.Errorf("%w: the line cannot be read", ErrSchema)
	}
	return fmt.Errorf("%w: %s", ErrSchema, oneLine(err.Error()))
}

var kernelDecoders = sync.Pool{New: func() any { return new(kernelDecoder) }}

// kernelDecoder reads one line. Its scanner finds the members, [kernelMembers] says how each is read, and rules checks
// them against each other.
type kernelDecoder struct {
	scanner
	e    *KernelEvent
	run  string // the run id of the line before, whose string is used again
	have members

	// Members that derive from others, to be compared with those; nil if the line does not have them.
	kind, access, status, errno, class, source, host []byte
	ops, port                                        uint64

	exit   uint64
	signal []byte
	raw    map[string]string
}

// members are a set of members, by their places in [kernelMembers].
type members [2]uint64

// The compiler refuses a negative length here: members needs another word then.
var _ [64*len(members{}) - len(kernelMembers)]struct{}

func (s *members) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s *members) hasPlace(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// has reports whether s has any of some.
func (s *members) has(some members) bool { return s[0]&some[0]|s[1]&some[1] != 0 }

// firstNotIn returns the name of the first member of s that others does not have, and "" if there is none.
func (s *members) firstNotIn(others *members) string {
	for word := range s {
		if more := s[word] &^ others[word]; more != 0 {
			return kernelMembers[word*64+bits.TrailingZeros64(more)].name()
		}
	}
	return ""
}

// Sets of members that the rules use.
var (
	v0Members = membersThat(func(m *member) bool { return m.in&inV0 != 0 })
	v0Needs   = membersThat(func(m *member) bool { return m.in&neededV0 != 0 })
	v1Needs   = membersThat(func(m *member) bool { return m.in&neededV1 != 0 })

	theTID        = membersNamed("tid")
	theFlags      = membersNamed("flags")
	theOperations = membersNamed("operation_flags")
	theResult     = membersNamed("return_value")
	theCount      = membersNamed("count")
	theFirstTime  = membersNamed("t_first_ns")
	theLastTime   = membersNamed("t_last_ns")
	theCgroup     = membersNamed("cgroup_id")
	theRule       = membersNamed("rule_id")
	theExitCode   = membersNamed("exit_code")
	theCoreDump   = membersNamed("core_dumped")
	thePort       = membersNamed("network_port")
)

func membersThat(are func(m *member) bool) (set members) {
	for i := range kernelMembers {
		if are(&kernelMembers[i]) {
			set.add(i)
		}
	}
	return set
}

func membersNamed(name string) members {
	return membersThat(func(m *member) bool { return m.name() == name })
}

var memberIndex = sync.OnceValue(func() map[string]int {
	index := make(map[string]int, len(kernelMembers))
	for i := range kernelMembers {
		index[kernelMembers[i].name()] = i
	}
	return index
})

// memberOf finds a key. It looks first at the members after the previous one, where it usually is.
func memberOf(key []byte, after int) (i int, ok bool) {
	for i := after; i < min(after+6, len(kernelMembers)); i++ {
		if kernelMembers[i].name() == string(key) {
			return i, true
		}
	}
	i, ok = memberIndex()[string(key)]
	return i, ok
}

func (d *kernelDecoder) line(line []byte, e *KernelEvent) error {
	*d = kernelDecoder{scanner: scanner{b: line}, e: e, run: e.RunID}
	*e = KernelEvent{}
	next := 0
	err := d.object(func(key []byte) error {
		i, ok := memberOf(key, next)
		if !ok {
			return fmt.Errorf("key %.100q is not known", key)
		}
		if d.have.hasPlace(i) {
			return fmt.Errorf("key %q is repeated", key)
		}
		d.have.add(i)
		next = i + 1
		if err := kernelMembers[i].read(d); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err == nil {
		err = d.end()
	}
	if err == nil {
		err = d.rules()
	}
	return err
}

var errEmpty = errors.New("is empty")

// text reads a string, which may be empty.
func (d *kernelDecoder) text(to *string) error {
	s, err := d.str()
	*to = string(s)
	return err
}

// full reads a string and refuses an empty one.
func (d *kernelDecoder) full(to *string) error {
	err := d.text(to)
	if err == nil && *to == "" {
		err = errEmpty
	}
	return err
}

// part reads a string without copying it: it may be a part of the line.
func (d *kernelDecoder) part(to *[]byte) (err error) {
	*to, err = d.str()
	return err
}

// texts reads an array of strings; it is not nil.
func (d *kernelDecoder) texts(to *[]string) error {
	*to = []string{}
	return d.array(func() error {
		s, err := d.str()
		*to = append(*to, string(s))
		return err
	})
}

// names reads an array of one or more different names into the bits of a set.
func (d *kernelDecoder) names(names []string) (set uint8, err error) {
	err = d.array(func() error {
		s, err := d.str()
		if err != nil {
			return err
		}
		i := slices.Index(names, string(s))
		if i < 0 || set&(1<<i) != 0 {
			return fmt.Errorf("%.100q is not known, or repeated", s)
		}
		set |= 1 << i
		return nil
	})
	if err == nil && set == 0 {
		err = errEmpty
	}
	return set, err
}

// only reads a value that must be this one: true, or a string.
func (d *kernelDecoder) only(value string) error {
	if value == "true" {
		if !d.word(value) {
			return errors.New("is not true")
		}
		return nil
	}
	s, err := d.str()
	if want := value[1 : len(value)-1]; err == nil && string(s) != want {
		err = fmt.Errorf("is %.64q, want %q", s, want)
	}
	return err
}

// closed reads an object that may have these keys only, each at most once, and must have the first ones, as many as
// required. value reads the value of the key with index i.
func (d *kernelDecoder) closed(names []string, required int, value func(i int) error) error {
	have := 0
	err := d.object(func(key []byte) error {
		i := slices.Index(names, string(key))
		if i < 0 || have&(1<<i) != 0 {
			return fmt.Errorf("key %.100q is not known, or repeated", key)
		}
		have |= 1 << i
		return value(i)
	})
	if want := 1<<required - 1; err == nil && have&want != want {
		err = fmt.Errorf("one of %q is missing", names[:required])
	}
	return err
}

// whole reads a whole number between least and most.
func (d *kernelDecoder) whole(least, most uint64) (uint64, error) {
	n, err := d.number()
	if err != nil {
		return 0, err
	}
	v, ok := natural(n)
	switch {
	case !ok || v < least:
		return 0, fmt.Errorf("%.40s is not a whole number from %d to %d", n, least, most)
	case v > most:
		return 0, fmt.Errorf("%w: %d, at most %d", errRange, v, most)
	}
	return v, nil
}

func (d *kernelDecoder) unsigned(to *uint64) (err error) {
	*to, err = d.whole(0, math.MaxUint64)
	return err
}

// errContradiction is wrapped by errors that the JSON Schemas cannot express: a value contradicts the members that it
// derives from.
var errContradiction = errors.New("it contradicts itself")

func contradiction(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errContradiction, fmt.Sprintf(format, args...))
}

// rules checks the members against each other.
func (d *kernelDecoder) rules() error {
	e := d.e
	if !d.have.has(theTID) {
		e.TID = e.PID
	}
	e.HasResult, e.Repeat = d.have.has(theResult), d.have.has(theCount)
	needs := &v1Needs
	if e.V0 {
		needs = &v0Needs
	}
	if missing := needs.firstNotIn(&d.have); missing != "" {
		return fmt.Errorf("key %q is missing", missing)
	}
	if !e.V0 {
		if err := d.presence(); err != nil {
			return err
		}
	} else if more := d.have.firstNotIn(&v0Members); more != "" {
		return fmt.Errorf("key %q is not one of %s", more, KernelEventV0)
	}
	if err := d.derived(); err != nil {
		return err
	}
	if err := d.ending(); err != nil {
		return err
	}
	return d.restore()
}

// presence checks which members of v1 need or exclude each other.
func (d *kernelDecoder) presence() error {
	e, has := d.e, d.have.has
	open, failed := e.Kind == KindOpen, e.HasResult && e.Result < 0
	switch {
	case open != (d.access != nil) || open && !has(theFlags):
		return errors.New("an openat has access_mode and flags, and nothing else has access_mode")
	case e.Created && (!open || failed):
		return errors.New("created belongs to an openat that succeeded")
	case has(theOperations) && d.ops == 0:
		return errors.New("operation_flags is empty")
	case failed != (d.errno != nil):
		return errors.New("errno belongs to a return_value below 0, and only there")
	case e.Repeat != has(theFirstTime) || e.Repeat != has(theLastTime):
		return errors.New("count, t_first_ns and t_last_ns come together")
	case has(theExitCode) && d.signal != nil:
		return errors.New("exit_code and signal do not come together")
	case has(theCgroup) && e.CgroupID == 0, has(theRule) && e.RuleID == 0, d.host != nil && len(d.host) == 0:
		return errors.New("cgroup_id, rule_id and network_destination are left out when there is none")
	case has(theCoreDump) && d.signal == nil:
		return contradiction("core_dumped stands without a signal")
	case e.ContainerID != "" && !isContainerID(e.ContainerID):
		return errors.New("container_id: is not 64 lower-case hex digits")
	case e.Baseline && e.Check == "":
		return contradiction("phase stands without a check")
	}
	return nil
}

// derived compares the derived members of the line with the kind, the flags, the result and the value.
func (d *kernelDecoder) derived() error {
	e, has := d.e, d.have.has
	want := e.Kind.String()
	if e.V0 && !e.Kind.v0() {
		want = "event_" + strconv.Itoa(int(e.Kind))
	}
	if string(d.kind) != want {
		return contradiction("kind is %.64q, but event_type %d is %q", d.kind, e.Kind, want)
	}
	var known bool
	if e.Class, known = ParseClass(string(d.class)); d.class != nil && (!known || e.Class == ClassAgent) {
		return fmt.Errorf("class: %.64q is not known", d.class)
	}
	e.UserMemory, e.KernelCopy = string(d.source) == "user_memory", string(d.source) == "kernel_copy"
	if d.source != nil && !e.UserMemory && !e.KernelCopy {
		return fmt.Errorf("path_source: is %.64q, want \"user_memory\" or \"kernel_copy\"", d.source)
	}
	switch {
	case d.status == nil:
	case string(d.status) == statusAttempted:
		if e.Attempted = true; e.HasResult || e.V0 {
			return contradiction("status is %q, and there is a return_value", statusAttempted)
		}
		if has(theExitCode) || d.signal != nil {
			return contradiction("status is %q, and there is an exit_code or a signal", statusAttempted)
		}
	case !e.HasResult:
		return errors.New("status needs a return_value")
	case string(d.status) != e.status():
		return contradiction("status is %.64q, but return_value %d is %q", d.status, e.Result, e.status())
	}
	if d.errno != nil && string(d.errno) != e.Errno() {
		return contradiction("errno is %.64q, but return_value %d is %q", d.errno, e.Result, e.Errno())
	}
	if d.access != nil && string(d.access) != accessMode(e.Flags) {
		return contradiction("access_mode is %.64q, but flags %d are %q", d.access, e.Flags, accessMode(e.Flags))
	}
	if has(theOperations) && d.ops != e.Flags&operationBits {
		return contradiction("operation_flags do not follow from flags %d", e.Flags)
	}
	if d.host != nil || has(thePort) {
		host, port, ok := splitEndpoint(e.Value)
		if !ok || d.host == nil || !has(thePort) || string(d.host) != host || d.port != port {
			return contradiction("network_destination and network_port do not follow from value")
		}
	}
	return nil
}

// ending computes the wait status from exit_code, or from signal and core_dumped.
func (d *kernelDecoder) ending() error {
	d.e.WaitStatus = uint32(d.exit) << 8
	if d.signal == nil {
		return nil
	}
	sig, ok := parseSignal(string(d.signal))
	if !ok {
		return contradiction("signal %.64q is none of Linux", d.signal)
	}
	if d.e.WaitStatus = sig; d.have.has(theCoreDump) {
		d.e.WaitStatus |= 0x80
	}
	return nil
}

// restore puts the exact bytes from raw into their fields.
func (d *kernelDecoder) restore() error {
	for name, text := range d.raw {
		field := d.e.text(name)
		if field == nil {
			return contradiction("raw %.100q names no field of this event", name)
		}
		raw, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil {
			return contradiction("raw %.100q is not base64", name)
		}
		if utf8.Valid(raw) || *field != Readable(string(raw)) {
			return contradiction("raw %.100q is not what the field shows", name)
		}
		*field = string(raw)
	}
	return nil
}

// statusAttempted is the status of a call that was seen before it was made.
const statusAttempted = "attempted"

// accessMode derives v0's access_mode from open flags (O_ACCMODE).
func accessMode(flags uint64) string {
	switch flags & 3 {
	case 0:
		return "read"
	case 1:
		return "write"
	case 2:
		return "read_write"
	}
	return "unknown"
}

// splitEndpoint cuts "ip:port" or "[ip6]:port"; ok is false for anything else.
func splitEndpoint(s string) (host string, port uint64, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 {
		return "", 0, false
	}
	port, err := strconv.ParseUint(s[i+1:], 10, 16)
	host = s[:i]
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	return host, port, err == nil
}

// isRunID reports whether s is a run id as the schemas define it, except for its length.
func isRunID(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return s != ""
}

// isContainerID reports whether s is a container id as the schema defines it.
func isContainerID(s string) bool { return len(s) == 64 && isHex(s) }
