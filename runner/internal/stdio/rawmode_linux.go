package stdio

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Suspend gives our terminal back to whoever started us. The runner calls it
// when the child has stopped, before it stops itself. Nothing to do, and
// harmless, in the other modes, before Started and after Finish.
func (s *Streams) Suspend() { s.setSuspended(true) }

// Resume takes our terminal again, with its present settings as those to
// restore and its present size. The runner calls it on SIGCONT, before it
// continues the child. In the background it takes nothing; the terminal is
// taken once we come to the foreground.
func (s *Streams) Resume() {
	s.setSuspended(false)
	s.Resize()
}

func (s *Streams) setSuspended(suspended bool) {
	t := s.term
	if t == nil {
		return
	}
	if suspended {
		t.catchUp()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.in < 0 || !t.begun {
		return
	}
	t.suspended = suspended
	t.adjust()
	t.poke()
}

// catchUp lets what the child wrote before it stopped reach our terminal before
// the shell's prompt does. A terminal that takes nothing (Ctrl-S) is not waited for.
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

// Resize passes our terminal's size on to the child. The runner calls it on
// SIGWINCH. Where OwnSession is false the kernel does not tell the child: it is
// in our process group and had its own SIGWINCH, perhaps before the new size was
// there. Send it another after Resize.
func (s *Streams) Resize() {
	if t := s.term; t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.mfd >= 0 {
			t.resize()
		}
	}
}

// SetExit tells the recording how the child ended, as a shell would say it.
// Call it before Finish.
func (s *Streams) SetExit(code int) {
	if t := s.term; t != nil {
		t.cast.setExit(code)
	}
}

// adjust makes our terminal raw, or restores it, as things stand, and tells
// whether keys are to be read. mu is held.
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
		// The shell owns the settings now; Resume, or fg, brings us back.
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

// restore puts our terminal's own settings back, unless they are somebody
// else's by now. mu is held.
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

// foreground tells whether we may read the terminal and change its settings. A
// terminal that is not our controlling one has no foreground: anybody may.
func foreground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

// setTermios changes settings at once, without waiting for output (a terminal
// that Ctrl-S stopped would hold us) and without being stopped by SIGTTOU.
func setTermios(fd int, tio unix.Termios) error {
	defer blockTTYSignals()()
	return unix.IoctlSetTermios(fd, unix.TCSETS, &tio)
}

// blockTTYSignals keeps the calling goroutine on a thread on which SIGTTIN and
// SIGTTOU are blocked, until the function that it returns is called.
func blockTTYSignals() (undo func()) {
	runtime.LockOSThread()
	var set, old unix.Sigset_t
	for _, sig := range []unix.Signal{unix.SIGTTIN, unix.SIGTTOU} {
		set.Val[0] |= 1 << (uint(sig) - 1) // below 32: in the first word everywhere
	}
	if unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old) != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
		runtime.UnlockOSThread()
	}
}

// rawSettings is cfmakeraw(3): every key comes at once and unchanged, and output
// goes out as the slave's own settings made it.
func rawSettings(t unix.Termios) unix.Termios {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return t
}
