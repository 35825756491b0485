package helper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/assay-run/assay-run/cgroup/role"
	"golang.org/x/sys/unix"
)

// Join starts a command by way of a joiner, which fork forks: it writes "0" to
// files, opened here, and then becomes the command. The argument
// vector is: role.Name, role.Join, first descriptor, number of files, path, argv...
// After the files' descriptors comes a pipe that closes when the command runs,
// or brings the errno when it cannot.
func Join(cmd *exec.Cmd, files []string, fork func(*exec.Cmd) error) error {
	if err := available(); err != nil {
		return err
	}
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
	cmd.Args = append(role.Join.Args(strconv.Itoa(3+len(passed)), strconv.Itoa(len(files)), path), argv...)
	cmd.ExtraFiles = append(passed, opened...)
	if err := fork(cmd); err != nil {
		return err
	}
	w.Close()
	var answer [8]byte
	n, err := r.Read(answer[:])
	if n == 0 {
		// Closed by the exec, or by the joiner's death, which Wait will tell.
		return nil
	}
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = time.Millisecond // nobody will use the pipes
	}
	_ = cmd.Wait()
	if n < 8 || err != nil {
		return fmt.Errorf("start in cgroup: broken answer from the joiner: %v", err)
	}
	errno := syscall.Errno(binary.NativeEndian.Uint32(answer[4:]))
	if i := int(binary.NativeEndian.Uint32(answer[:4])); i < len(files) {
		return fmt.Errorf("join cgroup: %w", &os.PathError{Op: "write to", Path: files[i], Err: errno})
	}
	return &os.PathError{Op: "fork/exec", Path: path, Err: errno}
}

// joinMain is the re-exec's side of Join. Its thread, and no other of the
// Go runtime, joins: exec ends the others, so that the command alone is ever
// counted in the group.
func joinMain(args []string) int {
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
