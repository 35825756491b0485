package kernel

import (
	"sync"

	"golang.org/x/sys/unix"
)

// anonymousDevice returns the number of the file system of files that have no name anywhere (anon_inodefs),
// as the kernel writes a device, 0 if it is not known. An eventfd is one of them.
var anonymousDevice = sync.OnceValue(func() uint32 {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0
	}
	return unix.Major(st.Dev)<<20 | unix.Minor(st.Dev)
})
