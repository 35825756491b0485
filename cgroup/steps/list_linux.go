package steps

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// List is a list of steps that is being made. It is not safe for concurrent use.
type List struct {
	steps    []entry
	data     []byte
	pointers []Ref // words that hold a Ref and become an address
	labels   []uint32
	texts    map[string]Ref
	onError  Label
}

// Ref is a place in a list's data. As an argument it stands for its address.
type Ref uint32

// Value is a place in a list's data, and as an argument the word that is there.
type Value Ref

// Label is a step that others lead to. The zero Label is the end of the list.
type Label int

// entry is a step before the places of data and labels are known.
type entry struct {
	nr     int32
	out    Ref
	args   [6]argument
	errnos [2]unix.Errno
	to     [3]Label // of errnos, and of any other error
}

type argument struct {
	kind  uint8
	value uint64
}

// next is the label of the step that follows, failures and environ are places in front
// of a list's data.
const (
	next     Label = -1
	failures Ref   = 1<<32 - 16
	environ  Ref   = 1<<32 - 32
)

// AnyErrno is given to Step.On for all errors that have no label of their own.
const AnyErrno = unix.Errno(1<<16 - 1)

// New returns an empty list.
func New() *List {
	return &List{data: make([]byte, 8, 4096), labels: []uint32{1<<32 - 1}, texts: map[string]Ref{}}
}

// Len is the number of the step that comes next, as failures name it.
func (l *List) Len() int { return len(l.steps) }

// Step is a step of a list. Its methods say more about the step that was just added.
type Step struct {
	l *List
	i int
}

// Call makes a system call. An argument is an integer, a string (the address of a copy with
// a NUL), a Ref, or a Value.
func (l *List) Call(nr int, args ...any) Step { return l.add(int32(nr), args...) }

// Set puts a value into the word at out.
func (l *List) Set(out Ref, value any) { l.Make(out, value, 0, ^uint64(0), 0) }

// Make puts (value >> shift & mask) + plus into the word at out.
func (l *List) Make(out Ref, value any, shift int, mask uint64, plus any) {
	l.add(opMake, value, shift, mask, plus).Into(out)
}

// If leads to a label if value & mask is equal to want.
func (l *List) If(value any, mask uint64, want any, to Label) {
	l.add(opIf, value, mask, want)
	l.steps[len(l.steps)-1].to[0] = to
}

// Goto leads to a label.
func (l *List) Goto(to Label) { l.If(0, 0, 0, to) }

// Fail fails with errno, as a call does.
func (l *List) Fail(errno unix.Errno) Step { return l.add(opFail, int(errno)) }

// Program ends the list: the process goes on as the program that it is, without the list's
// arguments: as if it had been started with the name and what follows the descriptor's number.
// It is still the same process: not dumpable, say, if a step made it that.
func (l *List) Program() { l.add(opProgram) }

// Label returns a label, to be placed by At.
func (l *List) Label() Label {
	l.labels = append(l.labels, 1<<32-1)
	return Label(len(l.labels) - 1)
}

// At places a label in front of the next step.
func (l *List) At(label Label) { l.labels[label] = uint32(len(l.steps)) }

// OnError says where errors of the following steps lead; the zero Label is the end.
func (l *List) OnError(to Label) { l.onError = to }

func (l *List) add(nr int32, args ...any) Step {
	e := entry{nr: nr, to: [3]Label{2: l.onError}}
	for i, a := range args {
		e.args[i] = l.argument(a)
	}
	l.steps = append(l.steps, e)
	return Step{l, len(l.steps) - 1}
}

func (l *List) argument(a any) argument {
	switch a := a.(type) {
	case int:
		return argument{number, uint64(a)}
	case uint64:
		return argument{number, a}
	case uintptr:
		return argument{number, uint64(a)}
	case unix.Signal:
		return argument{number, uint64(a)}
	case string:
		return argument{address, uint64(l.text(a))}
	case Ref:
		return argument{address, uint64(a)}
	case Value:
		return argument{word, uint64(a)}
	}
	panic(fmt.Sprintf("steps: an argument of type %T", a))
}

// Into puts a call's result into the word at out.
func (s Step) Into(out Ref) Step {
	s.l.steps[s.i].out = out
	return s
}

// On says where errors lead, at most two in all.
func (s Step) On(to Label, errnos ...unix.Errno) Step {
	e := &s.l.steps[s.i]
	for _, errno := range errnos {
		i := 0
		if e.errnos[0] != 0 {
			i = 1
		}
		if e.errnos[i] != 0 {
			panic("steps: a step with more than two errnos")
		}
		e.errnos[i], e.to[i] = errno, to
	}
	return s
}

// Ignore goes on with the next step after these errors.
func (s Step) Ignore(errnos ...unix.Errno) Step { return s.On(next, errnos...) }

// Space returns n bytes of zeros.
func (l *List) Space(n int) Ref { return l.Bytes(make([]byte, n)) }

// Word returns a word of 64 bits.
func (l *List) Word(value uint64) Ref {
	return l.Bytes(binary.NativeEndian.AppendUint64(nil, value))
}

// Bytes returns a copy of b, which begins at a multiple of 8.
func (l *List) Bytes(b []byte) Ref {
	at := Ref(len(l.data))
	l.data = append(l.data, b...)
	for len(l.data)%8 != 0 {
		l.data = append(l.data, 0)
	}
	return at
}

// text returns a copy of s with a NUL. It is shared by all who ask for the same.
func (l *List) text(s string) Ref {
	at, ok := l.texts[s]
	if !ok {
		at = l.Bytes(append([]byte(s), 0))
		l.texts[s] = at
	}
	return at
}

// Pointer makes the word at at the address of to.
func (l *List) Pointer(at, to Ref) {
	binary.NativeEndian.PutUint64(l.data[at:], uint64(to))
	l.pointers = append(l.pointers, at)
}

// Put puts a value into the word at at.
func (l *List) Put(at Ref, value uint64) { binary.NativeEndian.PutUint64(l.data[at:], value) }

// Strings returns an array of pointers to strings that ends with a null pointer, as
// execve(2) takes it.
func (l *List) Strings(list []string) Ref {
	array := l.Space(8 * (len(list) + 1))
	for i, s := range list {
		l.Pointer(array+Ref(8*i), l.text(s))
	}
	return array
}

// Environ is the environment that the process was started with, as execve(2) takes it.
func (l *List) Environ() Value { return Value(environ) }

// Failures are where failed steps are written down: a word that is the list's to use,
// a word with the length of what follows in bytes, and what [ParseFailures] reads.
func (l *List) Failures() Ref { return failures }

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

// Run executes the list in the calling thread, which the caller has locked, and returns what
// failed. The list's Environ is empty.
func (l *List) Run() []Failure {
	image := l.image()
	h := (*header)(unsafe.Pointer(&image[0]))
	h.environ = uint64(uintptr(unsafe.Pointer(&nobody)))
	interpret(unsafe.Pointer(&image[0]))
	failed := ParseFailures(image[h.failures+16:][:*(*uint64)(unsafe.Pointer(&image[h.failures+8]))])
	runtime.KeepAlive(image)
	return failed
}
