package shim

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maskDir holds, on the tmpfs that is /dev, what covers hidden files while the
// mounts are made. It is gone when the command starts.
const maskDir = "/dev/.assay-run"

// devices are those that every program may use; /dev/pts is a new instance, in
// which no terminal of anybody else exists.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// procReadOnly are the parts of /proc that are the machine's, not a process's.
var procReadOnly = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "tty", "driver"}

// devices replaces /dev. The mask is made there too, since /dev is always ours.
func (s *shim) devices(m *Mounts) error {
	if !m.Devices {
		return nil
	}
	return s.do(Files, "mount /dev", func() error {
		fds := map[string]int{}
		for _, name := range devices {
			fd, err := clone("/dev/" + name)
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			if err != nil {
				return err
			}
			fds[name] = fd
		}
		if fd, err := cloneTerminal(); err != nil {
			return err
		} else if fd >= 0 {
			fds["console"] = fd
		}
		if err := tmpfs("/dev", "mode=0755,size=64k", unix.MS_NOEXEC); err != nil {
			return err
		}
		for name, fd := range fds {
			if err := touch("/dev/"+name, 0o644); err != nil {
				return err
			}
			if err := attach(fd, "/dev/"+name); err != nil {
				return err
			}
		}
		for _, link := range [][2]string{
			{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
			{"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
		} {
			if err := os.Symlink(link[0], "/dev/"+link[1]); err != nil {
				return err
			}
		}
		for _, dir := range []string{"/dev/pts", "/dev/shm", maskDir} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
			return fmt.Errorf("mount devpts: %w", err)
		}
		if err := tmpfs("/dev/shm", "mode=1777", 0); err != nil {
			return err
		}
		return errors.Join(os.Mkdir(maskDir+"/dir", 0), touch(maskDir+"/file", 0))
	})
}

// cloneTerminal opens a detached copy of the terminal that a stream is, or
// returns -1: ttyname(3) looks in /dev for it, as /dev/pts is a new one.
func cloneTerminal() (int, error) {
	for fd := range 3 {
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			if err != nil || !strings.HasPrefix(path, "/dev/") {
				continue
			}
			if fd, err := clone(path); !errors.Is(err, unix.ENOENT) {
				return fd, err
			}
		}
	}
	return -1, nil
}

func touch(path string, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

// finishDevices takes away what only making the mounts needed: the masks, and the
// right to write to /dev, and to /dev/shm where the profile gives none. What is
// shown below that has been put there by now.
func (s *shim) finishDevices(m *Mounts) error {
	if !m.Devices {
		return nil
	}
	return s.do(Files, "make /dev read-only", func() error {
		var shm error
		if !m.Shm {
			shm = setReadOnly(unix.AT_FDCWD, "/dev/shm", 0)
		}
		return errors.Join(shm, os.RemoveAll(maskDir), setReadOnly(unix.AT_FDCWD, "/dev", 0))
	})
}

func (s *shim) proc(m *Mounts) error {
	if !m.Proc {
		return nil
	}
	err := s.do(Files, "mount /proc", func() error {
		if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return &os.PathError{Op: "mount proc", Path: "/proc", Err: err}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.do(Files, "make /proc/sys read-only", func() error {
		for _, name := range procReadOnly {
			path := "/proc/" + name
			if err := bind(path, path, true); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		return nil
	})
}
