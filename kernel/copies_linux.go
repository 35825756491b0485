//go:build linux && (amd64 || arm64)

package kernel

import (
	"crypto/rand"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/bpf"
)

// lessonDir opens an empty directory for the calls that succeed. It is the root of a tmpfs
// that is mounted nowhere, and that goes with this process however that ends. Without
// CAP_SYS_ADMIN it is a temporary directory.
func lessonDir() (dir int, release func(), err error) {
	if fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC); err == nil {
		defer unix.Close(fs)
		if err := unix.FsconfigCreate(fs); err != nil {
			return 0, nil, os.NewSyscallError("fsconfig", err)
		}
		dir, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
		return dir, func() { unix.Close(dir) }, os.NewSyscallError("fsmount", err)
	}
	name, err := os.MkdirTemp("", "assay-run-")
	if err != nil {
		return 0, nil, err
	}
	dir, err = unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		os.RemoveAll(name)
		return 0, nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return dir, func() {
		unix.Close(dir)
		os.RemoveAll(name)
	}, nil
}

// giveLesson makes calls that take names, in the empty directory home: with a name that does not exist, with one in a
// directory that does not exist, and with one that exists. It changes the thread's working directory.
func giveLesson(prog *ebpf.Program, home int) error {
	if err := unix.Fchdir(home); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	unique := rand.Text()
	// LESSON of bpf/names.h
	names, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer unix.Munmap(names)
	at := func(offset int, suffix string) uintptr {
		copy(names[offset:], unique+suffix+"\x00")
		return uintptr(unsafe.Pointer(&names[offset]))
	}
	name, other := at(0, ""), at(1024, "-")
	lost := at(2048, "/x")
	lesson := bpf.AssayLesson{At: uint64(name), Name: [2]uint64{le.Uint64(names), le.Uint64(names[8:])}}
	if ret, err := prog.Run(&ebpf.RunOptions{Context: &lesson}); err != nil || ret != 0 {
		return fmt.Errorf("%d, %w", ret, err)
	}
	here := unix.AT_FDCWD
	cwd := uintptr(here)
	do := func(nr uintptr, args ...uintptr) uintptr {
		var a [6]uintptr
		copy(a[:], args)
		ret, _, _ := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		return ret
	}
	touch := func(n uintptr) {
		if fd := do(unix.SYS_OPENAT, cwd, n, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600); fd < 1<<20 {
			unix.Close(int(fd))
		}
	}
	two := func(a, b uintptr) {
		do(unix.SYS_LINKAT, cwd, a, cwd, b, 0)
		do(unix.SYS_RENAMEAT2, cwd, a, cwd, b, unix.RENAME_NOREPLACE)
		do(unix.SYS_RENAMEAT2, cwd, a, cwd, b, unix.RENAME_EXCHANGE)
		do(unix.SYS_RENAMEAT2, cwd, a, cwd, b, 0)
	}
	each := func(n uintptr) {
		do(unix.SYS_FCHMODAT, cwd, n, 0o700)
		do(unix.SYS_FCHOWNAT, cwd, n, ^uintptr(0), ^uintptr(0), 0)
		do(unix.SYS_UTIMENSAT, cwd, n, 0, 0)
		do(unix.SYS_TRUNCATE, n, 0)
		do(unix.SYS_SETXATTR, n, n, 0, 0, 0)
		do(unix.SYS_REMOVEXATTR, n, n)
		do(unix.SYS_CHDIR, n)
		do(unix.SYS_FCHDIR, uintptr(home))
		do(unix.SYS_UMOUNT2, n, 0)
		do(unix.SYS_MOUNT, 0, n, n, 0, 0)
		do(unix.SYS_EXECVE, n, 0, 0)
		do(unix.SYS_SYMLINKAT, n, cwd, n)
		do(unix.SYS_MKNODAT, cwd, n, unix.S_IFIFO|0o600, 0)
		do(unix.SYS_MKDIRAT, cwd, n, 0o700)
		do(unix.SYS_UNLINKAT, cwd, n, unix.AT_REMOVEDIR)
		do(unix.SYS_UNLINKAT, cwd, n, 0)
	}
	each(lost) // nothing of it is there
	two(lost, name)
	two(name, lost)
	two(name, other)
	do(unix.SYS_UNLINKAT, cwd, name, 0)
	do(unix.SYS_UNLINKAT, cwd, name, unix.AT_REMOVEDIR)
	each(name) // makes a link and removes it
	do(unix.SYS_MKDIRAT, cwd, name, 0o700)
	each(name) // a directory: what makes one fails, and one removes it
	touch(name)
	touch(name)
	two(name, other)
	touch(name)
	touch(other)
	two(name, other)
	two(other, lost)
	do(unix.SYS_UNLINKAT, cwd, other, unix.AT_REMOVEDIR)
	do(unix.SYS_UNLINKAT, cwd, other, 0)
	do(unix.SYS_MKNODAT, cwd, name, unix.S_IFIFO|0o600, 0)
	each(name)
	do(unix.SYS_MKDIRAT, cwd, name, 0o700)
	do(unix.SYS_UNLINKAT, cwd, name, unix.AT_REMOVEDIR)
	return nil
}
