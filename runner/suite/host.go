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

// kernelRelease is "Linux" and the kernel's release, as of uname -sr; empty if it is unknown.
func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return "Linux " + unix.ByteSliceToString(u.Release[:])
}

// freeBytes is how many bytes the file system of dir has free for this user; a huge number if that is unknown.
func freeBytes(dir string) uint64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 1 << 62
	}
	return s.Bavail * uint64(s.Bsize)
}

// killRecorder kills every assay-run that runs the given spec file. The guard of assay-run then ends the agent.
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
		if runs(dir) { // it still is that process: its number was not reused before PidfdOpen
			if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				all = errors.Join(all, err)
			}
		}
		unix.Close(fd)
	}
	return all
}
