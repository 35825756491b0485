package agentlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Options say what to follow. Path, Now, Line and Restart must be set.
type Options struct {
	// Path is the log's absolute path. Its directory must exist when Follow is
	// called and is held open: a directory that takes its name later is not
	// looked at.
	Path string
	// Name is the log in an Arrival.
	Name string
	// Now is the runner's clock.
	Now func() int64
	// Line takes each line but blank ones, from one goroutine at a time: its
	// number in the file, counted from 1, and when it was written. The bytes
	// are reused. An error makes it a bad line.
	Line func(line []byte, n int, at Arrival) error
	// Old has lines that are there before the command starts taken in as well,
	// where Line accepts them: they tell by themselves which run they are of.
	// Other lines from before are passed over.
	Old bool
	// Precise asks for short intervals between looks, which cost about 2 % of a
	// CPU: whether it matters now when exactly a line is written. Nil: never.
	Precise func() bool
	// Restart is told before lines of another file come, or of the same after
	// it was cut.
	Restart func()
}

// The longest time between two looks at a log. It bounds how far apart the
// moments of an Arrival are.
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
	note int // inotify, or -1: then only the interval wakes it
	done chan struct{}

	mu      sync.Mutex
	split   splitter
	account Account
	file    int // or -1
	st      unix.Stat_t
	offset  int64
	before  int64 // how much of the file was there before the command
	checked int64 // everything written before is known
	refused string
	closed  bool
	buf     []byte
}

// Follow starts following. The error is of the directory alone: all that is
// wrong with the log itself becomes part of the Account.
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
		f.note = -1 // all instances of the user are in use
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

// watch makes changes of what fd refers to wake the goroutine.
func (f *Follower) watch(fd int, mask uint32) {
	if f.note >= 0 {
		_, _ = unix.InotifyAddWatch(f.note, procFD(fd), mask)
	}
}

func procFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Before is how many bytes the log had before the command started.
func (f *Follower) Before() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.before
}

// Known makes sure that everything written to the log before t is known, and
// tells whether that is so: it is not when the log is faster than it can be
// read, or after Close.
func (f *Follower) Known(t int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.checked < t && !f.closed {
		f.look(false)
	}
	return f.checked >= t
}

// Close reads the rest and ends. Call it when nobody writes any more: what is
// written later is not read.
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
	<-f.done // it never waits for mu once closed is to be set: see run
	unix.Close(f.dir)
	unix.Close(f.wake)
	if f.note >= 0 {
		unix.Close(f.note)
	}
	return f.account
}

// run looks whenever something happened, and every interval.
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
		if f.mu.TryLock() { // else somebody is looking just now
			if !f.closed {
				f.look(false)
			}
			f.mu.Unlock()
		}
	}
}
