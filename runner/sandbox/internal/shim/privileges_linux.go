package shim

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// privileges gives up, on this thread, all that the command is not to have.
func (s *shim) privileges() error {
	if s.plan.KeepPrivileges {
		return nil
	}
	if err := s.do(Privileges, "drop the capability bounding set", dropBounding); err != nil {
		return err
	}
	if err := s.user(); err != nil {
		return err
	}
	s.look()
	err := s.do(Privileges, "capset", func() error {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		return unix.Capset(&header, &none[0])
	})
	if err != nil {
		return err
	}
	return s.do(Privileges, "prctl PR_SET_NO_NEW_PRIVS", func() error {
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	})
}

// dropBounding empties the bounding set, so that not even root's exec regains a
// capability. A process without CAP_SETPCAP has none to regain: see
// no_new_privs.
func dropBounding() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_SETPCAP) == 0 {
		if data[0].Permitted|data[1].Permitted != 0 {
			return fmt.Errorf("capabilities without CAP_SETPCAP: %w", unix.EPERM)
		}
		return nil
	}
	for capability := uintptr(0); ; capability++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && capability > 0 {
			return nil // the kernel has no more
		}
		if err != nil {
			return err
		}
	}
}

// user becomes the plan's user. It is no part of a layer that may be missing: a
// command that was to be somebody else's never runs as us.
func (s *shim) user() error {
	if s.plan.UID == nil {
		return nil
	}
	degrade := s.plan.Degrade
	s.plan.Degrade = false
	defer func() { s.plan.Degrade = degrade }()
	s.handOver()
	return s.do(Privileges, "change the user", func() error {
		groups := make([]uint32, 0, len(s.plan.Groups)+1)
		for _, g := range s.plan.Groups {
			groups = append(groups, uint32(g))
		}
		var p unsafe.Pointer
		if len(groups) > 0 {
			p = unsafe.Pointer(&groups[0])
		}
		gid, uid := uintptr(*s.plan.GID), uintptr(*s.plan.UID)
		// Of this thread alone, unlike the functions of package syscall.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(p), 0); errno != 0 {
			return fmt.Errorf("setgroups: %w", errno)
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
			return fmt.Errorf("setresgid: %w", errno)
		}
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
			return fmt.Errorf("setresuid: %w", errno)
		}
		return nil
	})
}

// handOver gives the plan's user the pipes, and a terminal of the command's own,
// that its streams are: opening /dev/stderr opens them anew. Where that fails
// the streams work all the same.
func (s *shim) handOver() {
	for fd := range 3 {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if st.Mode&unix.S_IFMT == unix.S_IFIFO || err == nil && s.plan.OwnTerminal {
			_ = unix.Fchown(fd, *s.plan.UID, -1)
		}
	}
}

// look finds out, as the command's user, what of the plan's needs it cannot use.
// access(2) asks for the real user, who is the command's by now.
func (s *shim) look() {
	for _, n := range s.plan.Needs {
		var errno unix.Errno
		if err := unix.Access(n.Path, n.Mode); errors.As(err, &errno) {
			s.missing = append(s.missing, Unusable{n.Path, int(errno)})
		}
	}
}

// filter loads the seccomp program into this thread.
func (s *shim) filter() error {
	if len(s.plan.Filter) == 0 {
		return nil
	}
	return s.do(Seccomp, "seccomp SECCOMP_SET_MODE_FILTER", func() error {
		instructions := make([]unix.SockFilter, len(s.plan.Filter))
		for i, in := range s.plan.Filter {
			instructions[i] = unix.SockFilter{Code: in.Code, Jt: in.Jt, Jf: in.Jf, K: in.K}
		}
		program := unix.SockFprog{Len: uint16(len(instructions)), Filter: &instructions[0]}
		load := func() unix.Errno {
			_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
			return errno
		}
		errno := load()
		if errno == unix.EACCES { // neither CAP_SYS_ADMIN nor no_new_privs
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				return err
			}
			errno = load()
		}
		if errno != 0 {
			return errno
		}
		return nil
	})
}
