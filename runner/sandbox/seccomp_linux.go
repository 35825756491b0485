//go:build amd64 || arm64

package sandbox

import (
	"slices"

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

// numbers are those of the calls of callClasses that fail whatever their arguments are. See also foreign.
var numbers = map[string]uint32{
	"process_vm_readv":  unix.SYS_PROCESS_VM_READV,
	"process_vm_writev": unix.SYS_PROCESS_VM_WRITEV,
	"perf_event_open":   unix.SYS_PERF_EVENT_OPEN,
	"kcmp":              unix.SYS_KCMP,
	"pidfd_getfd":       unix.SYS_PIDFD_GETFD,
	"add_key":           unix.SYS_ADD_KEY,
	"keyctl":            unix.SYS_KEYCTL,
	"request_key":       unix.SYS_REQUEST_KEY,
	"kexec_load":        unix.SYS_KEXEC_LOAD,
	"kexec_file_load":   unix.SYS_KEXEC_FILE_LOAD,
	"init_module":       unix.SYS_INIT_MODULE,
	"finit_module":      unix.SYS_FINIT_MODULE,
	"delete_module":     unix.SYS_DELETE_MODULE,
	"bpf":               unix.SYS_BPF,
	"io_uring_setup":    unix.SYS_IO_URING_SETUP,
	"io_uring_enter":    unix.SYS_IO_URING_ENTER,
	"io_uring_register": unix.SYS_IO_URING_REGISTER,
	"userfaultfd":       unix.SYS_USERFAULTFD,
	"setns":             unix.SYS_SETNS,
	"mount":             unix.SYS_MOUNT,
	"umount2":           unix.SYS_UMOUNT2,
	"pivot_root":        unix.SYS_PIVOT_ROOT,
	"chroot":            unix.SYS_CHROOT,
	"open_tree":         unix.SYS_OPEN_TREE,
	"open_tree_attr":    unix.SYS_OPEN_TREE_ATTR,
	"move_mount":        unix.SYS_MOVE_MOUNT,
	"fsopen":            unix.SYS_FSOPEN,
	"fsconfig":          unix.SYS_FSCONFIG,
	"fsmount":           unix.SYS_FSMOUNT,
	"fspick":            unix.SYS_FSPICK,
	"mount_setattr":     unix.SYS_MOUNT_SETATTR,
	"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT,
	"reboot":            unix.SYS_REBOOT,
	"swapon":            unix.SYS_SWAPON,
	"swapoff":           unix.SYS_SWAPOFF,
	"settimeofday":      unix.SYS_SETTIMEOFDAY,
	"clock_settime":     unix.SYS_CLOCK_SETTIME,
	"clock_adjtime":     unix.SYS_CLOCK_ADJTIME,
	"adjtimex":          unix.SYS_ADJTIMEX,
	"sethostname":       unix.SYS_SETHOSTNAME,
	"setdomainname":     unix.SYS_SETDOMAINNAME,
	"syslog":            unix.SYS_SYSLOG,
	"acct":              unix.SYS_ACCT,
	"quotactl":          unix.SYS_QUOTACTL,
	"vhangup":           unix.SYS_VHANGUP,
	"nfsservctl":        unix.SYS_NFSSERVCTL,
	"fanotify_init":     unix.SYS_FANOTIFY_INIT,
	"lookup_dcookie":    unix.SYS_LOOKUP_DCOOKIE,
}

// tracing are the calls of the class processes that name a process by its number.
var tracing = []string{"ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd"}

// conditions are the arguments with which the other calls of callClasses fail.
func conditions(inet bool) map[string]condition {
	return map[string]condition{
		"clone":   {unix.SYS_CLONE, [][]bpf.Instruction{bitsSet(0, unix.CLONE_NEWUSER)}},
		"unshare": {unix.SYS_UNSHARE, [][]bpf.Instruction{bitsSet(0, unix.CLONE_NEWUSER)}},
		"ioctl":   {unix.SYS_IOCTL, [][]bpf.Instruction{equals(1, unix.TIOCSTI), equals(1, ioctlLinux)}},
		"ptrace":  {unix.SYS_PTRACE, [][]bpf.Instruction{equals(0, unix.PTRACE_ATTACH), equals(0, ptraceSeize)}},
		"socket":  {unix.SYS_SOCKET, socket(inet)},
	}
}

// condition is a call and the checks of its arguments.
type condition struct {
	number uint32
	checks [][]bpf.Instruction
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
// everything that it does not name. Without inet, only unix and netlink sockets can be made. In a PID namespace of
// the run's own, its processes may trace each other.
func filter(inet, namespace bool) ([]shim.Instruction, error) {
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
	some := conditions(inet)
	for _, class := range callClasses {
		for _, name := range class.calls {
			if namespace && slices.Contains(tracing, name) {
				continue
			}
			if c, ok := some[name]; ok {
				p = append(p, on(c.number, c.checks...)...)
				continue
			}
			nr, ok := numbers[name]
			if !ok {
				nr, ok = foreign[name]
			}
			if ok { // otherwise this architecture does not have it
				p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: 1}, deny(unix.EPERM))
			}
		}
	}
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
