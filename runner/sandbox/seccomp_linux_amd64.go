package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// foreign are the numbers of calls that only this architecture has.
var foreign = map[string]uint32{"iopl": unix.SYS_IOPL, "ioperm": unix.SYS_IOPERM, "modify_ldt": unix.SYS_MODIFY_LDT,
	"uselib": unix.SYS_USELIB, "_sysctl": unix.SYS__SYSCTL, "create_module": unix.SYS_CREATE_MODULE}
