package stdio

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

// Streams are one run's standard streams. The order of calls is Open, Attach, start of the command, Started, Finish.
// Finish must be called whatever happened to the others. Abort, Resize, Suspend and Resume may be called from any
// goroutine.
type Streams struct {
	cfg  Config
	mode string

	pumps  []*pump
	merged bool      // stderr shares stdout's pipe
	term   *terminal // nil except in terminal mode

	childIn, childOut, childErr *os.File   // the child's ends
	ends                        []*os.File // those of them that we must close

	drain, abort int // eventfds, set once and never read
	signals      sync.Mutex
	closed       bool // guarded by signals
	copying      sync.WaitGroup
	started      bool
	once         sync.Once
	result       schema.Stdio
}

// Open chooses the mode and makes the pipes or the pseudo-terminal. After an error nothing stays open.
func Open(cfg Config) (s *Streams, err error) {
	s = &Streams{
		cfg: cfg, mode: modePassthrough,
		childIn: cfg.Stdin, childOut: cfg.Stdout, childErr: cfg.Stderr,
		drain: -1, abort: -1,
	}
	if !cfg.Capture {
		return s, nil
	}
	defer func() {
		if err != nil {
			s.closeAll()
			s = nil
			err = fmt.Errorf("open standard streams: %w", err)
		}
	}()
	if s.drain, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return s, fmt.Errorf("eventfd: %w", err)
	}
	if s.abort, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return s, fmt.Errorf("eventfd: %w", err)
	}
	s.mode = modePipe
	outTTY, errTTY := IsTerminal(cfg.Stdout), IsTerminal(cfg.Stderr)
	if outTTY || errTTY {
		s.mode = modeTerminal
		if err := s.openTerminal(outTTY, errTTY); err != nil {
			return s, err
		}
	}
	if cfg.Stdout != nil && !outTTY {
		if s.childOut, err = s.openPipe(stdout, schema.StdoutPath, cfg.Stdout); err != nil {
			return s, err
		}
	}
	if cfg.Stderr != nil && !errTTY {
		if !outTTY && sameFile(cfg.Stdout, cfg.Stderr) {
			s.childErr, s.merged = s.childOut, true
		} else if s.childErr, err = s.openPipe(stderr, schema.StderrPath, cfg.Stderr); err != nil {
			return s, err
		}
	}
	return s, nil
}

// openPipe makes the pipe of one stream and returns the child's end.
func (s *Streams) openPipe(stream, member string, to *os.File) (*os.File, error) {
	dst, err := newOutlet(to)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", stream, err)
	}
	var ends, scratch [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("pipe for %s: %w", stream, err)
	}
	if err := unix.Pipe2(scratch[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		unix.Close(ends[0])
		unix.Close(ends[1])
		return nil, fmt.Errorf("pipe for %s: %w", stream, err)
	}
	p := &pump{s: s, stream: stream, src: ends[0], dst: dst, scratch: scratch}
	p.cap = capture{cfg: &s.cfg, stream: stream, member: member}
	s.pumps = append(s.pumps, p)
	end := os.NewFile(uintptr(ends[1]), "the child's "+stream)
	s.ends = append(s.ends, end)
	// Only our end: the child's end is another open file description.
	if err := unix.SetNonblock(p.src, true); err != nil {
		return nil, fmt.Errorf("pipe for %s: %w", stream, err)
	}
	return end, nil
}

// OwnSession reports whether the child's stdin is its own pseudo-terminal: then start it as the foreground job of a
// new session there ([cgroup.Group.StartJob]). If it is false and one of our own streams is a terminal, the child
// must stay in our process group: otherwise reading that terminal would stop it or fail with EIO, since it would not
// be in the foreground.
func (s *Streams) OwnSession() bool { return s.term != nil && s.term.full }

// Attach sets cmd's Stdin, Stdout and Stderr, and nothing else.
func (s *Streams) Attach(cmd *exec.Cmd) {
	// Never a typed nil: exec.Cmd would use it as a reader.
	if s.childIn != nil {
		cmd.Stdin = s.childIn
	}
	if s.childOut != nil {
		cmd.Stdout = s.childOut
	}
	if s.childErr != nil {
		cmd.Stderr = s.childErr
	}
}

// Started must be called as soon as the child runs: it closes our copies of the child's ends and starts to copy. In
// terminal mode it makes our terminal raw.
func (s *Streams) Started() error {
	if s.started {
		return errors.New("standard streams: started twice")
	}
	s.started = true
	s.closeEnds()
	for _, p := range s.pumps {
		s.copying.Go(p.run)
	}
	if s.term != nil {
		return s.term.start()
	}
	return nil
}

// Finish ends the copying once the child writes nothing more. What is in the pipes at this moment is still passed on;
// what a process that kept one open writes later is not. Finish waits for a slow reader of our output as long as the
// child would have, or until Abort; a grace above zero limits the wait. Then it restores the terminal and closes
// everything. Later calls return the first call's result.
func (s *Streams) Finish(grace time.Duration) schema.Stdio {
	s.once.Do(func() {
		if grace > 0 {
			defer time.AfterFunc(grace, s.Abort).Stop()
		}
		s.closeEnds()
		s.set(s.drain)
		if s.term != nil {
			s.term.finish()
		}
		s.copying.Wait()
		s.result = s.account()
		s.closeAll()
	})
	return s.result
}

// Abort ends the copying at once, whatever is still in the pipes, for a run that must end although nobody reads its
// output.
func (s *Streams) Abort() { s.set(s.abort) }

func (s *Streams) set(eventfd int) {
	s.signals.Lock()
	defer s.signals.Unlock()
	if !s.closed && eventfd >= 0 {
		// This cannot fail: the counter is far from its limit.
		unix.Write(eventfd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (s *Streams) account() schema.Stdio {
	r := schema.Stdio{Mode: s.mode, StderrInStdout: s.merged}
	for _, p := range s.pumps {
		st := p.cap.finish(p.bytes)
		if p.stream == stdout {
			r.Stdout = st
		} else {
			r.Stderr = st
		}
	}
	if s.term != nil {
		r.Terminal = s.term.account()
	}
	return r
}

func (s *Streams) closeEnds() {
	for _, f := range s.ends {
		f.Close()
	}
	s.ends = nil
}

// closeAll closes what Open opened. The goroutines have ended or never started.
func (s *Streams) closeAll() {
	s.closeEnds()
	if !s.started {
		for _, p := range s.pumps {
			p.close()
		}
	}
	if s.term != nil {
		s.term.close()
	}
	s.signals.Lock()
	defer s.signals.Unlock()
	if !s.closed {
		s.closed = true
		for _, fd := range []int{s.drain, s.abort} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
}

// sameFile reports whether two descriptors are the same stream, so that the order of writes matters: one open file
// description, or one pipe or socket.
func sameFile(a, b *os.File) bool {
	if a == nil || b == nil {
		return false
	}
	fa, errA := rawFD(a)
	fb, errB := rawFD(b)
	if errA != nil || errB != nil {
		return false
	}
	var sa, sb unix.Stat_t
	if unix.Fstat(fa, &sa) != nil || unix.Fstat(fb, &sb) != nil || sa.Dev != sb.Dev || sa.Ino != sb.Ino {
		return false
	}
	if t := sa.Mode & unix.S_IFMT; t == unix.S_IFIFO || t == unix.S_IFSOCK {
		return true
	}
	const kcmpFile = 0 // linux/kcmp.h
	pid := uintptr(os.Getpid())
	r, _, errno := unix.Syscall6(unix.SYS_KCMP, pid, pid, kcmpFile, uintptr(fa), uintptr(fb), 0)
	return errno == 0 && r == 0
}

// IsTerminal reports whether f, which may be nil, is a terminal. It does not change f's flags.
func IsTerminal(f *os.File) bool {
	if f == nil {
		return false
	}
	fd, err := rawFD(f)
	if err != nil {
		return false
	}
	_, err = unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
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
	// The slave starts with our terminal's settings and size.
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

// Suspend gives our terminal back to the process that started us. The runner calls it when the child has stopped,
// before it stops itself. It does nothing in the other modes, before Started and after Finish.
func (s *Streams) Suspend() { s.setSuspended(true) }

// Resume takes over our terminal again, and remembers its current settings and size. The runner calls it on SIGCONT,
// before it continues the child. In the background it does nothing; the terminal is taken over once we are in the
// foreground.
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

// Resize passes our terminal's size on to the child. The runner calls it on SIGWINCH. If OwnSession is false, the
// kernel does not tell the child: it is in our process group and got its own SIGWINCH, perhaps before the slave had
// the new size. Send it another after Resize.
func (s *Streams) Resize() {
	if t := s.term; t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.mfd >= 0 {
			t.resize()
		}
	}
}

// SetExit records how the child ended, in a shell's form. Call it before Finish.
func (s *Streams) SetExit(code int) {
	if t := s.term; t != nil {
		t.cast.setExit(code)
	}
}
