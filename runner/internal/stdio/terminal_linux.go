package stdio

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/assay-run/assay-run/schema"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal is the pseudo-terminal between the child and ours.
//
// If stdin and stdout are both terminals (full), the child leads a session of
// its own on the slave, our terminal is raw, and we carry the keys. Otherwise
// the slave only stands in for our stdout or stderr: the child stays in our
// session and process group, where the kernel's own job control and /dev/tty
// work as ever, and whoever else is in the pipeline keeps the keyboard. A child
// that then makes the slave non-canonical (`echo x | assay-run -- vim -`) wants
// keys from it: while it does, they are carried, and our terminal has the slave's
// settings but for the echo (lazy).
type terminal struct {
	s          *Streams
	full, lazy bool
	master     *os.File
	slave      *os.File // open in us until finish, so that the master never hangs up before
	mfd        int
	ours       []*os.File // our terminal, opened anew
	out        *outlet
	in         int // where keys and settings are; negative without a keyboard
	wake       int // eventfd: the keyboard has to look again
	cast       cast

	showing sync.Mutex // held while the screen goroutine has bytes in hand

	mu        sync.Mutex
	saved     unix.Termios // our terminal's own settings, while raw is true
	applied   unix.Termios // what we set instead
	raw       bool
	suspended bool
	begun     bool // the recording has
}

func (s *Streams) openTerminal(outTTY, errTTY bool) (err error) {
	inTTY := IsTerminal(s.cfg.Stdin)
	t := &terminal{s: s, full: inTTY && outTTY, lazy: !inTTY, in: -1, mfd: -1, wake: -1}
	t.cast.cap = capture{cfg: &s.cfg, stream: Terminal, member: schema.TerminalPath}
	s.term = t
	if t.master, t.slave, err = pty.Open(); err != nil {
		return fmt.Errorf("pseudo-terminal: %w", err)
	}
	if t.mfd, err = rawFD(t.master); err != nil {
		return err
	}
	if err := unix.SetNonblock(t.mfd, true); err != nil {
		return err
	}
	if t.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	screen, keys := s.cfg.Stderr, s.cfg.Stderr
	if outTTY {
		screen, keys = s.cfg.Stdout, s.cfg.Stdout
	}
	if t.full {
		keys = s.cfg.Stdin
	}
	screen = t.reopen(screen)
	if t.out, err = newOutlet(screen); err != nil {
		return err
	}
	if t.full || t.lazy {
		if t.in, err = rawFD(t.reopen(keys)); err != nil {
			return err
		}
	}
	// The slave begins as our terminal is: settings and size.
	tio, err := unix.IoctlGetTermios(t.out.fd, unix.TCGETS)
	if err != nil {
		return fmt.Errorf("terminal settings: %w", err)
	}
	if err := unix.IoctlSetTermios(t.mfd, unix.TCSETS, tio); err != nil {
		return fmt.Errorf("terminal settings: %w", err)
	}
	t.resize()
	if t.full {
		s.childIn = t.slave
	}
	if outTTY {
		s.childOut = t.slave
	}
	if errTTY {
		s.childErr = t.slave
	}
	return nil
}

// reopen opens a terminal again to have a description of our own, on which
// O_NONBLOCK harms nobody. Where that is not allowed (the terminal is another
// user's, after su) it returns f: then a stopped terminal (Ctrl-S) can hold
// Finish up, as a write to it cannot be interrupted.
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

// onPanic leaves the user's terminal usable when a goroutine of ours dies.
func (t *terminal) onPanic() {
	if r := recover(); r != nil {
		t.mu.TryLock()
		t.restore()
		panic(r)
	}
}

// screen carries what appears on the slave to our terminal and the recording.
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

// show carries one read's worth to the recording and, while that works (shown),
// to our terminal.
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
	if t.lazy { // who sees a program that wants keys may type at it
		t.mu.Lock()
		t.adjust()
		t.mu.Unlock()
	}
	// A terminal that went away takes the output with it, and SIGHUP tells.
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

// uncook takes out the carriage returns that the slave put before newlines, where
// our own terminal, not being raw, will put them there as well. Where a read has
// cut the two apart, our terminal gets two, and shows the same.
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

// resize gives the slave our terminal's size; the kernel tells the child.
func (t *terminal) resize() {
	ws, err := unix.IoctlGetWinsize(t.out.fd, unix.TIOCGWINSZ)
	if err != nil {
		return
	}
	old, err := unix.IoctlGetWinsize(t.mfd, unix.TIOCGWINSZ)
	if err == nil && *old == *ws {
		return
	}
	if t.begun { // before the child can answer to it
		t.cast.resize(int(ws.Col), int(ws.Row), time.Now())
	}
	unix.IoctlSetWinsize(t.mfd, unix.TIOCSWINSZ, ws)
}

// finish lets the master hang up once no process of the child has the slave.
func (t *terminal) finish() {
	if t.slave != nil {
		t.slave.Close()
		t.slave = nil
	}
}

func (t *terminal) account() *schema.Stream { return t.cast.finish(time.Now()) }

// close restores our terminal and closes the rest. Closing the master hangs up
// on whatever process still has the slave.
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
