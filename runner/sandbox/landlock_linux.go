package sandbox

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Groups of rights of linux/landlock.h.
const (
	accessRead  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_EXECUTE
	accessStore = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	accessMake = unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_REFER
	accessAll = accessRead | accessStore | accessMake
	accessTCP = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	scopeAll  = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
)

// bestABI is the first version of Landlock with all rights that are used here. Rights of later versions are not used.
const bestABI = 6

// LandlockABI returns the running kernel's version of Landlock, or why there is none.
func LandlockABI() (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// handled are the rights of a version (landlock(7), "VERSIONS").
func handled(abi int) (files, network, scoped uint64) {
	files = accessAll
	if abi < 2 {
		files &^= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi < 3 {
		files &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 {
		network = accessTCP
	}
	if abi < 5 {
		files &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 6 {
		scoped = scopeAll
	}
	return files, network, scoped
}

// lacking describes what an older version cannot restrict.
func lacking(abi int) string {
	var what []string
	for _, l := range []struct {
		since int
		what  string
	}{{2, "renames across directories"}, {3, "truncation"}, {4, "TCP ports"}, {5, "ioctl on devices"},
		{6, "abstract sockets and signals"}} {
		if abi < l.since {
			what = append(what, l.what)
		}
	}
	return strings.Join(what, ", ")
}
