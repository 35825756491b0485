//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func cstr(s string) uintptr {
	b, err := syscall.BytePtrFromString(s)
	check(s, err)
	return uintptr(unsafe.Pointer(b))
}

// raw makes a system call by its name in the table. Where the instruction set
// lacks it, it makes the one that took its place.
func raw(name string, args ...uintptr) uintptr {
	for _, row := range sysRows {
		if row.name != name {
			continue
		}
		for _, n := range row.numbers(nativeColumn[runtime.GOARCH]) {
			var a [6]uintptr
			copy(a[:], args)
			r, _, e := syscall.RawSyscall6(uintptr(n), a[0], a[1], a[2], a[3], a[4], a[5])
			if e != 0 {
				return ^uintptr(e) + 1
			}
			return r
		}
	}
	newer := successors[name]
	if newer == nil {
		check(name, fmt.Errorf("not on this architecture"))
	}
	name, args = newer(args)
	return raw(name, args...)
}

// successors are what newer instruction sets, such as arm64, have in place of calls
// that name a file without a directory.
var successors = map[string]func(a []uintptr) (string, []uintptr){
	"unlink":  func(a []uintptr) (string, []uintptr) { return "unlinkat", []uintptr{atFDCWD, a[0], 0} },
	"rmdir":   func(a []uintptr) (string, []uintptr) { return "unlinkat", []uintptr{atFDCWD, a[0], unix.AT_REMOVEDIR} },
	"mkdir":   func(a []uintptr) (string, []uintptr) { return "mkdirat", []uintptr{atFDCWD, a[0], a[1]} },
	"rename":  func(a []uintptr) (string, []uintptr) { return "renameat", []uintptr{atFDCWD, a[0], atFDCWD, a[1]} },
	"symlink": func(a []uintptr) (string, []uintptr) { return "symlinkat", []uintptr{a[0], atFDCWD, a[1]} },
	"chmod":   func(a []uintptr) (string, []uintptr) { return "fchmodat", []uintptr{atFDCWD, a[0], a[1]} },
}

const atFDCWD = ^uintptr(99)

func dirfd(path string) uintptr {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	check(path, err)
	return uintptr(fd)
}

func writeWith(path string, fn func(fd uintptr)) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR, 0o600)
	check(path, err)
	fn(uintptr(fd))
	unix.Close(fd)
}

func open(path string) uintptr {
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	check(path, err)
	return uintptr(fd)
}
