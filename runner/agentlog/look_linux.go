package agentlog

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// maxLook bounds one look, in bytes, so that who waits for one need not wait
// for an endless log.
const maxLook = 4 << 20

// look reads what is new, and tells whether it came to the end of the log.
func (f *Follower) look(final bool) bool {
	start := f.opt.Now()
	for range 8 { // files that replaced one another since
		if f.file < 0 && !f.open() {
			f.checked = start
			return true
		}
		if !f.read() {
			return f.split.stopped
		}
		if !f.replaced() {
			f.checked = start
			return true
		}
		// What came before the name was taken away is in by now.
		if !f.read() {
			return f.split.stopped
		}
		if f.offset > f.before {
			f.split.problem(CodeReplaced, 0, "another file has taken its place after %d lines", f.split.n)
		}
		f.drop()
	}
	return final // an agent that replaces it all the time gets no more
}

// open opens the log if it is there and a regular file. Nothing else is ever
// opened: that alone could have an effect on whoever is at its other end.
func (f *Follower) open() bool {
	path, err := unix.Openat(f.dir, f.base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return false
	}
	if err != nil {
		f.refuse(CodeUnread, "cannot be opened: "+err.Error())
		return false
	}
	defer unix.Close(path)
	if err := unix.Fstat(path, &f.st); err != nil {
		f.refuse(CodeUnread, "cannot be examined: "+err.Error())
		return false
	}
	if f.st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.refuse(CodeNotFile, "it is "+kindOf(f.st.Mode)+", not a regular file, and was not read")
		return false
	}
	fd, err := unix.Open(procFD(path), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		f.refuse(CodeUnread, "cannot be opened: "+err.Error())
		return false
	}
	f.file, f.offset, f.before = fd, 0, 0
	f.watch(fd, unix.IN_MODIFY)
	if f.split.n > 0 {
		f.opt.Restart()
	}
	f.split.restart()
	return true
}

// refuse notes once what stands in the place of the log.
func (f *Follower) refuse(code, message string) {
	if message != f.refused {
		f.refused = message
		f.split.problem(code, 0, "%s", message)
	}
}

func kindOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFLNK:
		return "a symbolic link"
	case unix.S_IFIFO:
		return "a pipe"
	case unix.S_IFDIR:
		return "a directory"
	case unix.S_IFSOCK:
		return "a socket"
	}
	return "a device"
}

// read takes what is there, and tells whether that was all.
func (f *Follower) read() bool {
	if f.split.stopped {
		return true
	}
	if err := unix.Fstat(f.file, &f.st); err == nil && f.st.Size < f.offset {
		if f.offset > f.before {
			f.split.problem(CodeTruncated, 0, "it was cut from %d to %d bytes after %d lines had been read", f.offset,
				f.st.Size, f.split.n)
		}
		f.offset, f.before = 0, 0
		f.split.restart()
		f.opt.Restart()
	}
	for left := maxLook; left > 0; {
		n, err := unix.Pread(f.file, f.buf, f.offset)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			f.refuse(CodeUnread, fmt.Sprintf("cannot be read: %v", &fs.PathError{Op: "read", Path: f.base, Err: err}))
			return true
		}
		if n == 0 {
			return true
		}
		f.split.add(f.buf[:n], Arrival{After: f.checked, At: f.opt.Now(), Log: f.opt.Name})
		f.offset += int64(n)
		left -= n
		if f.split.stopped {
			return true
		}
	}
	return false
}

// replaced tells whether the log's name belongs to another file by now. A name
// that is gone does not count: the file may still be written to.
func (f *Follower) replaced() bool {
	var st unix.Stat_t
	if err := unix.Fstatat(f.dir, f.base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false
	}
	return st.Ino != f.st.Ino || st.Dev != f.st.Dev
}

func (f *Follower) drop() {
	if f.file >= 0 {
		unix.Close(f.file) // and with it its watch, once the file is gone
		f.file = -1
	}
}
