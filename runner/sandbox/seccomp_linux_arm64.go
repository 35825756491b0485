package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// foreign are the system calls to deny that only this architecture has.
var foreign []int
