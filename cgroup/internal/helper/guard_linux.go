package helper

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/dirs"
	"github.com/assay-run/assay-run/cgroup/internal/proctree"
	"github.com/assay-run/assay-run/cgroup/role"
)

// Guard is the runner's handle of a session's guard process.
type Guard struct {
	pid   int
	ready *os.File // closed by the guard when it has concealed itself
	hide  sync.Once
	// exposed is set by hide.
	exposed bool
	once    sync.Once
	pipe    *os.File    // nil without a guard
	waiter  *os.Process // nil where the guard itself reads the pipe
	room    int         // bytes that certainly still fit into a waiter's pipe
	dir     dirs.GuardDir
	done    chan struct{} // closed when the guard has ended; nil if this process cannot wait for it
}

// StartGuard starts the guard of a session. Of the runner's descriptors it gets the read end of a pipe, locks, and
// terminal if that is not nil. ward are the arguments from the session's backend. The guard owns dir from here on.
func StartGuard(runID string, ward []string, terminal *os.File, locks []int, dir dirs.GuardDir) (_ *Guard, err error) {
	defer func() {
		if err != nil {
			dir.Remove()
		}
	}()
	if err := available(); err != nil {
		return nil, err
	}
	if proctree.IsWard(ward) && os.Getpid() == 1 {
		return &Guard{}, nil // no process, so no guard, outlives process 1
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	ready, up, err := os.Pipe()
	if err != nil {
		w.Close()
		return nil, err
	}
	defer up.Close()
	defer func() {
		if err != nil {
			w.Close()
			ready.Close()
		}
	}()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	socket := shownSocket()
	defer socket.Close()
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: append(role.Guard.Args(runID), ward...), Dir: "/",
		// One thread is enough, and it needs nothing of the runner's environment.
		Env:   []string{"GOMAXPROCS=1", "GOTRACEBACK=none"},
		Stdin: null, Stdout: null, Stderr: null, // os/exec would open it for each
		ExtraFiles:  []*os.File{r, terminal, up, nil, nil, socket},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	for _, lock := range locks {
		lock, err := unix.FcntlInt(uintptr(lock), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(lock), "lock")
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	if dir.Lock != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, dir.Lock)
	}
	g := &Guard{pipe: w, ready: ready, dir: dir}
	defer func() {
		if err == nil {
			wakeful(int(r.Fd()), g.pid)
			_ = show(socket, g.pid)
		}
	}()
	if proctree.IsWard(ward) {
		if g.pid, err = startElsewhere(cmd, ready); g.pid != 0 || err != nil {
			return g, err
		}
	}
	var waits []*os.File
	if terminal == nil { // else the guard has to be quick: see terminal.restore
		waits = await(cmd, ward)
	}
	g.done = make(chan struct{})
	err = dir.Start(cmd, proctree.StartHelper)
	for _, f := range waits {
		f.Close()
	}
	if cmd.Process != nil {
		if g.pid = cmd.Process.Pid; waits != nil {
			g.waiter, g.room = cmd.Process, roomIn(w)
		}
		go func() { proctree.WaitHelper(cmd); close(g.done) }()
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

// wakeful makes the kernel continue a stopped guard when its pipe gets data, and when the runner at the other end is
// gone: F_SETSIG of fcntl(2).
func wakeful(pipe, guard int) {
	_, _ = unix.FcntlInt(uintptr(pipe), unix.F_SETOWN, guard)
	_, _ = unix.FcntlInt(uintptr(pipe), unix.F_SETSIG, int(unix.SIGCONT))
	if flags, err := unix.FcntlInt(uintptr(pipe), unix.F_GETFL, 0); err == nil {
		_, _ = unix.FcntlInt(uintptr(pipe), unix.F_SETFL, flags|unix.O_ASYNC)
	}
}

// startElsewhere starts a guard that is not a child of this process, so that a runner without children has an empty
// session. The pid is 0 if that is impossible.
func startElsewhere(cmd *exec.Cmd, ready *os.File) (pid int, err error) {
	between := *cmd
	between.Args = append(role.GuardElsewhere.Args(strconv.Itoa(3+len(cmd.ExtraFiles))), cmd.Args...)
	done, err := proctree.Elsewhere((*exec.Cmd).Run, &between)
	if !done || err != nil {
		return 0, err
	}
	var b [4]byte
	if _, err := io.ReadFull(ready, b[:]); err != nil {
		return 0, fmt.Errorf("read the guard's process id: %w", err)
	}
	return int(binary.NativeEndian.Uint32(b[:])), nil
}

// elsewhereMain starts a guard, writes its pid, and returns. Its arguments are the program's name, role.GuardElsewhere,
// the number of descriptors that the guard gets, and the guard's arguments.
func elsewhereMain(args []string) int {
	if len(args) < 4 {
		return 125
	}
	n, _ := strconv.Atoi(args[2])
	files := []uintptr{0, 1, 2}
	for fd := 3; fd < n; fd++ {
		// The Go runtime's own are closed on exec, inherited ones are not.
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			files = append(files, ^uintptr(0))
			continue
		}
		files = append(files, uintptr(fd))
	}
	pid, err := syscall.ForkExec("/proc/self/exe", args[3:],
		&syscall.ProcAttr{Dir: "/", Env: exactEnviron(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return 125
	}
	_, err = unix.Write(guardUp, binary.NativeEndian.AppendUint32(nil, uint32(pid)))
	if err != nil {
		return 125
	}
	return 0
}

// Concealed waits until no process of the same user can look into the guard, for concealWait at most. Later calls do
// nothing.
func (g *Guard) Concealed() {
	g.hide.Do(func() {
		if g.ready == nil {
			return
		}
		_ = g.ready.SetReadDeadline(time.Now().Add(concealWait))
		_, err := g.ready.Read(make([]byte, 1))
		g.exposed = !errors.Is(err, io.EOF)
		g.ready.Close()
	})
}

// Exposed reports whether Concealed waited in vain.
func (g *Guard) Exposed() bool {
	g.hide.Do(func() { g.ready.Close() })
	return g.exposed
}

// concealWait bounds the wait for a guard to come up: somebody may have stopped it.
const concealWait = 5 * time.Second

// PID is the guard's process id.
func (g *Guard) PID() int { return g.pid }

// Write sends the guard a line. A waiter does not read its pipe until the end, so a line that may not fit is not sent.
func (g *Guard) Write(line []byte) (int, error) {
	if g.waiter != nil {
		if g.room -= len(line); g.room < 0 {
			return 0, errPipeFull
		}
	}
	return g.pipe.Write(line)
}

var errPipeFull = errors.New("the guard's pipe is full")

// Leave leaves the session to the guard, which ends it as if the runner had died. It does not wait.
func (g *Guard) Leave() {
	g.once.Do(func() {
		g.hide.Do(func() { g.ready.Close() })
		g.pipe.Close()
		if g.dir.Lock != nil {
			g.dir.Lock.Close()
		}
	})
}

// Release ends the guard. It waits for the guard only if that has a cgroup of its own, and then removes that.
func (g *Guard) Release() error {
	var err error
	g.once.Do(func() {
		if g.pipe == nil {
			return
		}
		g.hide.Do(func() { g.ready.Close() })
		_, err = g.pipe.Write([]byte("q\n"))
		if g.waiter != nil { // it would have to start Go to read the line
			if killed := g.waiter.Kill(); !errors.Is(killed, os.ErrProcessDone) {
				err = errors.Join(err, killed)
			}
		}
		err = errors.Join(err, g.pipe.Close())
		if g.dir.Path != "" {
			select {
			case <-g.done:
			case <-time.After(time.Second): // somebody stopped it: a sweep removes the cgroup
			}
			g.dir.Remove()
		}
	})
	if err != nil {
		return fmt.Errorf("release guard %d: %w", g.pid, err)
	}
	return nil
}

// Inherit names a directory that the guard removes with all that is in it if the runner vanishes,
// and then the directory above if that is empty.
func (g *Guard) Inherit(dir string) {
	_, _ = g.Write(append(strconv.AppendQuote([]byte("d "), dir), '\n'))
}

// Then tells the guard with which arguments to execute this binary once it has ended what
// the runner left. A line that is too long for one atomic write to a pipe is not sent.
func (g *Guard) Then(argv ...string) { g.program("x", argv) }

// Last tells the guard with which arguments to run this binary, and wait for it, when the session is empty and not yet
// removed.
func (g *Guard) Last(argv ...string) { g.program("l", argv) }

func (g *Guard) program(kind string, argv []string) {
	line := []byte(kind)
	for _, arg := range argv {
		line = strconv.AppendQuote(append(line, ' '), arg)
	}
	if len(line) < 4096 {
		_, _ = g.Write(append(line, '\n'))
	}
}

// inheritance is what the guard has to do for a dead runner besides ending the session.
type inheritance struct {
	tty  terminal
	dirs []string
	late []string // arguments of Guard.Last
	then []string // arguments of Guard.Then
}

// hear takes a line of the runner's.
func (h *inheritance) hear(line []byte) {
	h.tty.hear(line)
	if quoted, ok := bytes.CutPrefix(line, []byte("d ")); ok {
		if dir, err := strconv.Unquote(string(quoted)); err == nil && filepath.IsAbs(dir) {
			h.dirs = append(h.dirs, dir)
		}
	}
	if rest, ok := bytes.CutPrefix(line, []byte("x ")); ok {
		h.then = unquoted(rest)
	}
	if rest, ok := bytes.CutPrefix(line, []byte("l ")); ok {
		h.late = unquoted(rest)
	}
}

func unquoted(rest []byte) (argv []string) {
	for len(rest) > 0 {
		quoted, err := strconv.QuotedPrefix(string(rest))
		if err != nil {
			break
		}
		arg, _ := strconv.Unquote(quoted)
		argv = append(argv, arg)
		rest = bytes.TrimPrefix(rest[len(quoted):], []byte(" "))
	}
	return argv
}

// last runs what Guard.Last named.
func (h *inheritance) last() {
	if len(h.late) > 0 {
		cmd := exec.Cmd{Path: "/proc/self/exe", Args: h.late, Dir: "/", Env: []string{"GOMAXPROCS=1"}}
		_ = cmd.Run()
	}
}

// remove removes the directories.
func (h *inheritance) remove() {
	for _, dir := range h.dirs {
		_ = RemoveTree(dir)
		_ = os.Remove(filepath.Dir(dir))
	}
}

// RemoveTree is os.RemoveAll for a tree with directories that their owner may not enter or change.
func RemoveTree(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) // WalkDir reads the directory after this
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// become executes what Guard.Then named, if anything.
func (h *inheritance) become() {
	if len(h.then) > 0 {
		_ = unix.Exec("/proc/self/exe", h.then, []string{"GOMAXPROCS=1"}) // if it fails, the next run frees the same
	}
}

// inherited extends extra, which become descriptors 3 and up, by the descriptors that the runner itself inherited
// without close-on-exec, at their own numbers: they are for the child (a make job server's, for example). The joiner's
// own must come after them.
func inherited(extra []*os.File) (files []*os.File, closeAll func(), err error) {
	files = append(files, extra...)
	var dups []*os.File
	closeAll = func() {
		for _, f := range dups {
			f.Close()
		}
	}
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return files, closeAll, nil // without /proc: most often none was inherited
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil || fd < 3+len(extra) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		dups = append(dups, os.NewFile(uintptr(dup), "inherited"))
		for len(files) <= fd-3 {
			files = append(files, nil)
		}
		files[fd-3] = dups[len(dups)-1]
	}
	return files, closeAll, nil
}

// exactEnviron is the environment as it was given. os.Environ would remove duplicates.
func exactEnviron() []string {
	b, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		return os.Environ()
	}
	env := []string{}
	for e := range bytes.SplitSeq(bytes.TrimSuffix(b, []byte{0}), []byte{0}) {
		env = append(env, string(e))
	}
	return env
}

// TerminalChanged is cgroup.Guard.TerminalChanged.
func (g *Guard) TerminalChanged(set, own *unix.Termios) {
	line := []byte{'t'}
	for _, tio := range []*unix.Termios{set, own} {
		if tio != nil {
			line = append(line, ' ')
			b, _ := binary.Append(nil, binary.NativeEndian, tio) // of fixed size
			line = hex.AppendEncode(line, b)
		}
	}
	_, _ = g.Write(append(line, '\n')) // short enough to be one write
}

// terminal holds the settings that the guard restores.
type terminal struct {
	fd       int
	changed  bool
	set, own unix.Termios
}

// hear takes a line of the runner's.
func (t *terminal) hear(line []byte) {
	f := bytes.Fields(line)
	if len(f) == 0 || string(f[0]) != "t" {
		return
	}
	t.changed = len(f) == 3 && decodeTermios(f[1], &t.set) && decodeTermios(f[2], &t.own)
}

func decodeTermios(text []byte, tio *unix.Termios) bool {
	b := make([]byte, hex.DecodedLen(len(text)))
	if _, err := hex.Decode(b, text); err != nil {
		return false
	}
	n, err := binary.Decode(b, binary.NativeEndian, tio)
	return err == nil && n == len(b)
}

// restore restores the settings after the runner's death, unless somebody else has changed them since: a shell restores
// them itself, or sets others for its line editor. The guard is in another session than the terminal's, so the kernel
// does not stop it for this.
func (t *terminal) restore() {
	if !t.changed {
		return
	}
	now, err := unix.IoctlGetTermios(t.fd, unix.TCGETS)
	// The driver may adjust line speeds and similar fields.
	if err == nil && now.Iflag == t.set.Iflag && now.Oflag == t.set.Oflag && now.Lflag == t.set.Lflag &&
		now.Cc == t.set.Cc {
		_ = unix.IoctlSetTermios(t.fd, unix.TCSETS, &t.own)
	}
}
