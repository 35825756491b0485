package kernel

import (
	"errors"
	"strings"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// Descriptors is how many file descriptors Open and StartObserver need at most, while they load the programs.
const Descriptors = 128

// ErrNotSupported is what an [Unavailable] unwraps to: this host, or this
// process on it, cannot observe through eBPF.
var ErrNotSupported = errors.New("kernel observation is not supported")

// DefaultRing is the size of the ring buffer, in bytes, if none is asked for.
const DefaultRing = 4 << 20

// ringSize is the size that is made for one that was asked for.
func ringSize(asked int) int {
	if asked == 0 {
		return DefaultRing
	}
	size := schema.MinKernelBuffer
	for size < min(asked, schema.MaxKernelBuffer) {
		size *= 2
	}
	return size
}

// Config says what to observe. Only CgroupPath is needed.
type Config struct {
	// CgroupPath is the cgroup2 directory of the session. Every task in it or
	// below, now and later, is observed.
	CgroupPath string
	// RingBytes is the size of the ring buffer, rounded up to a power of two from
	// schema.MinKernelBuffer to schema.MaxKernelBuffer. Zero means DefaultRing.
	RingBytes int
	// ScratchDir is an existing directory for a file without a name. It takes what was read from the ring buffer and
	// waits for the function of [Observer.Read], beyond the 2 MiB that wait in memory: up to 1 GiB, or a quarter of
	// what is free there. Empty: no more is read until the function has caught up.
	ScratchDir string
	// SelfTest makes Open trigger every required hook, in a child process in
	// a cgroup below CgroupPath, and see it. False leaves HookStatus.SelfTested false.
	SelfTest bool
	// Keep is how long the observer that runs share stays on the host after the
	// last of them, so that the next need not load it. Zero: it goes with the last.
	Keep time.Duration
	// Foreign says that somebody else made the cgroup and put processes into it, before
	// Open or later: what they did before is missing, and the report says so. Processes
	// that are still alive at the end are nobody's fault then. Open fails in a PID
	// namespace, where the processes' ids are not those that the kernel reports.
	Foreign bool
}

// Present is a process that was in the session's cgroup before it was observed.
type Present struct {
	PID, PPID uint32
	CgroupID  uint64
	// Exe, Cwd and Argv are as /proc had them, empty where the process had just ended.
	// The process can change its Argv.
	Exe, Cwd string
	Argv     []string
	// MountNS is the number of its mount namespace; 0 is unknown.
	MountNS uint32
}

// Reason codes of an [Unavailable] and of [Report].Reasons.
const (
	CodeNotLinux     = "not_linux"
	CodeNotPermitted = "not_permitted"
	CodeBlocked      = "bpf_blocked"
	CodeLockdown     = "lockdown"
	CodeNoBTF        = "no_btf"
	CodeNoCgroup2    = "no_cgroup2"
	CodeLoadFailed   = "load_failed"
	CodeHookMissing  = "hook_missing"
	CodeHookSilent   = "hook_silent"
	CodeHookLost     = "hook_lost"
	CodeDrops        = "ringbuf_drops"
	CodeMisses       = "recursion_misses"
	CodeFailedReads  = "failed_reads"
	CodeMalformed    = "malformed_records"
	CodeUnmatched    = "forks_unmatched"
	CodeLeftCgroup   = "left_cgroup"
	CodeSelfTest     = "self_test_failed"
	CodeFull         = "cgroup_limit" // the kernel makes no more cgroups
	CodeMissing      = "records_missing"
	CodeTampered     = "observer_changed"
	CodeBPF          = "bpf_objects_changed"
	CodeAttachedLate = "attached_late"
	CodeProcessIDs   = "process_ids_differ"
)

// Reason is one cause for seeing less, and what would fix it.
type Reason struct {
	Code, Message, Remedy string
}

// PlaceError says why this process can pin no observer for all runs, and what would
// change that. A run then loads programs of its own.
type PlaceError struct {
	Reason, Remedy string
	Err            error // may be nil
}

func (e *PlaceError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

func (e *PlaceError) Unwrap() error { return e.Err }

// Unavailable says why [Open] cannot observe anything here. It unwraps to
// [ErrNotSupported] and to the error of the system that decided it.
type Unavailable struct {
	Reasons []Reason
	Err     error
}

func (u *Unavailable) Error() string {
	var m []string
	for _, r := range u.Reasons {
		m = append(m, r.Message)
	}
	return ErrNotSupported.Error() + ": " + strings.Join(m, "; ")
}

// Unwrap makes errors.Is find ErrNotSupported and the cause.
func (u *Unavailable) Unwrap() []error {
	if u.Err == nil {
		return []error{ErrNotSupported}
	}
	return []error{ErrNotSupported, u.Err}
}

// Tier is a way to observe.
type Tier string

// Tiers. With TierNotify (package notify) each call waits for the observer, which
// reads the arguments before the kernel does and does not see the result.
const (
	TierEBPF   Tier = "ebpf"
	TierNotify Tier = "notify"
)

// Counts is the account of a hook: Fired = Filtered + Coalesced + Emitted + Dropped.
type Counts struct {
	// Fired: the hook ran for a task of the session.
	Fired uint64
	// Filtered: of no interest (a write to a pipe, the exit of one thread of several).
	Filtered uint64
	// Coalesced: counted in the slot of an earlier event of the same kind.
	Coalesced uint64
	// Emitted: a record went into the ring.
	Emitted uint64
	// Dropped: there was no room in the ring.
	Dropped uint64
	// FailedReads: emitted or dropped records that miss a field. Not part of the sum.
	FailedReads uint64
}

func (c *Counts) add(o Counts) {
	c.Fired += o.Fired
	c.Filtered += o.Filtered
	c.Coalesced += o.Coalesced
	c.Emitted += o.Emitted
	c.Dropped += o.Dropped
	c.FailedReads += o.FailedReads
}

// HookStatus is one hook, its state and account.
type HookStatus struct {
	Hook     HookID
	Name     string
	Required bool
	// Attached: loaded and attached, and, once Stop has run, still so at the end.
	Attached bool
	// Detail says why it is not Attached, empty otherwise.
	Detail string
	// SelfTested: seen to fire by the self-test.
	SelfTested bool
	Counts
	// PerCPU is the same account CPU by CPU, nil before something was loaded.
	PerCPU []Counts
	// RecursionMisses: the kernel skipped the program because it was already running on that CPU.
	RecursionMisses uint64
}

// Report is the account of an observation. It is exact once Read has returned
// after Stop; before that it is a snapshot in which the sums can be off by what
// is under way.
type Report struct {
	// Tier is how the run was observed: TierEBPF, which is also the zero value's
	// meaning, or TierNotify.
	Tier Tier
	// Hooks are in the order of HookID.
	Hooks []HookStatus
	// Received = Decoded + Malformed; Received equals the sum of Emitted over Hooks.
	Received, Decoded, Malformed uint64
	// Delivered is how many events Read has handed over: Decoded + FinalRepeats
	// + Endpoints = Delivered + Joined + SelfTest, where Joined are parts of an
	// event's argv and Endpoints the schema.KindFlow events, one for each remote
	// endpoint, taken from a table at the end.
	Delivered, Joined, SelfTest uint64
	// Repeats is the sum of Count over the Repeat events handed over (or held
	// back as part of the self-test); it equals the sum of Coalesced over
	// Hooks. FinalRepeats is how many of those events were taken from the
	// slots at the end rather than received through the ring.
	Repeats, FinalRepeats, Endpoints uint64
	// Forks, Exits count tasks (threads included) of the session.
	Forks, Exits uint64
	// LeftCgroup and JoinedCgroup count tasks, as Forks and Exits, moved, or forked, out of the session and moved
	// into it.
	LeftCgroup, JoinedCgroup uint64
	// IOUringUsed: the run submitted io_uring requests that touch files or peers.
	// IOUringUnseen: it used io_uring and this kernel does not tell of requests.
	// IOUringUnfollowed are the operations, ascending, that this build does not
	// know, or not in the way that they were used.
	IOUringUsed, IOUringUnseen bool
	IOUringUnfollowed          []uint8
	// Tally counts the events delivered.
	Tally
	// Unnamed is what the run did that no record tells of, and which process did it is not known.
	Unnamed []Opening
	// DescriptorsPassed: descriptors were passed over a unix socket to a process outside or from one,
	// or, in TierNotify, the command was started with a socket open.
	DescriptorsPassed bool
	// DescriptorsReceived: the run got descriptors from processes outside; DescriptorsUnseen: what it
	// can have done with one is not seen.
	DescriptorsReceived, DescriptorsUnseen bool
	// MapsInDoubt: the run may have changed BPF maps that it did not make by a program that had gone before it could be
	// looked at.
	MapsInDoubt bool
	// Present counts the processes that were in the cgroup when observation began.
	Present int
	// Unreadable are the calls whose arguments could not be read, in TierNotify.
	Unreadable uint64
	// Reasons say, one by one, why the layer is less than complete; empty when it is.
	Reasons []Reason
	// Shared: the run had a slot in the host's observer. Otherwise it loaded
	// programs of its own, which every process on the host pays for, and Alone
	// says why.
	Shared bool
	// Found: an earlier process of root had loaded that observer, so this run rests on it.
	Found bool
	Alone string
	// SelfTestNS is how long the self-test took.
	SelfTestNS int64
}

// HookID indexes [Report].Hooks and the result of [Probe], which list the hooks
// in this order.
type HookID uint16

// Hooks, in the order of enum hook in bpf/record.h. A hook is a group of calls
// with one account, not one attachment: all "syscall/" hooks hang on sys_exit.
const (
	HookExec HookID = iota
	HookFork
	HookExit
	HookMoved
	HookOpen
	HookExecFailed
	HookWrite
	HookMmap
	HookRename
	HookUnlink
	HookLink
	HookMkdir
	HookTruncate
	HookAttr
	HookChdir
	HookSocket
	HookPrivilege
	HookIOUring
	HookConnect4
	HookConnect6
	HookSendmsg4
	HookSendmsg6
	HookBind4
	HookBind6
	HookTCP
	HookSkbIn
	HookSkbOut
	HookExecArgs
	HookFlush
	HookUnmodelled
	HookSignal
	hookCount
)

// hookCells is the number of counter cells per CPU (H_CELLS).
const hookCells = 64

// hookInfo is what is known of a hook before anything is loaded.
type hookInfo struct {
	name string
	// progs are the programs the hook needs, in the object.
	progs []string
	// required: without it the kernel layer is not complete.
	required bool
	// selfTested: the self-test must see it fire, unless the host lacks what it
	// takes. The others have no call that makes them fire for certain.
	selfTested bool
}

var hooks = [hookCount]hookInfo{
	HookExec:       {"sched_process_exec", []string{"execed"}, true, true},
	HookFork:       {"sched_process_fork", []string{"forked"}, true, true},
	HookExit:       {"sched_process_exit", []string{"exited"}, true, true},
	HookMoved:      {"cgroup_attach_task", []string{"moved"}, true, true},
	HookOpen:       {"syscall/open", []string{"sys_exit"}, true, true},
	HookExecFailed: {"syscall/exec_failed", []string{"sys_exit"}, true, true},
	HookWrite:      {"syscall/write", []string{"sys_exit"}, true, true},
	HookMmap:       {"syscall/mmap_shared", []string{"sys_exit"}, true, true},
	HookRename:     {"syscall/rename", []string{"sys_exit"}, true, true},
	HookUnlink:     {"syscall/unlink", []string{"sys_exit"}, true, true},
	HookLink:       {"syscall/link", []string{"sys_exit"}, true, true},
	HookMkdir:      {"syscall/mkdir", []string{"sys_exit"}, true, true},
	HookTruncate:   {"syscall/truncate", []string{"sys_exit"}, true, true},
	HookAttr:       {"syscall/attributes", []string{"sys_exit"}, true, true},
	HookChdir:      {"syscall/chdir", []string{"sys_exit"}, true, true},
	HookSocket:     {"syscall/socket", []string{"sys_exit"}, true, true},
	HookPrivilege:  {"syscall/privilege", []string{"sys_exit"}, true, true},
	HookIOUring:    {"io_uring_submit_req", []string{"submitted", "completed"}, false, false},
	HookConnect4:   {"cgroup/connect4", []string{"connect4"}, true, true},
	HookConnect6:   {"cgroup/connect6", []string{"connect6"}, true, true},
	HookSendmsg4:   {"cgroup/sendmsg4", []string{"sendmsg4"}, true, true},
	HookSendmsg6:   {"cgroup/sendmsg6", []string{"sendmsg6"}, true, true},
	HookBind4:      {"cgroup/bind4", []string{"bind4"}, true, true},
	HookBind6:      {"cgroup/bind6", []string{"bind6"}, true, true},
	HookTCP:        {"inet_sock_set_state", []string{"settled"}, true, true},
	HookSkbIn:      {"cgroup_skb/ingress", []string{"skb_in"}, false, false},
	HookSkbOut:     {"cgroup_skb/egress", []string{"skb_out"}, false, false},
	HookExecArgs:   {"exec_arguments", []string{"execed"}, true, true},
	HookFlush:      {"coalescing_flush", []string{"sys_exit"}, true, false},
	HookSignal:     {"signal_generate", []string{"signalled"}, true, false},
	HookUnmodelled: {"syscall/unmodelled", []string{"sys_exit", "consumed", "rooted", "remounted"}, true, false},
}

// String is the hook's name in observation-health.json.
func (h HookID) String() string {
	if h < hookCount {
		return hooks[h].name
	}
	return "unknown"
}
