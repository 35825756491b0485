package schema

import (
	"iter"
	"strconv"
	"strings"
)

// KernelEvent is one line of layers/kernel.ndjson in kernel_event.v1, a
// superset of kernel_event.v0. The struct holds only what cannot be derived:
// "kind", "errno", "access_mode", "operation_flags", "status",
// "network_destination" and "network_port" follow from Kind, Result, Flags and
// Value when a line is written, and are checked against them when one is read.
//
// A field that holds its default is left out of the line; the default stands
// at each field. Facts about a process stand once, on the event that began the
// process instance (fork, exec, join); every other event refers to it by
// ExecID. Strings are the kernel's bytes, which need not be UTF-8; see
// [AppendJSON] for how they are written.
type KernelEvent struct {
	RunID string // run_id
	// Seq is stamped by the recorder: contiguous from 0.
	Seq uint64 // seq
	// TNS is nanoseconds of CLOCK_BOOTTIME since run_started. It is negative
	// for what was observed just before (the self-test is never recorded).
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
	// Given and TargetGiven are the names as the caller wrote them where ".." or a
	// symbolic link on the way to the last part made Value and Target other than
	// those; else left out.
	Given       string // given
	TargetGiven string // target_given
	// Flags are the call's own flags (open flags, clone flags, unlinkat's...).
	// Always written on openat, else left out when 0.
	Flags uint64 // flags
	// Mode is the create mode (openat with O_CREAT or O_TMPFILE, mkdir, mknod)
	// or the new mode (chmod). Left out when 0, except where O_CREAT asks.
	Mode uint32 // mode
	// Resolve is openat2's resolve flags; left out when 0.
	Resolve uint64 // resolve
	// Created: the openat made the file. Left out when false: the file existed,
	// or that is not known.
	Created bool // created
	// HasResult: Result is known; without it return_value, status
	// and errno are left out.
	HasResult bool
	// Result is the call's return value: negative is -errno.
	Result int64 // return_value, status, errno
	// Attempted: the call was seen before it was made: status "attempted",
	// and its result is unknown (no HasResult). Of an exit: how the process ended is
	// unknown, and exit_code and signal are left out.
	Attempted bool
	// UserMemory: Value was read from the caller's memory and could
	// have changed under the kernel: path_source "user_memory". The default,
	// left out, is "kernel_object".
	UserMemory bool // path_source
	// KernelCopy: Value is the directory that the kernel reached and the
	// kernel's own copy of the name: path_source "kernel_copy". Not with UserMemory.
	KernelCopy bool // path_source
	// Claimed: what was read from the caller's memory could have been
	// changed by another thread or process while the kernel used it: arguments
	// "claimed", left out when false.
	Claimed bool // arguments
	// DirectoryClaimed: a directory or symbolic link on the way of Value or Target
	// could have led elsewhere while the kernel used it: directory "claimed", left out when
	// false.
	DirectoryClaimed bool // directory
	// Truncated names the fields that were cut, by their JSON names.
	Truncated Fields // truncated
	// Marks say what else is known about Value (on exec: about Exe). 0 is
	// left out.
	Marks Marks // marks
	// Repeat: this line stands for Count further occurrences of an
	// earlier event of the same instance with equal fields, coalesced in the
	// kernel; the first happened at TFirstNS, the last at TLastNS or in the
	// timer tick (at most 10 ms) after it, and TNS is when the count was given
	// out. How often something happened is the sum of
	// "count" over its lines. The three are left out when false; Count is then
	// 1, and not read from this struct; see Times.
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
	// Peers is how many remote endpoints had connected to Local, of a flow that counts
	// all of them together and has no Value; 0 is left out.
	Peers uint64 // peers
	// Remote is the server that a dns or tls event was exchanged with.
	Remote string // remote
	// Names are the host names that DNS or TLS gave Value's address, sorted.
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
	// Check is the outcome contract's check that the process was started for,
	// on the event that began the instance (fork, exec, join); every event of
	// it has ClassCheck. Left out when empty.
	Check string // check
	// Baseline: the check ran before the agent did: phase
	// "baseline", left out when false.
	Baseline bool // phase
	// ContainerID is the container whose process acted, by the name that its engine
	// gave its cgroup; left out when empty.
	ContainerID string // container_id
	// V0: the line was read in the closed v0 form, which has no t_ns. It
	// is not written.
	V0 bool
	// Late: the event reached the recorder after its place in time
	// had been written, so its line is out of order. Left out when false.
	Late bool // late
}

// Times is how many occurrences the line stands for.
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

// Changes reports whether the open itself made the file, or took its content away.
func (e *KernelEvent) Changes() bool { return e.Created || e.Flags&(openCreat|openTrunc) != 0 }

// Writes reports whether an openat's flags ask for more than reading: write
// access, creation, truncation, or a mode that does not exist.
func (e *KernelEvent) Writes() bool {
	return e.Flags&(openWrOnly|openRdWr|openCreat|openTrunc|openAppend|openTmpfile) != 0
}

// OpenIntent is what v0's access_mode and operation_flags say about an openat's flags.
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

// Touches yields what the event touches, and how: paths of files, the path of a
// program (AccessRun), an endpoint (AccessConnect). That the call may have failed
// does not count: see Failed and Blocked. Names that are empty are left out.
//
// The table of kinds says this of each kind. Some touch nothing: a directory that is entered, a local endpoint, bytes
// on a connection.
func (e *KernelEvent) Touches() iter.Seq2[string, Access] {
	return func(yield func(string, Access) bool) {
		if e.NoFile() {
			return
		}
		value, target := e.Kind.touches(e)
		if e.Value != "" && value < untouched && !yield(e.Value, value) {
			return
		}
		if e.Target != "" && target < untouched {
			yield(e.Target, target)
		}
	}
}

// NoFile reports whether Value names what is no file of any file system: an anonymous inode, as a ring
// of io_uring that is mapped. Earlier builds called that "/[io_uring]".
func (e *KernelEvent) NoFile() bool {
	switch {
	case e.UserMemory:
		return false
	case strings.HasPrefix(e.Value, "anon_inode:["):
		return e.Marks&MarkRelative == 0
	}
	return e.Kind == KindMmapShared && e.Value == "/[io_uring]" && e.Marks&MarkUnreachable != 0
}

// Makes reports whether the name that the event gives to a file did not exist before. False
// is also where that is not known: a rename, an open by a recorder that did not tell.
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

// Name is one of the event's paths as it is shown: a path in another mount namespace ends
// in a mark, so that nobody takes it for the file that the run's own namespace has there.
func (e *KernelEvent) Name(path string) string {
	if e.Marks&MarkMountNamespace == 0 || path == "" {
		return path
	}
	return path + OtherMounts
}

// OtherMounts is the end of a path in another mount namespace; see [KernelEvent.Name].
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

// rare reports whether the event has any of the members from [commonMembers] on. One look at its fields takes a
// fraction of the time of asking each member. TestEveryFieldIsWritten fails where a field is missing here.
func (e *KernelEvent) rare() bool {
	return e.PPID != 0 || e.ParentExecID != 0 || e.CgroupID != 0 || e.Target != "" || e.Given != "" ||
		e.TargetGiven != "" || e.Claimed || e.DirectoryClaimed || e.Truncated != 0 || e.Marks != 0 ||
		e.Kind == KindExit || e.Kind == KindConnectBlocked || e.Protocol != "" || e.Local != "" || e.Peers != 0 ||
		e.Remote != "" || e.Names != nil || e.DNS != nil || e.Exe != "" || e.Cwd != "" || e.Argv != nil ||
		e.EnvKeys != nil || e.Call != "" || e.Args != nil || e.RuleID != 0 || e.ToolCallID != "" ||
		e.BoundBy != "" || e.Check != "" || e.Baseline || e.ContainerID != "" || e.Late
}

// text returns the field that a key of "raw" names, nil when there is none.
func (e *KernelEvent) text(key string) *string {
	name, index, _ := strings.Cut(key, ".")
	m, ok := memberIndex()[name]
	if !ok {
		return nil
	}
	if field := kernelMembers[m].text; field != nil && name == key {
		return field(e)
	}
	if list := kernelMembers[m].texts; list != nil {
		texts := list(e)
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(texts) && strconv.Itoa(i) == index {
			return &texts[i]
		}
	}
	return nil
}

// status says how a call ended; empty: that is not known.
func (e *KernelEvent) status() string {
	switch {
	case e.Attempted:
		return attempted
	case !e.HasResult:
		return ""
	case e.Result < 0:
		return "error"
	}
	return "success"
}

// class is the name of the class; empty: the default.
func (e *KernelEvent) class() string {
	if e.Class == ClassAgent {
		return ""
	}
	return e.Class.String()
}

// pathSource is where Value comes from; empty: from an object of the kernel.
func (e *KernelEvent) pathSource() string {
	switch {
	case e.UserMemory:
		return "user_memory"
	case e.KernelCopy:
		return "kernel_copy"
	}
	return ""
}

// access is what an openat asked for; empty: it is none.
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
)

var markNames = [...]string{"deleted", "memfd", "relative", "unreachable", "unreadable", "unresolved",
	"mount_namespace"}

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

// Access is how an event touches a thing: a set of the constants below. The empty
// set is a thing that the event only names.
type Access uint8

// Members of [Access].
const (
	AccessRead    Access = 1 << iota // a file opened for reading
	AccessWrite                      // a file opened for writing, written, truncated, or mapped to be written
	AccessCreate                     // a new name, or a file opened with O_CREAT
	AccessRemove                     // a name that goes
	AccessChange                     // mode, owner, times or attributes of a file
	AccessRun                        // a program
	AccessConnect                    // an endpoint that is connected or sent to

	// AccessModify is what leaves files other than they were.
	AccessModify = AccessWrite | AccessCreate | AccessRemove | AccessChange
)
