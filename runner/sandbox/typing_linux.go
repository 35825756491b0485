//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox/internal/shim"
)

// typingFilter denies TIOCSTI and TIOCLINUX, and nothing else. A command on the user's own terminal could type there
// what the shell runs next. The kernel has other numbers of ioctl(2) for programs of another instruction set.
func typingFilter() ([]shim.Instruction, error) {
	const request = offArg0 + argSize
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: request, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.TIOCSTI, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: ioctlLinux, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch, SkipFalse: 4},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_IOCTL, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: x32Ioctl, SkipTrue: 4},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: ioctl32, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
		deny(unix.EPERM),
	}
	return assemble(p)
}

// Other numbers of ioctl(2): on x32 (arch/x86/entry/syscalls/syscall_64.tbl), and for 32-bit programs on x86 and Arm.
const (
	x32Ioctl = x32Bit | 514
	ioctl32  = 54
)

// CanType reports whether a command of this process can type into a terminal that it shares with this process
// (drivers/tty/tty_io.c, tiocsti). Since Linux 6.2, this may be denied without CAP_SYS_ADMIN.
func CanType() bool {
	set, err := os.ReadFile("/proc/sys/dev/tty/legacy_tiocsti")
	return mayAdminister() || err != nil || !bytes.Equal(bytes.TrimSpace(set), []byte("0"))
}
