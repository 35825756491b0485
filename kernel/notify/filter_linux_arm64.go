package notify

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	auditArch  = unix.AUDIT_ARCH_AARCH64
	compatArch = 0 // no table: 32-bit calls are counted, but not decoded
	exitGroup  = unix.SYS_EXIT_GROUP
	exitGroup2 = 0
)

var foreign []bpf.Instruction
