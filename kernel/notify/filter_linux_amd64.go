package notify

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	auditArch  = unix.AUDIT_ARCH_X86_64
	compatArch = unix.AUDIT_ARCH_I386
	exitGroup  = unix.SYS_EXIT_GROUP
	exitGroup2 = 252 // of 32-bit programs
)

// foreign notifies of x32 calls.
var foreign = []bpf.Instruction{
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: x32Bit, SkipFalse: 1}, notified,
}
