package steps

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// call makes a system call and returns what the kernel does: -errno for an error.
//
//go:noescape
func call(nr, a, b, c, d, e, f uintptr) uintptr

// exitStatus is that of a process whose list came to its end or cannot be read.
const exitStatus = 125

// execute maps the list in descriptor fd, executes it, and exits, or returns where the list says so.
// It and what it calls run without a Go runtime too: on the process's first stack, with no g and no
// heap. So they do not grow the stack, allocate, or panic.
//
//go:nosplit
//go:norace
//go:nocheckptr
func execute(fd, environ uintptr) {
	size := call(unix.SYS_LSEEK, fd, 0, unix.SEEK_END, 0, 0, 0)
	at := call(unix.SYS_MMAP, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_POPULATE, fd, 0)
	call(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
	if !failed(size) && !failed(at) && size >= uintptr(headerSize) {
		list := *(*unsafe.Pointer)(unsafe.Pointer(&at))
		if h := (*header)(list); h.magic == magic && h.size == uint64(size) {
			h.environ = uint64(environ)
			if interpret(list) {
				return
			}
		}
	}
	for {
		call(unix.SYS_EXIT_GROUP, exitStatus, 0, 0, 0, 0, 0)
	}
}

// failed reports whether the result of a system call is an error.
//
//go:nosplit
//go:norace
func failed(result uintptr) bool { return result > ^uintptr(4095) }

// interpret executes a list that is mapped. It reports whether the process goes on as a program.
//
//go:nosplit
//go:norace
//go:nocheckptr
func interpret(list unsafe.Pointer) (program bool) {
	h := (*header)(list)
	for i := uint64(0); i < h.pointers; i++ {
		place := *(*uint32)(unsafe.Add(list, h.at+4*i))
		*(*uint64)(unsafe.Add(list, place)) += uint64(uintptr(list))
	}
	for i := uint64(0); i < h.steps; {
		s := (*step)(unsafe.Add(list, headerSize+i*stepSize))
		a, b, c := operand(list, s, 0), operand(list, s, 1), operand(list, s, 2)
		var result uintptr
		switch s.nr {
		case opMake:
			result = (a>>b)&c + operand(list, s, 3)
		case opIf:
			if i++; a&b == c {
				i = uint64(s.to[0])
			}
			continue
		case opProgram:
			return true
		case opFail:
			result = -a
		default:
			result = call(uintptr(s.nr), a, b, c, operand(list, s, 3), operand(list, s, 4), operand(list, s, 5))
		}
		if s.nr == opMake || !failed(result) {
			if s.out != 0 {
				*(*uint64)(unsafe.Add(list, s.out)) = uint64(result)
			}
			i++
			continue
		}
		switch errno := uint16(-result); {
		case errno == s.errno[0]:
			i = uint64(s.to[0])
		case errno == s.errno[1]:
			i = uint64(s.to[1])
		case errno == uint16(unix.EINTR):
		case s.errno[0] == uint16(AnyErrno):
			i = uint64(s.to[0])
		case s.errno[1] == uint16(AnyErrno):
			i = uint64(s.to[1])
		default:
			written := (*uint64)(unsafe.Add(list, h.failures+8))
			if *written < 8*h.steps {
				*(*uint64)(unsafe.Add(list, h.failures+16+*written)) = i | uint64(errno)<<32
				*written += 8
			}
			i = uint64(s.to[2])
		}
	}
	return false
}

// operand is an argument of a step.
//
//go:nosplit
//go:norace
//go:nocheckptr
func operand(list unsafe.Pointer, s *step, i uintptr) uintptr {
	value := *(*uint64)(unsafe.Add(unsafe.Pointer(&s.args), 8*i))
	switch *(*uint8)(unsafe.Add(unsafe.Pointer(&s.kinds), i)) {
	case address:
		value += uint64(uintptr(list))
	case word:
		value = *(*uint64)(unsafe.Add(list, value))
	}
	return uintptr(value)
}

// nobody is an environment without variables.
var nobody [1]uintptr
