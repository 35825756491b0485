package stdio

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// terminal is the pseudo-terminal between the child and our terminal.
//
// If stdin and stdout are both terminals (full), the child leads its own session on the slave, our terminal is raw,
// and we pass on the keys. Otherwise the slave only replaces our stdout or stderr: the child stays in our session and
// process group, where the kernel's own job control and /dev/tty work as usual, and another program in the pipeline
// keeps the keyboard. A child that then makes the slave non-canonical (`echo x | assay-run -- vim -`) wants keys from
// it: while it does, we pass on keys, and our terminal has the slave's settings except for the echo (lazy).
type terminal struct {
	s          *Streams
	full, lazy bool
	master     *os.File
	slave      *os.File // open in this process until finish, so that the master does not hang up earlier
	mfd        int
	ours       []*os.File // our terminal, opened again
	out        *outlet
	in         int // for keys and settings; negative without a keyboard
	wake       int // eventfd: the keyboard goroutine must check again
	cast       cast

	showing sync.Mutex // held while the screen goroutine has bytes that are not shown yet

	mu        sync.Mutex
	saved     unix.Termios // our terminal's own settings, while raw is true
	applied   unix.Termios // the settings that we set instead
	raw       bool
	suspended bool
	begun     bool // the recording has begun
}

// reopen opens a terminal again, for a separate file description on which O_NONBLOCK affects nobody else. If that is
// not allowed (the terminal belongs to another user, after su), it returns f: then a stopped terminal (Ctrl-S) can
// block Finish, since a write to it cannot be interrupted.
func (t *terminal) reopen(f *os.File) *os.File {
	fd, err := rawFD(f)
	if err != nil {
		return f
	}
	n, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return f
	}
	own := os.NewFile(uintptr(n), f.Name())
	t.ours = append(t.ours, own)
	return own
}

func (t *terminal) start() error {
	ws, err := unix.IoctlGetWinsize(t.mfd, unix.TIOCGWINSZ)
	if err != nil {
		return fmt.Errorf("terminal size: %w", err)
	}
	t.mu.Lock()
	t.cast.begin(int(ws.Col), int(ws.Row), os.Getenv("TERM"), time.Now())
	t.begun = true
	t.adjust()
	t.mu.Unlock()
	if t.in >= 0 {
		t.s.copying.Go(func() { defer t.onPanic(); t.keyboard() })
	}
	t.s.copying.Go(func() { defer t.onPanic(); t.screen() })
	return nil
}

// onPanic restores the user's terminal when one of our goroutines panics.
func (t *terminal) onPanic() {
	if r := recover(); r != nil {
		t.mu.TryLock()
		t.restore()
		panic(r)
	}
}

// screen copies what appears on the slave to our terminal and the recording.
func (t *terminal) screen() {
	// The kernel holds less than this of a terminal's output.
	const drainMax = 64 << 10
	buf := make([]byte, chunk)
	left, draining, shown, timeout := drainMax, false, true, -1
	fds := []unix.PollFd{
		{Fd: int32(t.mfd), Events: unix.POLLIN},
		{Fd: int32(t.s.abort), Events: unix.POLLIN},
		{Fd: int32(t.s.drain), Events: unix.POLLIN},
	}
	for left > 0 {
		if _, err := unix.Poll(fds, timeout); err != nil && err != unix.EINTR {
			return
		}
		if fds[1].Revents != 0 {
			return
		}
		if fds[2].Revents != 0 {
			fds[2].Fd, draining, timeout = -1, true, 0
		}
		n, err := t.show(buf, &shown)
		switch {
		case err == errAborted:
			return
		case err == unix.EINTR, err == unix.EAGAIN && !draining:
			continue
		case n <= 0: // EIO: the last slave is closed
			return
		}
		if draining {
			left -= n
		}
		if t.lazy {
			t.poke()
		}
	}
}

// show writes the result of one read to the recording and, as long as that works (shown), to our terminal.
func (t *terminal) show(buf []byte, shown *bool) (int, error) {
	t.showing.Lock()
	defer t.showing.Unlock()
	n, err := unix.Read(t.mfd, buf)
	if n <= 0 {
		return n, err
	}
	t.cast.output(buf[:n], time.Now())
	if !*shown {
		return n, nil
	}
	if t.lazy { // a user who sees a program that wants keys may start typing
		t.mu.Lock()
		t.adjust()
		t.mu.Unlock()
	}
	// If the terminal is gone, its output is lost, and SIGHUP tells us.
	if err := t.out.writeAll(t.uncook(buf[:n]), t.s.abort); err == errAborted {
		return n, err
	} else if err != nil {
		*shown = false
		if err != unix.EIO {
			t.s.cfg.failed(Terminal, fmt.Errorf("%w: write to the terminal: %w", ErrOutput, err))
		}
	}
	return n, nil
}

// uncook removes the carriage returns that the slave put before newlines, if our own terminal, not being raw, adds
// them too. If a read splits the two, our terminal gets two carriage returns, which look the same.
func (t *terminal) uncook(p []byte) []byte {
	const cooked = unix.OPOST | unix.ONLCR
	if t.full {
		return p
	}
	for _, fd := range []int{t.mfd, t.out.fd} {
		if tio, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil || tio.Oflag&cooked != cooked {
			return p
		}
	}
	return bytes.ReplaceAll(p, []byte("\r\n"), []byte("\n"))
}

func (t *terminal) poke() { unix.Write(t.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// resize gives the slave our terminal's size; the kernel then tells the child.
func (t *terminal) resize() {
	ws, err := unix.IoctlGetWinsize(t.out.fd, unix.TIOCGWINSZ)
	if err != nil {
		return
	}
	old, err := unix.IoctlGetWinsize(t.mfd, unix.TIOCGWINSZ)
	if err == nil && *old == *ws {
		return
	}
	if t.begun { // before the child can react to it
		t.cast.resize(int(ws.Col), int(ws.Row), time.Now())
	}
	unix.IoctlSetWinsize(t.mfd, unix.TIOCSWINSZ, ws)
}

// finish lets the master hang up once no process of the child has the slave open.
func (t *terminal) finish() {
	if t.slave != nil {
		t.slave.Close()
		t.slave = nil
	}
}

func (t *terminal) account() *schema.Stream { return t.cast.finish(time.Now()) }

// close restores our terminal and closes the rest. Closing the master hangs up on processes that still have the slave
// open.
func (t *terminal) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.restore()
	t.finish()
	if t.master != nil {
		t.master.Close()
	}
	for _, f := range t.ours {
		f.Close()
	}
	if t.wake >= 0 {
		unix.Close(t.wake)
	}
	t.mfd, t.wake, t.in, t.ours, t.lazy = -1, -1, -1, nil, false
}

// lookAgain is how often, in milliseconds, the keyboard goroutine checks for changes without an event: we came to the
// foreground (`fg` of a running job sends nothing), or the child made its terminal canonical again.
const lookAgain = 200

// keyboard copies keys from our terminal to the master while the child wants them and we are in the foreground.
func (t *terminal) keyboard() {
	// A read in the background then fails with EIO, and does not stop us.
	defer blockTTYSignals()()
	var pending []byte
	buf := make([]byte, 4096)
	for {
		t.mu.Lock()
		active := t.adjust()
		timeout := -1
		if !t.suspended && (t.full && !active || t.lazy && active) {
			timeout = lookAgain
		}
		t.mu.Unlock()
		fds := []unix.PollFd{
			{Fd: int32(t.s.drain), Events: unix.POLLIN},
			{Fd: int32(t.s.abort), Events: unix.POLLIN},
			{Fd: int32(t.wake), Events: unix.POLLIN},
			{Fd: -1, Events: unix.POLLIN},
			{Fd: -1, Events: unix.POLLOUT},
		}
		if active && len(pending) == 0 {
			fds[3].Fd = int32(t.in)
		}
		if len(pending) > 0 {
			fds[4].Fd = int32(t.mfd)
		}
		if _, err := unix.Poll(fds, timeout); err != nil && err != unix.EINTR {
			return
		} else if err != nil {
			continue
		}
		if fds[0].Revents != 0 || fds[1].Revents != 0 {
			return
		}
		if fds[2].Revents != 0 {
			var b [8]byte
			unix.Read(t.wake, b[:])
			continue // suspend may have given the terminal back
		}
		if fds[3].Revents != 0 {
			n, err := t.readKeys(buf)
			if err == nil && n == 0 || err == unix.ENXIO || fds[3].Revents&(unix.POLLHUP|unix.POLLERR) != 0 && n <= 0 {
				return // our terminal is gone
			}
			pending = append(pending, buf[:max(n, 0)]...)
		}
		if len(pending) > 0 {
			pending = pending[t.writeKeys(pending):]
		}
	}
}

// readKeys reads only while the terminal is ours to read.
func (t *terminal) readKeys(buf []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.raw || !foreground(t.in) {
		return 0, unix.EAGAIN
	}
	n, err := unix.Read(t.in, buf)
	return n, err
}

// writeKeys writes to the master as much as it takes, and returns that number.
func (t *terminal) writeKeys(p []byte) int {
	n, err := unix.Write(t.mfd, p)
	if err == unix.EIO {
		return len(p) // nobody will read them
	}
	return max(n, 0)
}

// catchUp lets what the child wrote before it stopped appear on our terminal before the shell's prompt. It does not
// wait for a terminal that takes nothing (Ctrl-S).
func (t *terminal) catchUp() {
	t.mu.Lock()
	mfd := int32(t.mfd)
	t.mu.Unlock()
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if !t.showing.TryLock() {
			continue
		}
		fds := []unix.PollFd{{Fd: mfd, Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		t.showing.Unlock()
		if n == 0 && err == nil {
			return
		}
	}
}

// adjust makes our terminal raw, or restores it, depending on the current state, and reports whether to read keys. mu
// is held.
func (t *terminal) adjust() bool {
	if t.in < 0 {
		return false
	}
	slave, err := unix.IoctlGetTermios(t.mfd, unix.TCGETS)
	want := err == nil && (t.full || t.lazy && slave.Lflag&unix.ICANON == 0)
	if t.suspended || !want {
		t.restore()
		return false
	}
	if !foreground(t.in) {
		// The shell has the settings now; Resume, or fg, brings us back.
		return false
	}
	if !t.raw {
		tio, err := unix.IoctlGetTermios(t.in, unix.TCGETS)
		if err != nil {
			return false
		}
		t.saved, t.raw = *tio, true
	}
	settings := rawSettings(t.saved)
	if t.lazy {
		settings = *slave
		settings.Lflag &^= unix.ECHO | unix.ECHONL
	}
	if settings != t.applied {
		t.s.cfg.settings(&settings, &t.saved)
		setTermios(t.in, settings)
		t.applied = settings
	}
	return true
}

// restore restores our terminal's own settings, unless somebody else has changed them. mu is held.
func (t *terminal) restore() {
	if !t.raw {
		return
	}
	t.raw, t.applied = false, unix.Termios{}
	if foreground(t.in) {
		setTermios(t.in, t.saved)
	}
	t.s.cfg.settings(nil, nil)
}

// foreground reports whether we may read the terminal and change its settings. A terminal that is not our controlling
// terminal has no foreground: everyone may.
func foreground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// setTermios changes settings at once, without waiting for output (which would block on a terminal that Ctrl-S
// stopped) and without being stopped by SIGTTOU.
func setTermios(fd int, tio unix.Termios) error {
	defer blockTTYSignals()()
	return unix.IoctlSetTermios(fd, unix.TCSETS, &tio)
}

// blockTTYSignals locks the calling goroutine to a thread with SIGTTIN and SIGTTOU blocked, until the returned
// function is called.
func blockTTYSignals() (undo func()) {
	runtime.LockOSThread()
	var set, old unix.Sigset_t
	for _, sig := range []unix.Signal{unix.SIGTTIN, unix.SIGTTOU} {
		set.Val[0] |= 1 << (uint(sig) - 1) // below 32, so in the first word on every architecture
	}
	if unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old) != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
		runtime.UnlockOSThread()
	}
}

// rawSettings is cfmakeraw(3): every key arrives at once and unchanged, and output keeps the form that the slave's
// own settings gave it.
func rawSettings(t unix.Termios) unix.Termios {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return t
}
