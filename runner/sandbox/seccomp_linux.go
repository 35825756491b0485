//go:build amd64 || arm64

package sandbox

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
)

// Offsets in struct seccomp_data of linux/seccomp.h, little endian.
const (
	offNumber = 0
	offArch   = 4
	offArg0   = 16
	argSize   = 8
)

// denied are system calls that always fail with EPERM. Each could bypass another layer, or attack the kernel.
var denied = []int{
	// Access to other processes. PTRACE_TRACEME is handled separately.
	unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PERF_EVENT_OPEN, unix.SYS_KCMP,
	unix.SYS_PIDFD_GETFD,
	// Kernel keyrings, which outlive the run and belong to the user.
	unix.SYS_ADD_KEY, unix.SYS_KEYCTL, unix.SYS_REQUEST_KEY,
	// New kernels and new kernel code.
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_BPF,
	// They open files and connect sockets where no other filter applies.
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	// A common tool of exploits.
	unix.SYS_USERFAULTFD,
	// Namespaces and mounts.
	unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE,
	unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_OPEN_BY_HANDLE_AT,
	// The machine.
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
	unix.SYS_CLOCK_ADJTIME,
	unix.SYS_ADJTIMEX, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_QUOTACTL,
	unix.SYS_VHANGUP, unix.SYS_NFSSERVCTL, unix.SYS_FANOTIFY_INIT, unix.SYS_LOOKUP_DCOOKIE,
}

// families are the address families that sockets may have.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

const (
	protocolMPTCP = 262    // IPPROTO_MPTCP: TCP rules for ports do not apply to it
	ptraceSeize   = 0x4206 // PTRACE_SEIZE
	x32Bit        = 0x40000000
	ioctlLinux    = 0x541C // TIOCLINUX, which can paste as TIOCSTI can type
)

// filter assembles the seccomp program. It denies all system calls of a foreign instruction set, and allows
// everything that it does not name. Without inet, only unix and netlink sockets can be made.
func filter(inet bool) ([]shim.Instruction, error) {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		deny(unix.ENOSYS),
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		// x32 has the same arch value (arch/x86/include/uapi/asm/unistd.h).
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: x32Bit, SkipFalse: 1},
		deny(unix.ENOSYS),
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1},
		deny(unix.ENOSYS), // its flags are in memory; C libraries fall back to clone
	}
	for _, n := range append(append([]int{}, denied...), foreign...) {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(n), SkipTrue: 1}, deny(unix.EPERM))
	}
	p = append(p, on(unix.SYS_CLONE, bitsSet(0, unix.CLONE_NEWUSER))...)
	p = append(p, on(unix.SYS_UNSHARE, bitsSet(0, unix.CLONE_NEWUSER))...)
	p = append(p, on(unix.SYS_IOCTL, equals(1, unix.TIOCSTI), equals(1, ioctlLinux))...)
	p = append(p, on(unix.SYS_PTRACE, equals(0, unix.PTRACE_ATTACH), equals(0, ptraceSeize))...)
	p = append(p, on(unix.SYS_SOCKET, socket(inet)...)...)
	return assemble(append(p, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
}

func assemble(p []bpf.Instruction) ([]shim.Instruction, error) {
	raw, err := bpf.Assemble(p)
	if err != nil {
		return nil, err
	}
	out := make([]shim.Instruction, len(raw))
	for i, in := range raw {
		out[i] = shim.Instruction{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return out, nil
}

func deny(errno unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// on runs checks for one system call, and then reloads the call's number.
func on(number uint32, checks ...[]bpf.Instruction) []bpf.Instruction {
	var body []bpf.Instruction
	for _, c := range checks {
		body = append(body, c...)
	}
	body = append(body, bpf.LoadAbsolute{Off: offNumber, Size: 4})
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: uint8(len(body))}},
		body...)
}

// arg loads the low half of an argument: all of an int.
func arg(i uint32) bpf.Instruction {
	return bpf.LoadAbsolute{Off: offArg0 + i*argSize, Size: 4}
}

func bitsSet(i, bits uint32) []bpf.Instruction {
	return []bpf.Instruction{arg(i), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: bits, SkipFalse: 1}, deny(unix.EPERM)}
}

func equals(i, value uint32) []bpf.Instruction {
	return []bpf.Instruction{arg(i), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: value, SkipTrue: 1}, deny(unix.EPERM)}
}

// socket allows some families, but no raw sockets and no MPTCP.
func socket(inet bool) [][]bpf.Instruction {
	family := []bpf.Instruction{arg(0)}
	allowed := families
	if !inet {
		allowed = []uint32{unix.AF_UNIX, unix.AF_NETLINK}
	}
	for i, f := range allowed {
		family = append(family, bpf.JumpIf{Cond: bpf.JumpEqual, Val: f, SkipTrue: uint8(len(allowed) - i)})
	}
	family = append(family, deny(unix.EAFNOSUPPORT))
	// Netlink sockets are always raw, so only internet sockets are checked.
	const kind = 0xf // SOCK_TYPE_MASK
	raw := []bpf.Instruction{
		arg(0),
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_NETLINK, SkipTrue: 4},
		arg(1), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: kind},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SOCK_RAW, SkipTrue: 1},
		deny(unix.EPERM),
	}
	return [][]bpf.Instruction{family, raw, equals(2, protocolMPTCP)}
}
