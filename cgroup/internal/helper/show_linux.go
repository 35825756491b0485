package helper

import (
	"bytes"
	"encoding/hex"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// shownAs begins the name of the socket by which others can find a guard. The guard's
// process id follows, and then a random part, so that nobody can take the name first.
const shownAs = "assay-run-guard-"

// shownSocket makes the socket by which others find a guard. The guard holds it. If it is nil, others find the guard
// only by looking at all processes.
func shownSocket() *os.File {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "socket")
}

// show binds the socket to a name in the abstract namespace of unix(7), until the guard
// ends. Nobody can connect to the socket. So /proc/net/unix lists the guards, among a few
// other sockets. A lock would do too, but a read of /proc/locks takes the kernel 10 ms,
// and nobody on the host can lock a file meanwhile (locks_start in fs/locks.c).
func show(socket *os.File, pid int) error {
	var own [8]byte
	_, _ = unix.Getrandom(own[:], 0)
	return unix.Bind(int(socket.Fd()),
		&unix.SockaddrUnix{Name: "@" + shownAs + strconv.Itoa(pid) + "-" + hex.EncodeToString(own[:])})
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
