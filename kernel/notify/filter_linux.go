//go:build amd64 || arm64

package notify

import (
	"maps"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

// Offsets in struct seccomp_data of linux/seccomp.h, little endian.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
	argSize   = 8
)

// x32Bit marks the number of an x32 call. Its arch is the same as a 64-bit call's
// (arch/x86/include/uapi/asm/unistd.h).
const x32Bit = 0x40000000

// Flags of clone(2) that make namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// often are the calls that programs make most. The filter tests for them first.
var often = []string{"openat", "open", "unlink", "unlinkat", "mkdir", "rename", "chdir", "connect", "execve"}

var notified = bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF}

// filter assembles the seccomp program. It notifies of every x32 call, and of every call
// of an instruction set without a table, so that they can be counted.
func filter() ([]unix.SockFilter, error) {
	native, compat := calls()
	own := append([]bpf.Instruction{bpf.LoadAbsolute{Off: offNumber, Size: 4}}, foreign...)
	own = append(own, selected(native)...)
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipTrue: 1},
		bpf.Jump{Skip: uint32(len(own))},
	}
	p = append(p, own...)
	if compatArch != 0 {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: compatArch, SkipTrue: 1}, notified,
			bpf.LoadAbsolute{Off: offNumber, Size: 4})
		p = append(p, selected(compat)...)
	} else {
		p = append(p, notified)
	}
	raw, err := bpf.Assemble(p)
	if err != nil {
		return nil, err
	}
	out := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		out[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return out, nil
}

// selected notifies of these calls and allows all others. It expects the call's number to
// be loaded.
func selected(calls map[uint32]*kernel.Call) (p []bpf.Instruction) {
	rank := func(nr uint32) int {
		if i := slices.Index(often, calls[nr].Name); i >= 0 {
			return i
		}
		return len(often) + int(nr)
	}
	numbers := slices.SortedFunc(maps.Keys(calls), func(a, b uint32) int { return rank(a) - rank(b) })
	for _, nr := range numbers {
		body := condition(calls[nr].Name)
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: uint8(len(body))})
		p = append(p, body...)
	}
	return append(p, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
}

// condition decides about a call, by its arguments if they matter.
func condition(name string) []bpf.Instruction {
	allowed := bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	switch name {
	case "sendto": // with an address
		return []bpf.Instruction{
			half(4, 0), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 3},
			half(4, 1), bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
			allowed, notified,
		}
	case "clone":
		return []bpf.Instruction{half(0, 0), bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: newNamespaces, SkipTrue: 1},
			allowed, notified}
	case "prctl":
		return among(0, privileging)
	case "ioctl":
		return among(1, injecting)
	case "socket": // raw sockets, and sockets of other families
		const kind = 0xf // SOCK_TYPE_MASK
		return []bpf.Instruction{
			half(0, 0),
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_UNIX, SkipTrue: 6},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AF_INET, SkipTrue: 1},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.AF_INET6, SkipTrue: 3},
			half(1, 0), bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: kind},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SOCK_RAW, SkipTrue: 1},
			notified, allowed,
		}
	}
	return []bpf.Instruction{notified}
}

// privileging are the options of prctl(2) that change privileges, dumpability or who
// may trace, as in bpf/syscalls.h.
var privileging = []uint32{
	unix.PR_SET_DUMPABLE, unix.PR_SET_KEEPCAPS, unix.PR_SET_SECCOMP, unix.PR_CAPBSET_DROP, unix.PR_SET_SECUREBITS,
	unix.PR_SET_MM,
	unix.PR_SET_CHILD_SUBREAPER, unix.PR_SET_NO_NEW_PRIVS, unix.PR_CAP_AMBIENT, unix.PR_SET_PTRACER,
}

// injecting are the requests of ioctl(2) that type into a terminal, or make a tunnel.
var injecting = []uint32{unix.TIOCSTI, tioclinux, unix.TUNSETIFF}

const tioclinux = 0x541c

// among notifies of a call whose argument is one of values, and allows the others.
func among(arg uint32, values []uint32) []bpf.Instruction {
	p := []bpf.Instruction{half(arg, 0)}
	for i, v := range values {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - i)})
	}
	return append(p, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}, notified)
}

// half loads the low or the high half of an argument.
func half(arg, high uint32) bpf.Instruction {
	return bpf.LoadAbsolute{Off: offArgs + arg*argSize + high*4, Size: 4}
}
