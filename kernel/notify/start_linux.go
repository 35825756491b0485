//go:build amd64 || arm64

package notify

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
)

// ErrNoShim is returned by Observer.Start in a program that cannot start the helper
// process.
var ErrNoShim = errors.New(`this program cannot start the helper process that seccomp notification needs: import _ "github.com/assay-run/assay-run/kernel/reexec" in its main package`)

// Start calls start with cmd changed to load the filter first, and observes the command
// from its first call on. If the kernel refuses the filter, the command runs without it,
// and Unavailable says why. The error is start's, or an *os.PathError as exec.Cmd.Start
// returns it if the command cannot be executed. cmd.Process is the command's process.
func (o *Observer) Start(cmd *exec.Cmd, start func(*exec.Cmd) error) error {
	if !entered {
		return ErrNoShim
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("start notified: %w", err)
	}
	defer unix.Close(fds[0])
	theirs := os.NewFile(uintptr(fds[1]), "notify control")
	defer theirs.Close()
	path, args, extra := cmd.Path, cmd.Args, cmd.ExtraFiles
	argv := args
	if len(argv) == 0 {
		argv = []string{path}
	}
	cmd.Path = "/proc/self/exe"
	cmd.Args = append([]string{shimName, shimArg, strconv.Itoa(3 + len(extra)), path}, argv...)
	cmd.ExtraFiles = append(append([]*os.File{}, extra...), theirs)
	err = start(cmd)
	cmd.Path, cmd.Args, cmd.ExtraFiles = path, args, extra
	if err != nil {
		return err
	}
	theirs.Close()
	h, fd, err := receive(fds[0])
	if err != nil {
		o.refuse(&kernel.Unavailable{Reasons: []kernel.Reason{{Code: CodeShim, Message: "the helper process ended before it could load the seccomp filter"}}, Err: err})
		return nil // the caller waits for the process and sees its end
	}
	if fd >= 0 {
		o.listen(fd, h)
	} else {
		o.refuse(unavailable(h.errno))
	}
	h, _, err = receive(fds[0])
	if err != nil {
		return nil // exec closed the socket, or the shim's death, which the caller sees when it waits
	}
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = time.Millisecond // nobody will use the pipes
	}
	_ = cmd.Wait()
	return &os.PathError{Op: "fork/exec", Path: path, Err: syscall.Errno(h.errno)}
}

// receive returns the shim's next message, and its descriptor or -1.
func receive(socket int) (h hello, fd int, err error) {
	buf, oob := make([]byte, helloSize), make([]byte, unix.CmsgSpace(4))
	var n, oobn int
	for {
		n, oobn, _, _, err = unix.Recvmsg(socket, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil || n < helloSize {
		return h, -1, errors.Join(err, errors.New("the helper process is gone"))
	}
	fd = -1
	if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
		for i := range messages {
			if fds, err := unix.ParseUnixRights(&messages[i]); err == nil && len(fds) > 0 {
				fd = fds[0]
			}
		}
	}
	return decodeHello(buf), fd, nil
}
