package shim

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Restrict puts the calling thread, and what it executes or starts, under a
// Landlock ruleset: the caller has locked it to its goroutine. The error names
// what failed; nothing is restricted then.
func Restrict(r *Ruleset) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_NO_NEW_PRIVS: %w", err)
	}
	s := &shim{plan: Plan{Landlock: r}}
	err := s.rules()
	if err == nil {
		err = s.restrict()
	}
	if err != nil {
		return errors.New(s.reports[Landlock].Reason)
	}
	return nil
}

// rules makes the Landlock ruleset, of paths that the command's user may be
// unable to open.
func (s *shim) rules() error {
	r := s.plan.Landlock
	if r == nil {
		return nil
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: r.FS, Handled_access_net: r.Net, Scoped: r.Scoped}
	ruleset := -1
	err := s.do(Landlock, "landlock_create_ruleset", func() error {
		fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
		if errno != 0 {
			return errno
		}
		ruleset = int(fd)
		return nil
	})
	if err != nil || ruleset < 0 {
		return err
	}
	s.ruleset = ruleset // closed on exec
	add := func(kind int, rule unsafe.Pointer) error {
		if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), uintptr(kind), uintptr(rule), 0, 0, 0); errno != 0 {
			return errno
		}
		return nil
	}
	// A rule allows: the command can do less without one, never more. Which one
	// is missing would be told by nobody, though.
	err = s.do(Landlock, "landlock_add_rule", func() error {
		for _, p := range r.Paths {
			if err := addPath(add, p); err != nil {
				return err
			}
		}
		for _, p := range r.Ports {
			rule := struct{ access, port uint64 }{p.Access, uint64(p.Port)}
			if err := add(landlockRuleNetPort, unsafe.Pointer(&rule)); err != nil {
				return fmt.Errorf("port %d: %w", p.Port, err)
			}
		}
		return nil
	})
	return err
}

// restrict puts this thread, and so what it starts, under the ruleset.
func (s *shim) restrict() error {
	if s.ruleset == 0 {
		return nil
	}
	return s.do(Landlock, "landlock_restrict_self", func() error {
		defer unix.Close(s.ruleset)
		var flags uintptr
		if s.plan.Landlock.Log {
			flags = unix.LANDLOCK_RESTRICT_SELF_LOG_NEW_EXEC_ON
		}
		if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(s.ruleset), flags, 0); errno != 0 {
			return errno
		}
		return nil
	})
}

const landlockRuleNetPort = 2 // LANDLOCK_RULE_NET_PORT

// fileAccess are the rights that a file, rather than a directory, can have.
const fileAccess = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
	unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

func addPath(add func(int, unsafe.Pointer) error, p PathRule) error {
	fd, err := unix.Open(p.Path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		if p.Optional && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES)) {
			return nil
		}
		return fmt.Errorf("%s: %w", p.Path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", p.Path, err)
	}
	access := p.Access
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= fileAccess
	}
	if access == 0 {
		return nil
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	err = add(unix.LANDLOCK_RULE_PATH_BENEATH, unsafe.Pointer(&rule))
	if p.Optional && errors.Is(err, unix.EBADFD) {
		return nil // a pipe or a socket, which no rule is about
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.Path, err)
	}
	return nil
}
