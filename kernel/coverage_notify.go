package kernel

// CoverageNotify is what the notify tier watches, dimension by dimension. The
// caller must not change it.
func CoverageNotify() []Dimension { return coverageNotify }

const claimedSpot = "arguments were read before the kernel read them, and another thread or process that shares the memory may have changed them; such events say arguments=claimed"

const attemptedSpot = "results of calls: such events say status=attempted, and the calls may have failed"

var always = exactly(func(r *Report) bool { return r.Received > 0 })

func claimable(kinds ...Kind) func(*Report) *bool {
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
		Observes: []string{"attempts to open, create, rename, remove, link and truncate", "attempts to change attributes and times", "attempts to change directory and root"},
		Hooks:    []HookID{HookOpen, HookRename, HookUnlink, HookLink, HookMkdir, HookTruncate, HookAttr, HookChdir},
		BlindSpots: []BlindSpot{
			{claimedSpot, onlyIf(func(r *Report) bool { return r.Threads+r.Kinds[KindOpen] > 0 })},
			{attemptedSpot, always},
			{"symbolic links in paths are not followed: a path is what the program asked for, in its root and directory", claimable(KindOpen, KindRename, KindUnlink, KindLink, KindSymlink, KindMkdir)},
			{"arguments of processes that the observer may not read; such events are marked unreadable", exactly(func(r *Report) bool { return r.Unreadable > 0 })},
			{"requests of io_uring", exactly(func(r *Report) bool { return r.Kinds[KindIOUring] > 0 })},
			{"writes, and shared writable mappings", nil},
			{"reads, stat, access, readlink and directory listings are not recorded", nil},
			{"the opening of files that were opened before the run or received over a socket", nil},
			{"paths are those of the mount namespace that a process is in: what a container calls /etc is not the host's", claimable(KindNamespace, KindMount)},
			{"ioctls that change a file, and file_setattr", nil},
			{"POSIX message queues and System V shared memory", nil},
		},
	},
	{
		Name: "process", Method: "seccomp user notification, /proc and pidfds",
		Observes: []string{"executions with argv and environment names, once the process makes its next call", "executions that did not happen", "processes that make a call, or whose children do", "exit codes and signals"},
		Hooks:    []HookID{HookExec, HookFork, HookExit, HookExecFailed},
		BlindSpots: []BlindSpot{
			{"x32 calls, and the calls of 32-bit programs on arm64, are counted but not decoded",
				exactly(func(r *Report) bool { return r.Kinds[KindCompat] > 0 })},
			{"processes that are killed before they make a call", nil},
			{"an execution whose process is killed before its next call says status=attempted", claimable(KindExec)},
			{"the parent of a process whose parent was killed before the process made a call", claimable(KindFork)},
			{"how a process ended, on Linux before 6.15, when it is waited for before the observer looks", claimable(KindExit)},
			{"threads that make no call", nil},
			{"what processes outside do for the run when it asks them over a socket, as a container daemon does", claimable(KindConnect, KindSend)},
			{"code brought in by ptrace or a shared mapping rather than exec", claimable(KindPtrace)},
			{"a program that overwrites its own argv before its first call", nil},
			{"the checks of an outcome contract", nil},
		},
	},
	{
		Name: "network", Method: "seccomp user notification, before the call",
		Observes: []string{"attempts to connect, to bind and to listen", "attempts to send to an address", "unix sockets by path"},
		Hooks:    []HookID{HookSocket},
		BlindSpots: []BlindSpot{
			{claimedSpot, claimable(KindConnect, KindBind, KindSend)},
			{attemptedSpot, claimable(KindConnect, KindBind, KindSend)},
			{"the protocol of a socket", claimable(KindConnect, KindBind, KindSend)},
			{"accepted connections, and bytes sent and received", onlyIf(func(r *Report) bool {
				return r.DescriptorsPassed || r.Kinds[KindListen]+r.Kinds[KindConnect]+r.Kinds[KindSend] > 0
			})},
			{"the address of a listening socket that the run did not bind", claimable(KindListen)},
			{"peers of sockets other than unix, inet and vsock (packet, netlink, raw), and traffic through a tunnel; the creation of the socket is seen",
				exactly(func(r *Report) bool { return r.Carriers > 0 })},
			{"descriptors that are passed over a unix socket to or from a process outside", claimable(KindConnect, KindSend)},
			{"the addressees of one sendmmsg after its 64th message", claimable(KindSend)},
		},
	},
	{
		Name: "names", Method: "none",
		BlindSpots: []BlindSpot{{"DNS and TLS server names", nil}},
		Observes:   []string{},
	},
	{
		Name: "privilege", Method: "seccomp user notification, before the call",
		Observes: []string{"attempts to change user and group, capset, ptrace, mounts, namespaces, bpf, memfd, kernel modules, keys, seccomp, io_uring", "prctl that changes privileges or who may trace", "ioctl that types into a terminal or makes a tunnel", "sockets of other families"},
		Hooks:    []HookID{HookPrivilege},
		BlindSpots: []BlindSpot{
			{attemptedSpot, claimable(KindSetID, KindPtrace, KindMount, KindNamespace, KindBPF)},
			{"signals to processes outside of the run", nil},
			{"a change of identity by executing a set-user-id file is seen as an execution only", claimable(KindExec)},
		},
	},
}
