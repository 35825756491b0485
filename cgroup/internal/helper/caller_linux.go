package helper

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/steps"
)

// ownLimits are the limits for which the kernel signals a process.
var ownLimits = []int{unix.RLIMIT_FSIZE, unix.RLIMIT_CPU}

// limits are those that LiftLimits changed, as this process got them.
var (
	limits map[int]unix.Rlimit
	lift   sync.Once
)

// LiftLimits raises the soft limits of ownLimits to the hard ones.
func LiftLimits() { lift.Do(liftLimits) }

func liftLimits() {
	limits = map[int]unix.Rlimit{}
	if available() != nil { // nobody could give them back to a command
		return
	}
	for _, resource := range ownLimits {
		var limit unix.Rlimit
		if unix.Prlimit(0, resource, nil, &limit) == nil && limit.Cur < limit.Max &&
			unix.Prlimit(0, resource, &unix.Rlimit{Cur: limit.Max, Max: limit.Max}, nil) == nil {
			limits[resource] = limit
		}
	}
}

// kept are the signals that stay ignored over Go's fork and exec: SIGHUP and SIGINT.
const kept = 1<<(unix.SIGHUP-1) | 1<<(unix.SIGINT-1)

const asCaller = "start" // the name of the list

// IsAsCaller reports whether argv is that of the helper of [AsCaller].
func IsAsCaller(argv []string) bool { return steps.Is(argv, asCaller) }

// AsCaller calls start to start a command that has the limits and the ignored and blocked signals which this process
// got from its caller. Go takes the signals away, so a helper restores them and becomes the command. Without such
// limits and signals there is no helper.
func AsCaller(cmd *exec.Cmd, start func() error) error {
	ignored, blocked, known := steps.AtStart()
	if !known {
		ignored, blocked = 0, 0
	}
	if len(limits) == 0 && ignored&^kept == 0 && blocked == 0 || cmd.Err != nil || available() != nil {
		return start()
	}
	path, args, extra := cmd.Path, cmd.Args, cmd.ExtraFiles
	defer func() { cmd.Path, cmd.Args, cmd.ExtraFiles = path, args, extra }()
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start as the caller did: %w", err)
	}
	defer r.Close()
	defer w.Close()
	argv := args
	if len(argv) == 0 {
		argv = []string{path}
	}
	first := 3 + len(extra)
	l := steps.New()
	failed := l.Label()
	for _, resource := range ownLimits {
		if limit, ok := limits[resource]; ok {
			l.Call(unix.SYS_PRLIMIT64, 0, resource, l.Bytes(words(limit.Cur, limit.Max)), 0)
		}
	}
	for sig := range 64 {
		if ignored>>sig&1 != 0 {
			l.Call(unix.SYS_RT_SIGACTION, sig+1, l.Bytes(words(1, 0, 0, 0)), 0, 8) // SIG_IGN
		}
	}
	l.Call(unix.SYS_FCNTL, first, unix.F_SETFD, unix.FD_CLOEXEC)
	l.Call(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, l.Word(blocked), 0, 8)
	l.OnError(failed)
	l.Call(unix.SYS_EXECVE, path, l.Strings(argv), l.Environ())
	l.At(failed)
	l.OnError(0)
	size := l.Word(0)
	l.Make(size, steps.Value(l.Failures()+8), 0, ^uint64(0), 16)
	l.Call(unix.SYS_WRITE, first, l.Failures(), steps.Value(size)).Ignore(steps.AnyErrno)
	l.Call(unix.SYS_EXIT_GROUP, 125)
	list, err := l.File()
	if err != nil {
		return fmt.Errorf("start as the caller did: %w", err)
	}
	defer list.Close()
	cmd.Path = "/proc/self/exe"
	cmd.Args = steps.Args(first+1, asCaller)
	cmd.ExtraFiles = append(append([]*os.File{}, extra...), w, list)
	if err := start(); err != nil {
		return err
	}
	w.Close()
	answer, err := io.ReadAll(r)
	if len(answer) == 0 || err != nil {
		return nil // closed by the exec, or by the helper's death, which Wait will tell
	}
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = time.Millisecond // nobody will use the pipes
	}
	_ = cmd.Wait()
	errno := unix.EIO
	if failures := steps.ParseFailures(answer[min(16, len(answer)):]); len(failures) > 0 {
		errno = failures[len(failures)-1].Errno
	}
	return &os.PathError{Op: "fork/exec", Path: path, Err: errno}
}

func words(list ...uint64) (b []byte) {
	for _, w := range list {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return b
}
