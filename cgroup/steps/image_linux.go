package steps

import (
	"encoding/binary"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/role"
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

// Args are the arguments of a process that executes the list in descriptor fd. What says what the
// process is for, to people and to Is.
//
// If the list ends with [List.Program], further arguments are those of the program, without its
// name.
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
