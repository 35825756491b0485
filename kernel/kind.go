package kernel

// Kind is what an [Event] is about.
type Kind uint16

// Kinds of event. The numbers are shared with bpf/record.h.
const (
	KindExec       Kind = 1 + iota // a program image was committed
	KindExecFailed                 // execve or execveat returned an error
	KindFork                       // a process or thread was made
	KindExit                       // the last thread of a process went
	KindOpen                       // open openat openat2 creat open_by_handle_at
	KindWrite                      // bytes written to a regular file or a block device (aggregated)
	KindMmap                       // MAP_SHARED and PROT_WRITE mapping of a file
	KindRename                     // Path to Path2
	KindUnlink
	KindRmdir
	KindLink    // Path is the existing name, Path2 the new one
	KindSymlink // Path is the new name, Path2 the target as written
	KindMkdir
	KindMknod
	KindTruncate // Bytes is the new length
	KindChmod
	KindChown
	KindSetxattr // Name is the attribute's name
	KindRemovexattr
	KindChdir
	KindChroot
	KindConnect
	KindBind
	KindListen
	KindAccept        // Remote is the peer
	KindSend          // datagram to Remote
	KindDNS           // Payload is one DNS message as on the wire, UDP or TCP
	KindTLSHello      // Payload is the start of a TLS ClientHello record
	KindTraffic       // Bytes sent to and BytesIn received from Remote, or all who connected to Local
	KindSetID         // setuid family; Args as passed
	KindCapset        // Args as passed
	KindPtrace        // Args: request, pid
	KindMount         // mount, umount2, pivot_root and the new mount API; see Syscall
	KindNamespace     // unshare, setns; Flags is CLONE_*
	KindBPF           // Args[0] is the command
	KindMemfd         // Path is the name passed
	KindModule        // init_module, finit_module, delete_module
	KindIOUring       // io_uring_setup; Args[0] is the number of entries
	KindIOUringOp     // a submitted request that no other kind tells of; Args[0] is the opcode
	KindLeftCgroup    // a task was moved out of the session cgroup, or forked to begin outside
	KindJoinedCgroup  // a task from outside was moved in
	KindCompat        // a 32-bit or x32 system call that is not decoded; Syscall is its number
	KindUtime         // the times of a file were set
	KindConnectResult // how the opening of a TCP connection to Remote ended, maybe in the background; NoResult: given up
	KindPrivileged    // sethostname, perf_event_open, keyctl, seccomp, prctl, ioctl and the like; Args as passed
	KindNewSocket     // a socket of another family than unix and inet, or a raw one; Args: family, type, protocol
	KindSignal        // to a process outside of the session; Args: its pid, the signal
	KindMovedV1       // a task was moved in a v1 hierarchy, and stays in the session; Args: the hierarchy's id, the cgroup's; Name: its path
	KindKernelExec    // the kernel itself started a program, outside of every session; Name: as it was told to
	kindExecArgs      // part of an exec's argv; joined by the decoder
	kindExecEnv       // an exec's environment keys; joined by the decoder
	kindRepeat        // a flushed coalescing slot; joined by the decoder
	kindRequestDone   // the end of an io_uring request; joined by the decoder
	kindMax
)
