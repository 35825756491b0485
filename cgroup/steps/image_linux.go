package steps

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"github.com/assay-run/assay-run/cgroup/role"
	"golang.org/x/sys/unix"
)

// header is the begin of a list in memory. Places are in bytes from it.
type header struct {
	magic    uint64
	size     uint64
	steps    uint64 // how many, from here on
	pointers uint64 // how many words to add the list's address to
	at       uint64 // of the places of those words, each of 32 bits
	failures uint64 // of a word of the list's own, one with what was written in bytes, and all that
	environ  uint64
	_        uint64
}

// step is a step as it is executed.
type step struct {
	nr    int32
	out   uint32 // place of the word for the result; 0 for none
	errno [2]uint16
	to    [3]uint32
	kinds [6]uint8
	_     [2]uint8
	args  [6]uint64
	_     uint64
}

// Kinds of arguments.
const (
	number  = 0
	address = 1 // a place in the list
	word    = 2 // what is at a place in the list
)

// Numbers of steps that are no system calls.
const (
	opMake = -1
	opIf   = -2
	opFail = -3

	opProgram = -4
)

const (
	magic      = 0x3173706574736100 // NUL "asteps1"
	headerSize = uint64(unsafe.Sizeof(header{}))
	stepSize   = uint64(unsafe.Sizeof(step{}))
)

// Failure is a step that failed.
type Failure struct {
	Step  int
	Errno unix.Errno
}

// ParseFailures reads what a list sends of its failures from the third word on.
func ParseFailures(b []byte) []Failure {
	var list []Failure
	for ; len(b) >= 8; b = b[8:] {
		list = append(list, Failure{int(binary.NativeEndian.Uint32(b)), unix.Errno(binary.NativeEndian.Uint32(b[4:]))})
	}
	return list
}

// image is the list as the interpreter wants it, at a multiple of 8.
func (l *List) image() []byte {
	n := uint64(len(l.steps))
	data := headerSize + n*stepSize
	at := data + uint64(len(l.data))
	failuresAt := (at + 4*uint64(len(l.pointers)) + 7) &^ 7
	size := failuresAt + 16 + 8*n
	words := make([]uint64, size/8)
	image := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
	place := func(r Ref) uint64 {
		switch {
		case r >= failures:
			return failuresAt + uint64(r-failures)
		case r == environ:
			return uint64(unsafe.Offsetof(header{}.environ))
		}
		return data + uint64(r)
	}
	*(*header)(unsafe.Pointer(&words[0])) = header{magic: magic, size: size, steps: n,
		pointers: uint64(len(l.pointers)), at: at, failures: failuresAt}
	all := unsafe.Slice((*step)(unsafe.Pointer(&words[headerSize/8])), n)
	for i := range l.steps {
		e, s := &l.steps[i], &all[i]
		s.nr = e.nr
		if e.out != 0 {
			s.out = uint32(place(e.out))
		}
		for j, errno := range e.errnos {
			s.errno[j] = uint16(errno)
		}
		for j, to := range e.to {
			if s.to[j] = l.labels[max(to, 0)]; to == next {
				s.to[j] = uint32(i + 1)
			}
		}
		for j, a := range e.args {
			if s.kinds[j], s.args[j] = a.kind, a.value; a.kind != number {
				s.args[j] = place(Ref(a.value))
			}
		}
	}
	copy(image[data:], l.data)
	for i, p := range l.pointers {
		binary.NativeEndian.PutUint32(image[at+4*uint64(i):], uint32(place(p)))
		binary.NativeEndian.PutUint64(image[place(p):], place(Ref(binary.NativeEndian.Uint64(l.data[p:]))))
	}
	return image
}

// File returns the list in a sealed file in memory, for a process that is started with Args.
func (l *List) File() (*os.File, error) {
	fd, err := unix.MemfdCreate("steps", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "steps")
	if _, err = f.Write(l.image()); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|
			unix.F_SEAL_WRITE)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("list of steps: %w", err), f.Close())
	}
	return f, nil
}

// Args are the arguments of a process that executes the list in descriptor fd. What says
// to people, and to Is, what it is for.
//
// More of them are what is left, after the program's name, where the list ends with [List.Program].
func Args(fd int, what ...string) []string {
	return append(role.Steps.Args(strconv.Itoa(fd)), what...)
}

// After returns the arguments that are left of argv when its list is at [List.Program]. It
// returns argv where that is none of a list.
func After(argv []string) []string {
	if len(argv) < 4 || !role.Steps.Is(argv) {
		return argv
	}
	return append([]string{role.Name}, argv[3:]...)
}

// Is reports whether argv is that of a list for what. It does not tell whose program it is:
// compare the executable.
func Is(argv []string, what string) bool {
	return len(argv) == 4 && role.Steps.Is(argv) && argv[3] == what
}
