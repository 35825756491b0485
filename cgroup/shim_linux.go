package cgroup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The name and first arguments of what this package starts the own binary for,
// the guard, the shim that joins a cgroup, and the leader of a job. init runs them: most of a
// program's start is not theirs to wait for.
const (
	reexecName = "assay-run"
	shimArg    = "__cgroup-join"
	guardArg   = "__guard"
	leaderArg  = "__job"
)

func init() {
	if len(os.Args) < 2 || os.Args[0] != reexecName {
		return
	}
	switch os.Args[1] {
	case guardArg:
		os.Exit(guardMain(os.Args))
	case shimArg:
		os.Exit(shimMain(os.Args))
	case leaderArg:
		os.Exit(leaderMain(os.Args))
	}
}

// IsShim reports whether argv is that of the program by which [Group.Start] puts
// a command into a cgroup where clone cannot, and which then becomes the command.
// It does not tell whose program it is: compare the executable.
func IsShim(argv []string) bool {
	return len(argv) > 1 && argv[0] == reexecName && argv[1] == shimArg
}

// startShim spawns a re-exec of this binary that joins the group by writing
// "0" to files, opened here, and then becomes the command. The argument
// vector is: name, shimArg, first descriptor, number of files, path, argv...
// After the files' descriptors comes a pipe that closes when the command runs,
// or brings the errno when it cannot.
func (g *Group) startShim(cmd *exec.Cmd, files []string, spawn spawner) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	path, args, extra := cmd.Path, cmd.Args, cmd.ExtraFiles
	defer func() { cmd.Path, cmd.Args, cmd.ExtraFiles = path, args, extra }()
	var opened []*os.File
	defer func() {
		for _, f := range opened {
			f.Close()
		}
	}()
	for _, name := range files {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("start in cgroup: %w", err)
		}
		opened = append(opened, f)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start in cgroup: %w", err)
	}
	defer r.Close()
	opened = append(opened, w)
	argv := args
	if len(argv) == 0 {
		argv = []string{path}
	}
	passed, closePassed, err := inherited(extra)
	if err != nil {
		return fmt.Errorf("start in cgroup: %w", err)
	}
	defer closePassed()
	cmd.Path = "/proc/self/exe"
	cmd.Args = append([]string{reexecName, shimArg, strconv.Itoa(3 + len(passed)), strconv.Itoa(len(files)), path}, argv...)
	cmd.ExtraFiles = append(passed, opened...)
	if err := spawn(cmd); err != nil {
		return err
	}
	w.Close()
	var answer [8]byte
	n, err := r.Read(answer[:])
	if n == 0 {
		// Closed by the exec, or by the shim's death, which Wait will tell.
		g.session.noteOurTasks()
		return nil
	}
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = time.Millisecond // nobody will use the pipes
	}
	_ = cmd.Wait()
	if n < 8 || err != nil {
		return fmt.Errorf("start in cgroup: broken answer from the shim: %v", err)
	}
	errno := syscall.Errno(binary.NativeEndian.Uint32(answer[4:]))
	if i := int(binary.NativeEndian.Uint32(answer[:4])); i < len(files) {
		return fmt.Errorf("join cgroup: %w", &os.PathError{Op: "write to", Path: files[i], Err: errno})
	}
	return &os.PathError{Op: "fork/exec", Path: path, Err: errno}
}

// inherited extends extra, which become descriptors 3 and up, by the
// descriptors that the runner inherited itself without close-on-exec, each at
// its own number: they pass through to the child (a make job server's, say),
// and the shim's own must come after them.
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
		return files, closeAll, nil // without /proc the common case must do
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

// shimMain is the re-exec's side of startShim. Its thread, and no other of the
// Go runtime, joins: exec ends the others, so that the command alone is ever
// counted in the group.
func shimMain(args []string) int {
	runtime.LockOSThread()
	if len(args) < 6 {
		return 125
	}
	first, err1 := strconv.Atoi(args[2])
	files, err2 := strconv.Atoi(args[3])
	if err := errors.Join(err1, err2); err != nil || first < 3 || files < 0 || files > 64 {
		return 125
	}
	answer := func(step int, err error) int {
		var b [8]byte
		var errno syscall.Errno
		errors.As(err, &errno)
		binary.NativeEndian.PutUint32(b[:4], uint32(step))
		binary.NativeEndian.PutUint32(b[4:], uint32(errno))
		_, _ = unix.Write(first+files, b[:])
		return 125
	}
	for i := range files + 1 {
		unix.CloseOnExec(first + i)
	}
	for i := range files {
		if _, err := unix.Write(first+i, []byte("0")); err != nil {
			return answer(i, err)
		}
	}
	return answer(files, syscall.Exec(args[4], args[5:], exactEnviron()))
}

// exactEnviron is the environment that was given, which os.Environ would tidy.
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
