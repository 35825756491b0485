package contract

import (
	"os"

	"golang.org/x/sys/unix"
)

// isFixed reports whether a file or directory is immutable or append-only, so that not even root can change or remove
// it: see ioctl_iflags(2).
func (s *snapshot) isFixed(p string) bool {
	f, err := s.root.OpenFile(p, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	var st unix.Statx_t
	const fixed = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND
	return unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_TYPE, &st) == nil && st.Attributes&fixed != 0
}

// Flags of linux/fs.h that isFixed checks.
const immutable, appendOnly = 0x10, 0x20

// unfix clears these flags of a path, which needs CAP_LINUX_IMMUTABLE.
func (s *snapshot) unfix(p string) error {
	f, err := s.root.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return os.NewSyscallError("FS_IOC_GETFLAGS", err)
	}
	flags &^= immutable | appendOnly
	return os.NewSyscallError("FS_IOC_SETFLAGS", unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags))
}
