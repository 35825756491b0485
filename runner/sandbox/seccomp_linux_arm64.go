package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// foreign are the numbers of calls that only this architecture has.
var foreign map[string]uint32
