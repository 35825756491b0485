package kernel

import (
	"fmt"
	"strings"
	"sync"

	"github.com/assay-run/assay-run/schema"
)

// Handlers, in the order of enum prog in bpf/record.h.
const (
	progNone = iota
	progOpen
	progPath
	progFD
	progCwd
	progWrite
	progArgs
	progSocket
	progMmap
	progClone
	progPacked
	progAIO
	progURing
	progPrctl
	progIoctl
	progFamily
	progBPF
	progReceive
)

// noArg is NOARG of bpf/record.h.
const noArg = 7

// sysRow is how one system call is read. spec names the arguments that matter
// by a letter and their index: F file descriptor the call is about; d directory
// descriptor and p path, D and P the second pair; n another string; f flags, m
// mode, k neither, but, as f and m, part of what tells repeats apart. For socket
// calls p is a sockaddr, followed by its length, and P a msghdr. Behind l is no
// index but when a symbolic link that p ends in is followed: 1 always, 2 unless f
// has AT_SYMLINK_NOFOLLOW, 3 only if f has AT_SYMLINK_FOLLOW, 4 unless f has UMOUNT_NOFOLLOW.
type sysRow struct {
	name string
	prog uint8
	kind schema.KernelKind
	hook HookID
	spec string
}

// sysRows is every system call that is observed, by name. Those that an
// architecture lacks are left out there.
var sysRows = []sysRow{
	{"open", progOpen, schema.KindOpen, HookOpen, "p0f1m2"},
	{"openat", progOpen, schema.KindOpen, HookOpen, "d0p1f2m3"},
	{"openat2", progOpen, schema.KindOpen, HookOpen, "d0p1f2m3k4"}, // struct open_how is spread over 2 to 4
	{"creat", progOpen, schema.KindOpen, HookOpen, "p0m1"},
	{"open_by_handle_at", progOpen, schema.KindOpen, HookOpen, "f2"},

	{"execve", progPath, schema.KindExecFailed, HookExecFailed, "p0"},
	{"execveat", progPath, schema.KindExecFailed, HookExecFailed, "d0p1f4"},

	{"rename", progPath, schema.KindRename, HookRename, "p0P1"},
	{"renameat", progPath, schema.KindRename, HookRename, "d0p1D2P3"},
	{"renameat2", progPath, schema.KindRename, HookRename, "d0p1D2P3f4"},
	{"unlink", progPath, schema.KindUnlink, HookUnlink, "p0"},
	{"unlinkat", progPath, schema.KindUnlink, HookUnlink, "d0p1f2"}, // schema.KindRmdir with AT_REMOVEDIR
	{"rmdir", progPath, schema.KindRmdir, HookUnlink, "p0"},
	{"link", progPath, schema.KindLink, HookLink, "p0P1"},
	{"linkat", progPath, schema.KindLink, HookLink, "d0p1D2P3f4l3"},
	{"symlink", progPath, schema.KindSymlink, HookLink, "n0p1"},
	{"symlinkat", progPath, schema.KindSymlink, HookLink, "n0d1p2"},
	{"mkdir", progPath, schema.KindMkdir, HookMkdir, "p0m1"},
	{"mkdirat", progPath, schema.KindMkdir, HookMkdir, "d0p1m2"},
	{"mknod", progPath, schema.KindMknod, HookMkdir, "p0m1k2"},
	{"mknodat", progPath, schema.KindMknod, HookMkdir, "d0p1m2k3"},
	{"truncate", progPath, schema.KindTruncate, HookTruncate, "p0k1l1"},
	{"ftruncate", progFD, schema.KindTruncate, HookTruncate, "F0k1"},
	{"truncate64", progPath, schema.KindTruncate, HookTruncate, "p0k1k2l1"}, // 32-bit only: the length in halves
	{"ftruncate64", progFD, schema.KindTruncate, HookTruncate, "F0k1k2"},
	{"fallocate", progFD, schema.KindTruncate, HookTruncate, "F0k1k2k3"},

	{"chmod", progPath, schema.KindChmod, HookAttr, "p0m1l1"},
	{"fchmod", progFD, schema.KindChmod, HookAttr, "F0m1"},
	{"fchmodat", progPath, schema.KindChmod, HookAttr, "d0p1m2l1"},
	{"fchmodat2", progPath, schema.KindChmod, HookAttr, "d0p1m2f3l2"},
	{"chown", progPath, schema.KindChown, HookAttr, "p0k1k2l1"},
	{"lchown", progPath, schema.KindChown, HookAttr, "p0k1k2"},
	{"fchown", progFD, schema.KindChown, HookAttr, "F0k1k2"},
	{"fchownat", progPath, schema.KindChown, HookAttr, "d0p1k2k3f4l2"},
	{"setxattr", progPath, schema.KindSetxattr, HookAttr, "p0n1f4l1"},
	{"lsetxattr", progPath, schema.KindSetxattr, HookAttr, "p0n1f4"},
	{"fsetxattr", progFD, schema.KindSetxattr, HookAttr, "F0n1f4"},
	{"setxattrat", progPath, schema.KindSetxattr, HookAttr, "d0p1f2n3l2"},
	{"removexattr", progPath, schema.KindRemovexattr, HookAttr, "p0n1l1"},
	{"lremovexattr", progPath, schema.KindRemovexattr, HookAttr, "p0n1"},
	{"fremovexattr", progFD, schema.KindRemovexattr, HookAttr, "F0n1"},
	{"removexattrat", progPath, schema.KindRemovexattr, HookAttr, "d0p1f2n3l2"},

	{"utimensat", progPath, schema.KindUtime, HookAttr, "d0p1f3l2"},
	{"utimes", progPath, schema.KindUtime, HookAttr, "p0l1"},
	{"utime", progPath, schema.KindUtime, HookAttr, "p0l1"},
	{"futimesat", progPath, schema.KindUtime, HookAttr, "d0p1l1"},

	{"chdir", progCwd, schema.KindChdir, HookChdir, "p0"},
	{"fchdir", progCwd, schema.KindChdir, HookChdir, "F0"},
	{"chroot", progCwd, schema.KindChroot, HookChdir, "p0"},

	{"write", progWrite, schema.KindWrite, HookWrite, "F0"},
	{"pwrite64", progWrite, schema.KindWrite, HookWrite, "F0"},
	{"writev", progWrite, schema.KindWrite, HookWrite, "F0"},
	{"pwritev", progWrite, schema.KindWrite, HookWrite, "F0"},
	{"pwritev2", progWrite, schema.KindWrite, HookWrite, "F0"},
	{"sendfile", progWrite, schema.KindWrite, HookWrite, "F0"},
	{"copy_file_range", progWrite, schema.KindWrite, HookWrite, "F2"},
	{"splice", progWrite, schema.KindWrite, HookWrite, "F2"},
	{"io_submit", progAIO, schema.KindWrite, HookWrite, ""},
	{"mmap", progMmap, schema.KindMmapShared, HookMmap, "F4m2f3"},

	{"connect", progSocket, schema.KindConnect, HookSocket, "F0p1"},
	{"bind", progSocket, schema.KindBind, HookSocket, "F0p1"},
	{"listen", progSocket, schema.KindListen, HookSocket, "F0"},
	{"accept", progSocket, schema.KindAccept, HookSocket, "F0"},
	{"accept4", progSocket, schema.KindAccept, HookSocket, "F0"},
	{"sendto", progSocket, schema.KindSendto, HookSocket, "F0f3p4"},
	{"sendmsg", progSocket, schema.KindSendto, HookSocket, "F0P1f2"},
	{"recvmsg", progReceive, schema.KindSendto, HookSocket, "P1"}, // only for the descriptors
	{"recvmmsg", progReceive, schema.KindSendto, HookSocket, ""},  // that come with a message
	{"sendmmsg", progSocket, schema.KindSendto, HookSocket, "F0f3"},

	// Of 32-bit programs only: the arguments are in user memory.
	{"socketcall", progPacked, schema.KindCompatSyscall, HookSocket, "k0"},
	{"old_mmap", progPacked, schema.KindCompatSyscall, HookMmap, ""},

	{"setuid", progArgs, schema.KindSetID, HookPrivilege, "k0"},
	{"setgid", progArgs, schema.KindSetID, HookPrivilege, "k0"},
	{"setreuid", progArgs, schema.KindSetID, HookPrivilege, "k0k1"},
	{"setregid", progArgs, schema.KindSetID, HookPrivilege, "k0k1"},
	{"setresuid", progArgs, schema.KindSetID, HookPrivilege, "k0k1k2"},
	{"setresgid", progArgs, schema.KindSetID, HookPrivilege, "k0k1k2"},
	{"setfsuid", progArgs, schema.KindSetID, HookPrivilege, "k0"},
	{"setfsgid", progArgs, schema.KindSetID, HookPrivilege, "k0"},
	{"setgroups", progArgs, schema.KindSetID, HookPrivilege, "k0"},
	{"capset", progArgs, schema.KindCapset, HookPrivilege, ""},
	{"ptrace", progArgs, schema.KindPtrace, HookPrivilege, "k0k1"},
	{"process_vm_readv", progArgs, schema.KindPtrace, HookPrivilege, "k0"},
	{"process_vm_writev", progArgs, schema.KindPtrace, HookPrivilege, "k0"},
	{"pidfd_getfd", progArgs, schema.KindPtrace, HookPrivilege, "k0k1"},
	{"mount", progPath, schema.KindMount, HookPrivilege, "n0p1f3l1"},
	{"umount", progPath, schema.KindMount, HookPrivilege, "p0l1"}, // 32-bit only
	{"umount2", progPath, schema.KindMount, HookPrivilege, "p0f1l4"},
	{"pivot_root", progPath, schema.KindMount, HookPrivilege, "p0P1"},
	{"open_tree", progPath, schema.KindMount, HookPrivilege, "d0p1f2l2"},
	{"open_tree_attr", progPath, schema.KindMount, HookPrivilege, "d0p1f2l2"},
	{"move_mount", progPath, schema.KindMount, HookPrivilege, "d0p1D2P3f4"},
	{"mount_setattr", progPath, schema.KindMount, HookPrivilege, "d0p1f2l2"},
	{"fspick", progPath, schema.KindMount, HookPrivilege, "d0p1f2"},
	{"fsopen", progPath, schema.KindMount, HookPrivilege, "n0f1"},
	{"fsconfig", progArgs, schema.KindMount, HookPrivilege, "k0k1"},
	{"fsmount", progArgs, schema.KindMount, HookPrivilege, "k0f1"},
	{"sethostname", progArgs, schema.KindPrivileged, HookPrivilege, "k1"},
	{"setdomainname", progArgs, schema.KindPrivileged, HookPrivilege, "k1"},
	{"swapon", progPath, schema.KindPrivileged, HookPrivilege, "p0f1l1"},
	{"swapoff", progPath, schema.KindPrivileged, HookPrivilege, "p0l1"},
	{"acct", progPath, schema.KindPrivileged, HookPrivilege, "p0l1"},
	{"quotactl", progPath, schema.KindPrivileged, HookPrivilege, "k0p1k2"},
	{"quotactl_fd", progFD, schema.KindPrivileged, HookPrivilege, "F0k1k2"},
	{"perf_event_open", progArgs, schema.KindPrivileged, HookPrivilege, "k1k2k3f4"},
	{"add_key", progPath, schema.KindPrivileged, HookPrivilege, "n0k4"},
	{"request_key", progPath, schema.KindPrivileged, HookPrivilege, "n0k3"},
	{"keyctl", progArgs, schema.KindPrivileged, HookPrivilege, "k0k1"},
	{"inotify_add_watch", progPath, schema.KindPrivileged, HookPrivilege, "k0p1k2"},
	{"fanotify_init", progArgs, schema.KindPrivileged, HookPrivilege, "f0k1"},
	{"fanotify_mark", progPath, schema.KindPrivileged, HookPrivilege, "k0f1k2d3p4"},
	{"seccomp", progArgs, schema.KindPrivileged, HookPrivilege, "k0f1"},
	{"prctl", progPrctl, schema.KindPrivileged, HookPrivilege, "k0k1"},
	{"ioctl", progIoctl, schema.KindPrivileged, HookPrivilege, "F0k1"},
	{"reboot", progArgs, schema.KindPrivileged, HookPrivilege, "k2"},
	{"kexec_load", progArgs, schema.KindPrivileged, HookPrivilege, "k0"},
	{"settimeofday", progArgs, schema.KindPrivileged, HookPrivilege, ""},
	{"clock_settime", progArgs, schema.KindPrivileged, HookPrivilege, "k0"},
	{"socket", progFamily, schema.KindSocket, HookSocket, "k0k1k2"},
	{"clone", progClone, schema.KindNamespace, HookPrivilege, "f0"},
	{"clone3", progClone, schema.KindNamespace, HookPrivilege, "f0"},
	{"unshare", progArgs, schema.KindNamespace, HookPrivilege, "f0"},
	{"setns", progArgs, schema.KindNamespace, HookPrivilege, "k0f1"},
	{"bpf", progBPF, schema.KindBPF, HookPrivilege, "k0"},
	{"memfd_create", progPath, schema.KindMemfd, HookPrivilege, "n0f1"},
	{"init_module", progArgs, schema.KindModule, HookPrivilege, "k1"},
	{"finit_module", progFD, schema.KindModule, HookPrivilege, "F0f2"},
	{"delete_module", progPath, schema.KindModule, HookPrivilege, "n0f1"},
	{"io_uring_enter", progURing, schema.KindIOUring, HookPrivilege, ""}, // only for what it leaves behind
	{"io_uring_setup", progArgs, schema.KindIOUring, HookPrivilege, "k0"},
}

// sysCall is one entry of the table the programs read (struct syscall), and
// where the decoder finds flags and mode.
type sysCall struct {
	name                                 string
	prog, kind, hook                     uint8
	fd, dfd, path, dfd2, path2, str, key uint8
	flagsArg, modeArg, follow            uint8
	numbers                              uint8 // bit mask of arguments that are no addresses
}

// sysTable maps the numbers of one instruction set to calls.
type sysTable [512]*sysCall

// sysTables returns the native table and that of 32-bit programs, which is
// empty where none is decoded.
var sysTables = sync.OnceValues(func() (*sysTable, *sysTable) {
	byName := make(map[string]*sysCall, len(sysRows))
	for _, r := range sysRows {
		byName[r.name] = r.parse()
	}
	fill := func(nos []sysNo) *sysTable {
		t := new(sysTable)
		for _, n := range nos {
			if c := byName[n.name]; c != nil && int(n.nr) < len(t) {
				t[n.nr] = c
			}
		}
		return t
	}
	return fill(sysNos), fill(sysNos32)
})

// sysNo is the number of a system call on one instruction set.
type sysNo struct {
	name string
	nr   uint16
}

func (r sysRow) parse() *sysCall {
	c := &sysCall{
		name: r.name, prog: r.prog, kind: uint8(r.kind), hook: uint8(r.hook),
		fd: noArg, dfd: noArg, path: noArg, dfd2: noArg, path2: noArg, str: noArg, flagsArg: noArg, modeArg: noArg,
	}
	for i := 0; i+1 < len(r.spec); i += 2 {
		n := r.spec[i+1] - '0'
		if !strings.ContainsRune("pPnl", rune(r.spec[i])) {
			c.numbers |= 1 << n
		}
		switch r.spec[i] {
		case 'F':
			c.fd = n
		case 'd':
			c.dfd = n
		case 'p':
			c.path = n
		case 'D':
			c.dfd2 = n
		case 'P':
			c.path2 = n
		case 'n':
			c.str = n
		case 'f':
			c.flagsArg = n
			c.key |= 1 << n
		case 'm':
			c.modeArg = n
			c.key |= 1 << n
		case 'k':
			c.key |= 1 << n
		case 'l':
			c.follow = n
		default:
			panic(fmt.Sprintf("kernel: system call %s: bad spec %q", r.name, r.spec))
		}
	}
	return c
}

func (t *sysTable) calls() map[uint32]*Call {
	calls := make(map[uint32]*Call)
	for nr, row := range t {
		if row == nil {
			continue
		}
		switch row.prog {
		case progOpen, progPath, progFD, progCwd, progArgs, progSocket, progPacked, progClone, progFamily, progBPF, progPrctl, progIoctl:
		default:
			continue
		}
		switch row.name {
		case "old_mmap", "accept", "accept4":
			continue
		}
		calls[uint32(nr)] = &Call{
			Name: row.name, Kind: schema.KernelKind(row.kind), Hook: HookID(row.hook),
			FD: row.fd, Dirfd: row.dfd, Path: row.path, Dirfd2: row.dfd2, Path2: row.path2, Text: row.str, row: row,
		}
	}
	return calls
}

// NoArg stands for an argument that a Call does not have.
const NoArg = noArg

// Call is a system call as an observer reads its arguments. The fields after
// Hook are indexes of arguments, or NoArg.
type Call struct {
	Name string
	Kind schema.KernelKind
	Hook HookID
	// FD is the descriptor that the call is about. Dirfd and Path, Dirfd2 and Path2
	// are a directory and a name relative to it. Text is another string. Of calls
	// about sockets, Path is an address with its length in the next argument, and
	// Path2 a msghdr.
	FD, Dirfd, Path, Dirfd2, Path2, Text uint8

	row *sysCall
}

// Arguments sets the fields of e that are numbers in the call's arguments. compat
// is a call of a 32-bit program.
func (c *Call) Arguments(e *Event, args [6]uint64, compat bool) { e.arguments(c.row, args, compat) }

// Calls are the system calls that tell what they do before they are made, by
// number: those of this machine's own instruction set, and those of its 32-bit
// programs. Left out are calls whose result matters most, such as writes.
func Calls() (native, compat map[uint32]*Call) {
	n, c := sysTables()
	return n.calls(), c.calls()
}
