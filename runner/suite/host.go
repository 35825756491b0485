//go:build linux

package suite

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// kernelRelease is what uname -r says.
func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return "Linux " + unix.ByteSliceToString(u.Release[:])
}

// freeBytes is what the file system of dir has free for us; everything, if that is not known.
func freeBytes(dir string) uint64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 1 << 62
	}
	return s.Bavail * uint64(s.Bsize)
}

// killRecorder kills the assay-run of our user that runs the spec in the file. Its guard ends what it ran.
func killRecorder(spec string) error {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	runs := func(dir string) bool {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		return err == nil && bytes.Contains(line, []byte("\x00run\x00--spec\x00"+spec+"\x00"))
	}
	var all error
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || !runs(dir) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it has ended
		}
		if runs(dir) { // still: the number was not given to another one before the descriptor was opened
			if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				all = errors.Join(all, err)
			}
		}
		unix.Close(fd)
	}
	return all
}
