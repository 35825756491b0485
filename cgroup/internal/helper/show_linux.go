package helper

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// shownAs begins the name of the socket by which others can find a guard. The guard's
// process id follows, and then a random part, so that nobody can take the name first.
const shownAs = "assay-run-guard-"

// show binds a socket to a name in the abstract namespace of unix(7), until this process
// ends. Nobody can connect to the socket. So /proc/net/unix lists the guards, among a few
// other sockets. A lock would do too, but a read of /proc/locks takes the kernel 10 ms,
// and nobody on the host can lock a file meanwhile (locks_start in fs/locks.c).
func show(pid int) (fd int, err error) {
	if fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, err
	}
	var own [8]byte
	_, _ = unix.Getrandom(own[:], 0)
	return fd, unix.Bind(fd, &unix.SockaddrUnix{Name: "@" + shownAs + strconv.Itoa(pid) + "-" + hex.EncodeToString(own[:])})
}

// shown returns the processes in this network namespace that have such a socket.
func shown() ([]int, error) {
	b, err := procs.ReadFile("/proc/self/net/unix")
	if err != nil {
		return nil, err
	}
	var pids []int
	for line := range bytes.Lines(b) {
		_, name, ok := bytes.Cut(line, []byte(" @"+shownAs))
		number, _, _ := bytes.Cut(name, []byte("-"))
		if pid, err := strconv.Atoi(string(number)); ok && err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}
