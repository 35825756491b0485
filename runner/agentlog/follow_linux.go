package agentlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options configure Follow. Path, Now, Line and Restart must be set.
type Options struct {
	// Path is the log's absolute path. Its directory must exist when Follow is called, and is held open: a later
	// directory of the same name is ignored.
	Path string
	// Name is the log's name in an Arrival.
	Name string
	// Now is the runner's clock.
	Now func() int64
	// Line gets each line that is not blank, from one goroutine at a time: the line's number in the file, counted
	// from 1, and when it was written. The bytes are reused. An error makes it a bad line.
	Line func(line []byte, n int, at Arrival) error
	// Old imports lines that were written before the command started, if Line accepts them: each names its run.
	// Otherwise such lines are skipped.
	Old bool
	// Precise reports whether it matters now when exactly a line is written. It then polls more often, which costs
	// about 2 % of a CPU. Nil means never.
	Precise func() bool
	// Restart is called before lines of another file, or of the same file after it was cut.
	Restart func()
}

// The maximum times between two polls of a log, and so between the two times of an Arrival.
const (
	interval        = 10 * time.Millisecond
	preciseInterval = 2 * time.Millisecond
)

// Follower reads a log while it is written. Its methods are safe for
// concurrent use.
type Follower struct {
	opt  Options
	base string
	dir  int // the directory, O_PATH
	wake int // an eventfd that ends the goroutine
	note int // inotify, or -1: then only the interval wakes the goroutine
	done chan struct{}

	mu      sync.Mutex
	split   splitter
	account Account
	file    int // or -1
	st      unix.Stat_t
	offset  int64
	before  int64 // bytes of the file from before the command
	checked int64 // everything written before this time is known
	refused string
	closed  bool
	buf     []byte
}

// Follow starts to follow a log. The error is about the directory only: faults of the log itself become part of the
// Account.
func Follow(opt Options) (*Follower, error) {
	dir, base, err := splitPath(opt.Path)
	if err != nil {
		return nil, err
	}
	f := &Follower{opt: opt, base: base, dir: -1, wake: -1, note: -1, file: -1, done: make(chan struct{}),
		buf: make([]byte, 64<<10)}
	f.split = splitter{path: opt.Path, take: opt.Line, account: &f.account}
	if f.dir, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, &os.PathError{Op: "open directory", Path: dir, Err: err}
	}
	if f.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(f.dir)
		return nil, fmt.Errorf("follow %s: %w", opt.Path, err)
	}
	if f.note, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		f.note = -1 // the user has no free inotify instance
	} else {
		f.watch(f.dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR)
	}
	f.checked = opt.Now()
	f.mu.Lock()
	f.split.old, f.split.takeOld = true, opt.Old
	for !f.look(true) {
	}
	if n := f.account.Lines + f.split.passed; n > 0 {
		f.split.problem(CodeStale, 0,
			"it had %d lines before the command started, of which %d are of this run and were imported", n,
			f.account.Lines)
	}
	f.split.old, f.before = false, f.offset
	f.mu.Unlock()
	go f.run()
	return f, nil
}

// watch makes changes of fd's file wake the goroutine.
func (f *Follower) watch(fd int, mask uint32) {
	if f.note >= 0 {
		_, _ = unix.InotifyAddWatch(f.note, procFD(fd), mask)
	}
}

func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Before is the size of the log before the command started.
func (f *Follower) Before() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.before
}

// Known makes sure that everything written to the log before t is known. It reports false if the log grows faster
// than it can be read, or after Close.
func (f *Follower) Known(t int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.checked < t && !f.closed {
		f.look(false)
	}
	return f.checked >= t
}

// Close reads the rest and ends. Call it when no more lines will be written; later ones are not read.
func (f *Follower) Close() Account {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.account
	}
	for !f.look(true) {
	}
	f.split.end(Arrival{After: f.checked, At: f.opt.Now()})
	switch {
	case f.account.Bytes == 0 && f.refused == "" && f.file < 0:
		f.split.problem(CodeMissing, 0, "the command has not written it")
	case f.account.Lines == 0 && f.refused == "":
		f.split.problem(CodeEmpty, 0, "it is empty")
	}
	f.closed = true
	f.drop()
	_, _ = unix.Write(f.wake, binary.NativeEndian.AppendUint64(nil, 1))
	<-f.done // the goroutine never waits for mu once closed will be set: see run
	unix.Close(f.dir)
	unix.Close(f.wake)
	if f.note >= 0 {
		unix.Close(f.note)
	}
	return f.account
}

// run polls after every change, and at every interval.
func (f *Follower) run() {
	defer close(f.done)
	fds := []unix.PollFd{{Fd: int32(f.wake), Events: unix.POLLIN}, {Fd: int32(f.note), Events: unix.POLLIN}}
	var junk [4096]byte
	for {
		wait := interval
		if f.opt.Precise != nil && f.opt.Precise() {
			wait = preciseInterval
		}
		n, err := unix.Poll(fds, int(wait/time.Millisecond))
		if fds[0].Revents != 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if n > 0 && fds[1].Revents != 0 {
			_, _ = unix.Read(f.note, junk[:])
		}
		if f.mu.TryLock() { // otherwise another goroutine is polling
			if !f.closed {
				f.look(false)
			}
			f.mu.Unlock()
		}
	}
}

// maxLook limits one poll, in bytes, so that nobody has to wait for an endless log.
const maxLook = 4 << 20

// look reads what is new, and reports whether it reached the end of the log.
func (f *Follower) look(final bool) bool {
	start := f.opt.Now()
	for range 8 { // files that have replaced one another since
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
		// Read the old file again: everything that was written to it is there by now.
		if !f.read() {
			return f.split.stopped
		}
		if f.offset > f.before {
			f.split.problem(CodeReplaced, 0, "another file has taken its place after %d lines", f.split.n)
		}
		f.drop()
	}
	return final // an agent that replaces it all the time gets no more polls
}

// open opens the log if it exists and is a regular file, and reports whether it is open. It opens nothing else:
// opening a FIFO, for example, affects the process at its other end.
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

// refuse records, once, that something else has the log's name.
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

// read reads the complete lines, and reports whether it reached the end.
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

// replaced reports whether another file has the log's name now. If the name is gone, the file may still be written,
// so that does not count.
func (f *Follower) replaced() bool {
	var st unix.Stat_t
	if err := unix.Fstatat(f.dir, f.base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false
	}
	return st.Ino != f.st.Ino || st.Dev != f.st.Dev
}

func (f *Follower) drop() {
	if f.file >= 0 {
		unix.Close(f.file) // this also removes its watch, once the file is gone
		f.file = -1
	}
}
