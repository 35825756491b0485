//go:build linux && (amd64 || arm64)

package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel/internal/exercise"
)

// selfTest runs the exerciser in its own cgroup below the session's and notes
// which hooks saw it. What it cannot do is kept for the report; it never fails
// the observation.
func (o *Observer) selfTest(ctx context.Context, session string) {
	start := time.Now()
	defer func() { o.testTime = time.Since(start) }()
	if err := o.runSelfTest(ctx, session); err != nil {
		o.testErr = err
		return
	}
	received, err := o.drainSelfTest()
	if err != nil {
		o.testErr = err
		return
	}
	for h := range o.tested {
		_, c := o.counts(HookID(h))
		o.tested[h] = c.Fired > 0 && (c.Emitted == 0 || received[h])
	}
}

func (o *Observer) runSelfTest(ctx context.Context, session string) (err error) {
	path, err := os.MkdirTemp(session, "selftest-") // others may test in the same cgroup
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	dir, id, err := openCgroup(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	o.selfCgroup = id
	threads, err := os.OpenFile(filepath.Join(path, "cgroup.threads"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer threads.Close()
	list, err := exercise.List().File()
	if err != nil {
		return err
	}
	defer list.Close()
	c := exec.CommandContext(ctx, "/proc/self/exe")
	c.Args = exercise.Args()
	c.Env = []string{"GOMAXPROCS=1", "GOGC=off"} // where Go starts in it, for a millisecond
	c.ExtraFiles = []*os.File{exercise.Threads - 3: threads, exercise.Exercise - 3: list}
	c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	err = c.Run()
	lacks := c.ProcessState.ExitCode()
	if err != nil && lacks&^(exercise.NoIPv6|exercise.NoTCP) != 0 {
		return fmt.Errorf("run the self-test in %s: %w", path, err)
	}
	if lacks&exercise.NoIPv6 != 0 {
		o.spare(HookConnect6, HookSendmsg6, HookBind6)
	}
	if lacks&exercise.NoTCP != 0 {
		o.spare(HookTCP)
	}
	return nil
}

// cgroupsFull tells whether a cgroup could not be made because of a limit of one above
// (EAGAIN), or because no id is left (ENOSPC).
func cgroupsFull(err error) bool {
	var e *os.PathError
	return errors.As(err, &e) && e.Op == "mkdir" && (errors.Is(e, unix.EAGAIN) || errors.Is(e, unix.ENOSPC))
}

// spare notes hooks that nothing on this host makes fire.
func (o *Observer) spare(hooks ...HookID) {
	for _, h := range hooks {
		o.spared[h] = true
	}
}

// drainSelfTest reads what the self-test left in the ring, keeps the records of
// others for Read, and tells which hooks' records came through.
func (o *Observer) drainSelfTest() (received [hookCount]bool, err error) {
	err = o.rd.drain(func(raw []byte) error {
		hook, others := o.origin(raw)
		if hook < hookCount {
			received[hook] = true // also if others, of a cgroup that is not ours alone, were first
		}
		if others {
			o.early = append(o.early, append([]byte(nil), raw...))
			return nil
		}
		return o.one(raw, nil)
	})
	if err != nil {
		return received, fmt.Errorf("read the ring buffer: %w", err)
	}
	// Its loopback traffic must not pass for the run's.
	return received, deleteFrom(o.loaded.slot.maps["endpoints"], func(v []byte) bool {
		return (*traffic)(unsafe.Pointer(unsafe.SliceData(v))).Cgroup == o.selfCgroup
	})
}

// origin tells which hook a raw record is of, and whether it is of others than
// the self-test. What is no record is nobody's.
func (o *Observer) origin(raw []byte) (hook HookID, others bool) {
	var r record
	if !r.parse(raw) {
		return hookCount, false
	}
	own := r.u64(offCgroup) == o.selfCgroup || Kind(r.u16(offKind)) == KindFork && r.arg(3) == o.selfCgroup
	return HookID(r.u16(offHook)), !own
}
