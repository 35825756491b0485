package kernel

import (
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// A Dimension is one thing a run can be asked about, how it was watched and
// what that cannot see.
type Dimension struct {
	Name     string // filesystem, process, network, names, privilege
	Method   string
	Observes []string
	// Hooks all have to be attached, and one of them seen to fire, for the
	// dimension to count as watched.
	Hooks      []HookID
	BlindSpots []BlindSpot
}

// A BlindSpot is something this tier cannot see.
type BlindSpot struct {
	ID   string // stable; readers decide by it what the blind spot can hide
	Text string // one sentence, stable
	// exercised reports whether the run did it; nil where nothing can tell.
	exercised func(*Report) *bool
}

// Exercised reports whether the run of the report did it; nil when that cannot be
// told.
func (b BlindSpot) Exercised(r *Report) *bool {
	if b.exercised == nil {
		return nil
	}
	return b.exercised(r)
}

// talked reports whether the run exchanged anything with a peer, by a socket that it made or by one that it had from
// elsewhere.
func talked(r *Report) bool {
	return r.Kinds[schema.KindConnect]+r.Kinds[schema.KindSendto]+r.Kinds[schema.KindAccept]+
		r.Kinds[schema.KindForeignSocket] > 0
}

// onlyIf says no when the condition is false, and nothing otherwise: the run
// did what the blind spot needs, but whether it fell into it is unknown.
func onlyIf(possible func(*Report) bool) func(*Report) *bool {
	return func(r *Report) *bool {
		if possible(r) {
			return nil
		}
		return new(false)
	}
}

func exactly(happened func(*Report) bool) func(*Report) *bool {
	return func(r *Report) *bool { return new(happened(r)) }
}

// Coverage is what the tracepoint tier watches, dimension by dimension. The
// caller must not change it.
func Coverage() []Dimension { return coverage }

var coverage = []Dimension{
	{
		Name: "filesystem", Method: "raw_tp/sys_exit with paths from kernel objects",
		Observes: []string{"opens", "creations", "renames", "removals", "links", "truncations and allocations",
			"changes of attributes and times",
			"bytes written per file, and writes that failed", "shared writable mappings",
			"changes of directory and root"},
		Hooks: []HookID{HookOpen, HookWrite, HookMmap, HookRename, HookUnlink, HookLink, HookMkdir, HookTruncate,
			HookAttr, HookChdir},
		BlindSpots: []BlindSpot{
			{"io_uring_unseen",
				"io_uring requests on a kernel that does not report them, and operations that this build does not know",
				exactly(func(r *Report) bool { return r.IOUringUnseen || len(r.IOUringUnfollowed) > 0 })},
			{"io_uring_commands",
				"io_uring commands to devices are seen, but not what they do",
				exactly(func(r *Report) bool { return r.Kinds[schema.KindIOUringOp] > 0 })},
			{"io_uring_bytes",
				"how many bytes an io_uring write wrote, when it completes without reporting a result",
				onlyIf(func(r *Report) bool { return r.IOUringUsed })},
			{"user_memory",
				"a name that the kernel's copy could not be had of is read from the caller's memory after the call; " +
					"such events say path_source=user_memory",
				exactly(func(r *Report) bool { return r.UserNamed > 0 })},
			{"failed_links",
				"a symbolic link as the last part of a name is not followed where the call failed",
				onlyIf(func(r *Report) bool { return r.Errors > 0 })},
			{"reused_descriptors",
				"another task that shares the descriptors may have put another file on one before the call that " +
					"opened it had returned; such opens say arguments=claimed",
				exactly(func(r *Report) bool { return r.Replaced > 0 })},
			{"claimed",
				"a name or address that another thread, process or mapping can change may have changed while the " +
					"kernel used it; such events say arguments=claimed",
				exactly(func(r *Report) bool { return r.Claimed > 0 })},
			{"foreign_writes",
				"a process that writes the memory of another (ptrace, process_vm_writev, /proc/PID/mem) may have " +
					"changed a name during the call; arguments does not show this",
				onlyIf(func(r *Report) bool { return r.Kinds[schema.KindPtrace]+r.MemoryOpened > 0 })},
			{"private_mapping",
				"a name in a private mapping of a file that another process wrote to and closed during the call; " +
					"arguments does not show this", nil},
			{"mapped_bytes",
				"bytes written through a shared mapping are not counted, only that the mapping was made",
				exactly(func(r *Report) bool { return r.Kinds[schema.KindMmapShared] > 0 })},
			{"remapped",
				"a shared mapping made read-only and made writable later", nil},
			{"mount_namespace",
				"paths are those of the mount namespace that a process is in: what a container calls /etc " +
					"is not the host's",
				onlyIf(func(r *Report) bool { return r.Kinds[schema.KindNamespace] > 0 })},
			{"io_submit",
				"the results of writes by io_submit, the size of vectored ones, and the original of a request " +
					"that is " +
					"changed before the observer reads it, after the call", nil},
			{"device_bytes",
				"bytes written to character devices and pipes", nil},
			{"handed_files",
				"the opening of files that were opened before the run or received over a socket; " +
					"writes to them are seen",
				nil},
			{"reads",
				"reads, stat, access, readlink and directory listings are not recorded", nil},
			{"times",
				"which times a file was given",
				exactly(func(r *Report) bool { return r.Kinds[schema.KindUtime] > 0 })},
			{"file_ioctls",
				"FICLONE and other ioctls that change a file, and file_setattr", nil},
			{"repeated_path",
				"a repeat of an event keeps the first one's path when a process outside the run renames a " +
					"directory above it", nil},
		},
	},
	{
		Name: "process", Method: "raw_tp/sched_process_exec, _fork, _exit and cgroup_attach_task",
		Observes: []string{"executions with argv and environment names", "failed executions", "forks and threads",
			"exit codes and signals",
			"tasks leaving and joining the session"},
		Hooks: []HookID{HookExec, HookExecFailed, HookFork, HookExit, HookMoved, HookExecArgs},
		BlindSpots: []BlindSpot{
			{"compat_calls",
				"system calls of x32 programs, all calls of 32-bit programs on arm64, and calls that this build does " +
					"not know, are counted but not decoded",
				exactly(func(r *Report) bool { return r.Undecoded > 0 })},
			{"found_observer",
				"the observer was loaded by an earlier process of root, which is trusted: assay-run observe status " +
					"compares its programs with this build",
				onlyIf(func(r *Report) bool { return r.Found })},
			{"pid_namespace",
				"pids are those of the initial pid namespace, not those that processes in a container see",
				onlyIf(func(r *Report) bool { return r.Kinds[schema.KindNamespace] > 0 })},
			{"outside_help",
				"what processes outside do for the run when it asks them over a socket, as a container daemon does",
				onlyIf(talked)},
			{"injected_code",
				"code brought in by ptrace or a shared mapping rather than exec",
				onlyIf(func(r *Report) bool { return r.Kinds[schema.KindPtrace]+r.Kinds[schema.KindMmapShared] > 0 })},
			{"own_argv",
				"a program that overwrites its own argv after exec", nil},
		},
	},
	{
		Name: "network", Method: "cgroup/connect, cgroup/sendmsg, cgroup/bind, cgroup_skb, " +
			"inet_sock_set_state and socket calls",
		Observes: []string{"connections and their results, including TCP connections that complete in the background",
			"binds, listens and accepts", "datagram peers",
			"the peers of sockets that the run did not make, when it uses them", "unix sockets by path",
			"bytes per remote endpoint"},
		Hooks: []HookID{HookSocket, HookConnect4, HookConnect6, HookSendmsg4, HookSendmsg6, HookBind4, HookBind6,
			HookTCP},
		BlindSpots: []BlindSpot{
			{"background_connections",
				"how connections in the background ended among more than 2,000 sockets of the run, and those of MPTCP",
				onlyIf(func(r *Report) bool { return r.Kinds[schema.KindConnect] > 0 })},
			{"io_uring_connections",
				"results of connections, binds and datagrams made by an io_uring worker, or that complete without " +
					"reporting a result; the address is seen",
				onlyIf(func(r *Report) bool { return r.IOUringUsed })},
			{"io_uring_accepts",
				"the peers of connections that io_uring accepts into its own file table",
				onlyIf(func(r *Report) bool { return r.IOUringUsed && r.Kinds[schema.KindAccept] > 0 })},
			{"failed_addresses",
				"the address of a bind or connect that failed before the kernel read it is read from the caller's " +
					"memory after the call",
				onlyIf(func(r *Report) bool {
					return r.Kinds[schema.KindBind]+r.Kinds[schema.KindConnect] > 0 && r.Errors > 0
				})},
			{"handed_sockets",
				"packets of sockets that were made before the run or handed to it belong to their maker's cgroup",
				exactly(func(r *Report) bool { return r.Kinds[schema.KindForeignSocket] > 0 })},
			{"passed_descriptors",
				"descriptors that are passed over a unix socket to or from a process outside",
				onlyIf(func(r *Report) bool { return r.DescriptorsPassed })},
			{"unix_datagrams",
				"which processes sent datagrams to a unix socket that the run gave a name",
				onlyIf(func(r *Report) bool { return r.NamedDatagrams > 0 })},
			{"endpoint_bytes",
				"bytes are counted per remote endpoint, not per process",
				exactly(func(r *Report) bool { return r.Kinds[schema.KindFlow] > 0 })},
			{"many_endpoints",
				"traffic with more than 8,192 remote endpoints: the rest are not counted",
				exactly(func(r *Report) bool {
					return len(r.Hooks) > int(HookSkbOut) &&
						r.Hooks[HookSkbIn].FailedReads+r.Hooks[HookSkbOut].FailedReads > 0
				})},
		},
	},
	{
		Name: "names", Method: "cgroup_skb on port 53 and on TLS ClientHello",
		Observes: []string{"DNS questions and answers", "TLS server names"},
		Hooks:    []HookID{HookSkbIn, HookSkbOut},
		BlindSpots: []BlindSpot{
			{"quic_names",
				"server names inside QUIC", exactly(func(r *Report) bool { return r.QUICPeers > 0 })},
			{"encrypted_dns",
				"DNS queries over TLS or HTTPS, or on a port other than 53",
				onlyIf(func(r *Report) bool { return r.Kinds[schema.KindTLS] > 0 || talked(r) })},
			{"daemon_dns",
				"DNS queries to a local daemon over a unix socket",
				onlyIf(talked)},
			{"cut_messages",
				"the part of a ClientHello or DNS message after the first TCP segment or 2,048 bytes (the event is " +
					"marked as truncated), and a message whose first segment has less than 12 bytes", nil},
			{"encrypted_hello",
				"the true name in an encrypted ClientHello", onlyIf(func(r *Report) bool {
					return r.Kinds[schema.KindTLS] > 0
				})},
		},
	},
	{
		Name: "privilege", Method: "raw_tp/sys_exit",
		Observes: []string{"signals to processes outside of the run", "sockets of other families",
			"host name, swap, accounting, quotas, keys, performance events, watches, seccomp, prctl that changes " +
				"privileges, injection into terminals",
			"who is told of files by signals, and changes of the limits, the scheduling and the memory " +
				"of other processes",
			"changes of user and group", "capset", "ptrace", "mounts", "namespaces", "bpf", "memfd", "kernel modules",
			"io_uring"},
		Hooks: []HookID{HookPrivilege},
		BlindSpots: []BlindSpot{
			{"pointed_data",
				"the data that the pointer arguments of capset, ptrace and bpf refer to",
				exactly(func(r *Report) bool {
					return r.Kinds[schema.KindCapset]+r.Kinds[schema.KindPtrace]+r.Kinds[schema.KindBPF] > 0
				})},
			{"limit_signals",
				"signals that the kernel sends to a process outside of the run, after the run has ended, for a limit " +
					"that the run has given it; the change of the limit is seen",
				onlyIf(func(r *Report) bool { return r.Kinds[schema.KindPrivileged] > 0 })},
			{"terminal_signals",
				"signals that a terminal sends to processes outside of the run for what the run types into it", nil},
			{"observer_maps",
				"what a process that may use bpf() does to the observer's own maps",
				func(r *Report) *bool {
					if changed := slices.ContainsFunc(r.Reasons, func(why Reason) bool {
						return why.Code == CodeBPF
					}); changed || !r.MapsInDoubt {
						return new(changed)
					}
					return nil
				}},
			{"set_user_id",
				"a change of identity by executing a set-user-id file is seen as an execution only",
				onlyIf(func(r *Report) bool { return r.Kinds[schema.KindExec] > 0 })},
		},
	},
}

// CoverageNotify is what the notify tier watches, dimension by dimension. The
// caller must not change it.
func CoverageNotify() []Dimension { return coverageNotify }

const claimedSpot = "arguments were read before the kernel read them, and another thread or process that shares the " +
	"memory may have changed them; such events say arguments=claimed"

const attemptedSpot = "results of calls: such events say status=attempted, and the calls may have failed"

var always = exactly(func(r *Report) bool { return r.Received > 0 })

func claimable(kinds ...schema.KernelKind) func(*Report) *bool {
	return onlyIf(func(r *Report) bool {
		for _, k := range kinds {
			if r.Kinds[k] > 0 {
				return true
			}
		}
		return false
	})
}

var coverageNotify = []Dimension{
	{
		Name: "filesystem", Method: "seccomp user notification, before the call",
		Observes: []string{"attempts to open, create, rename, remove, link and truncate",
			"attempts to change attributes and times", "attempts to change directory and root"},
		Hooks: []HookID{HookOpen, HookRename, HookUnlink, HookLink, HookMkdir, HookTruncate, HookAttr, HookChdir},
		BlindSpots: []BlindSpot{
			{"claimed", claimedSpot, onlyIf(func(r *Report) bool { return r.Threads+r.Kinds[schema.KindOpen] > 0 })},
			{"attempted", attemptedSpot, always},
			{"links",
				"symbolic links in paths are not followed: a path is what the program asked for, in its " +
					"root and directory", claimable(schema.KindOpen, schema.KindRename, schema.KindUnlink,
					schema.KindLink, schema.KindSymlink, schema.KindMkdir)},
			{"unreadable",
				"arguments of processes that the observer may not read; such events are marked unreadable",
				exactly(func(r *Report) bool {
					return r.Unreadable > 0
				})},
			{"io_uring_unseen",
				"requests of io_uring", exactly(func(r *Report) bool { return r.Kinds[schema.KindIOUring] > 0 })},
			{"writes",
				"writes, and shared writable mappings", nil},
			{"reads",
				"reads, stat, access, readlink and directory listings are not recorded", nil},
			{"handed_files",
				"the opening of files that were opened before the run or received over a socket", nil},
			{"mount_namespace",
				"paths are those of the mount namespace that a process is in: what a container calls /etc " +
					"is not the host's", claimable(schema.KindNamespace, schema.KindMount)},
			{"file_ioctls",
				"ioctls that change a file, and file_setattr", nil},
			{"ipc",
				"POSIX message queues and System V shared memory", nil},
		},
	},
	{
		Name: "process", Method: "seccomp user notification, /proc and pidfds",
		Observes: []string{"executions with argv and environment names, once the process makes its next call",
			"executions that did not happen", "processes that make a call, or whose children do",
			"exit codes and signals"},
		Hooks: []HookID{HookExec, HookFork, HookExit, HookExecFailed},
		BlindSpots: []BlindSpot{
			{"compat_calls",
				"x32 calls, and the calls of 32-bit programs on arm64, are counted but not decoded",
				exactly(func(r *Report) bool { return r.Kinds[schema.KindCompatSyscall] > 0 })},
			{"killed_early",
				"processes that are killed before they make a call", nil},
			{"execution_killed",
				"an execution whose process is killed before its next call says status=attempted",
				claimable(schema.KindExec)},
			{"lost_parent",
				"the parent of a process whose parent was killed before the process made a call",
				claimable(schema.KindFork)},
			{"lost_status",
				"how a process ended, on Linux before 6.15, when it is waited for before the observer looks",
				claimable(schema.KindExit)},
			{"quiet_threads",
				"threads that make no call", nil},
			{"outside_help",
				"what processes outside do for the run when it asks them over a socket, as a container daemon does",
				claimable(schema.KindConnect, schema.KindSendto)},
			{"injected_code",
				"code brought in by ptrace or a shared mapping rather than exec", claimable(schema.KindPtrace)},
			{"own_argv",
				"a program that overwrites its own argv before its first call", nil},
			{"checks",
				"the checks of an outcome contract", nil},
		},
	},
	{
		Name: "network", Method: "seccomp user notification, before the call",
		Observes: []string{"attempts to connect, to bind and to listen", "attempts to send to an address",
			"unix sockets by path"},
		Hooks: []HookID{HookSocket},
		BlindSpots: []BlindSpot{
			{"claimed", claimedSpot, claimable(schema.KindConnect, schema.KindBind, schema.KindSendto)},
			{"attempted", attemptedSpot, claimable(schema.KindConnect, schema.KindBind, schema.KindSendto)},
			{"protocol",
				"the protocol of a socket", claimable(schema.KindConnect, schema.KindBind, schema.KindSendto)},
			{"accepted",
				"accepted connections, and bytes sent and received", onlyIf(func(r *Report) bool {
					return r.DescriptorsPassed ||
						r.Kinds[schema.KindListen]+r.Kinds[schema.KindConnect]+r.Kinds[schema.KindSendto] > 0
				})},
			{"listening_address",
				"the address of a listening socket that the run did not bind", claimable(schema.KindListen)},
			{"passed_descriptors",
				"descriptors that are passed over a unix socket to or from a process outside",
				claimable(schema.KindConnect, schema.KindSendto)},
			{"many_messages",
				"the addressees of one sendmmsg after its 64th message", claimable(schema.KindSendto)},
		},
	},
	{
		Name: "names", Method: "none",
		BlindSpots: []BlindSpot{{"names", "DNS and TLS server names", nil}},
		Observes:   []string{},
	},
	{
		Name: "privilege", Method: "seccomp user notification, before the call",
		Observes: []string{"attempts to change user and group, capset, ptrace, mounts, namespaces, bpf, memfd, " +
			"kernel modules, keys, seccomp, io_uring", "prctl that changes privileges or who may trace",
			"ioctl that types into a terminal or makes a tunnel", "sockets of other families"},
		Hooks: []HookID{HookPrivilege},
		BlindSpots: []BlindSpot{
			{"attempted", attemptedSpot,
				claimable(schema.KindSetID, schema.KindPtrace, schema.KindMount, schema.KindNamespace,
					schema.KindBPF)},
			{"outside_signals",
				"signals to processes outside of the run, and changes of their limits, scheduling and memory", nil},
			{"set_user_id",
				"a change of identity by executing a set-user-id file is seen as an execution only",
				claimable(schema.KindExec)},
		},
	},
}
