//go:build amd64 || arm64

package notify

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openProc opens /proc/PID. The descriptor never refers to a later process with that pid.
func openProc(pid uint32) (int, error) {
	return unix.Open("/proc/"+strconv.FormatUint(uint64(pid), 10), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// readAt reads the file name in the directory dir, as far as it fits into buf. The file
// is in /proc, where a read returns about a page while there is more to come. So a read
// that returns much less is the last.
func readAt(dir int, name string, buf []byte) []byte {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || m <= 0 {
			break
		}
		n += m
		if m < pageSize/2 {
			break
		}
	}
	return buf[:n]
}

// hasSocket reports whether a process has a socket open. It returns true if it cannot know.
func hasSocket(dir int) bool {
	fd, err := unix.Openat(dir, "fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	f := os.NewFile(uintptr(fd), "fd")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return true
	}
	var buf [16]byte
	for _, name := range names {
		n, err := unix.Readlinkat(fd, name, buf[:])
		if err != nil || strings.HasPrefix(string(buf[:n]), "socket:") {
			return true
		}
	}
	return false
}

// status reads the process of a task, and that process's parent (proc_pid_status(5)).
func status(dir int, buf []byte) (pid, ppid uint32, ok bool) {
	b := readAt(dir, "status", buf)
	number := func(key string) uint32 {
		_, rest, found := bytes.Cut(b, []byte(key))
		if !found {
			return 0
		}
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		n, _ := strconv.ParseUint(string(bytes.TrimSpace(line)), 10, 32)
		return uint32(n)
	}
	return number("\nTgid:"), number("\nPPid:"), len(b) > 0
}

// stat returns the fields of /proc/PID/stat after the name: [0] is field 3.
func stat(dir int, buf []byte) [][]byte {
	b := readAt(dir, "stat", buf)
	return bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
}

// startTime is field 22 of proc_pid_stat(5), in nanoseconds.
func startTime(dir int, buf []byte) uint64 {
	const tick = uint64(time.Second / 100) // USER_HZ
	if f := stat(dir, buf); len(f) > 19 {
		n, _ := strconv.ParseUint(string(f[19]), 10, 64)
		return n * tick
	}
	return 0
}

// pidfdInfo is the first version of struct pidfd_info in linux/pidfd.h. The request
// PIDFD_GET_INFO of ioctl(2) fills it, since Linux 6.13.
type pidfdInfo struct {
	mask, cgroup    uint64
	pid, tgid, ppid uint32
	ids             [8]uint32
	exit            int32
}

const (
	pidfdGetInfo    = 0xc040ff0b // _IOWR(0xFF, 11, 64 bytes)
	pidfdInfoPID    = 1 << 0
	pidfdInfoCgroup = 1 << 2
	pidfdInfoExit   = 1 << 3 // since Linux 6.15
)

func info(pidfd int, mask uint64) (i pidfdInfo, ok bool) {
	i.mask = mask
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(pidfd), pidfdGetInfo, uintptr(unsafe.Pointer(&i)))
	return i, errno == 0 && i.mask&mask == mask
}

// cgroupOf is the id of the process's cgroup2 directory, or 0.
func cgroupOf(pidfd int) uint64 {
	if i, ok := info(pidfd, pidfdInfoCgroup); ok {
		return i.cgroup
	}
	return 0
}

// exitStatus is the wait status of a process that ended. Until its parent has waited for
// it, /proc has the status; after that the pidfd has, since Linux 6.15.
func exitStatus(p *process, buf []byte) (status uint32, known bool) {
	if i, ok := info(p.pidfd, pidfdInfoExit); ok {
		return uint32(i.exit), true
	}
	if f := stat(p.dir, buf); len(f) > 49 && (f[0][0] == 'Z' || f[0][0] == 'X') {
		n, err := strconv.ParseUint(string(f[49]), 10, 32)
		if err == nil && (n != 0 || p.exiting && p.code == 0) { // else the kernel may have hidden it
			return uint32(n), true
		}
	}
	if i, ok := info(p.pidfd, pidfdInfoExit); ok { // the parent waited for it meanwhile
		return uint32(i.exit), true
	}
	return 0, false
}
