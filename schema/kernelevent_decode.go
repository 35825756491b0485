package schema

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
)

// DecodeKernelEvent reads one line, without its newline, into e, which it
// overwrites. It is what every reader of the kernel layer uses. Both
// kernel_event.v1 and the closed v0 form are read; v0 leaves what only v1 has at
// its default and sets V0.
//
// It accepts what the JSON Schemas accept, unless a derived value contradicts what
// it derives from or a number does not fit its field. Errors wrap [ErrSyntax],
// [ErrDuplicateKey] or [ErrSchema], and leave e in any state. Strings of e do not
// refer to line. e may be used again for the next line; slices in it are new for
// each.
func DecodeKernelEvent(line []byte, e *KernelEvent) error {
	d := kernelDecoder{scanner: scanner{b: line}, e: e, run: e.RunID}
	*e = KernelEvent{}
	err := d.line()
	if err == nil {
		return nil
	}
	if serr := checkSyntax(line); serr != nil {
		return serr
	}
	if errors.Is(err, errNotJSON) {
		// The scanner is as strict as JSON is, so this is a defect of ours.
		return fmt.Errorf("%w: the line cannot be read", ErrSchema)
	}
	return fmt.Errorf("%w: %s", ErrSchema, oneLine(err.Error()))
}

// kernelDecoder reads one line. Its scanner finds the members; kernelevent_members.go
// reads each, and kernelevent_rules.go holds what they say against each other.
type kernelDecoder struct {
	scanner
	e    *KernelEvent
	run  string // the run id of the line before, whose string is used again
	have members

	// What follows from other members, and is held against them.
	kind, access, status, errno, host []byte
	ops, port                         uint64

	exit   uint64
	signal []byte
	raw    map[string]string
}

func (d *kernelDecoder) line() error {
	next := member(0)
	err := d.object(func(key []byte) error {
		m, ok := memberOf(key, next)
		if !ok {
			return fmt.Errorf("key %.100q is not known", key)
		}
		if d.have.has(m) {
			return fmt.Errorf("key %q is repeated", key)
		}
		d.have |= 1 << m
		next = m + 1
		if err := d.member(m); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		return nil
	})
	if err == nil {
		err = d.end()
	}
	if err == nil {
		err = d.rules()
	}
	return err
}

// text reads a string of at least min bytes.
func (d *kernelDecoder) text(min int) (string, error) {
	s, err := d.str()
	if err == nil && len(s) < min {
		err = errors.New("is empty")
	}
	return string(s), err
}

// texts reads an array of at least min strings; it is not nil.
func (d *kernelDecoder) texts(min int) ([]string, error) {
	list := []string{}
	err := d.array(func() error {
		s, err := d.str()
		list = append(list, string(s))
		return err
	})
	if err == nil && len(list) < min {
		err = errors.New("is empty")
	}
	return list, err
}

// set reads an array of one or more different names into the bits of a set.
func (d *kernelDecoder) set(names []string) (set uint8, err error) {
	err = d.array(func() error {
		s, err := d.str()
		if err != nil {
			return err
		}
		i := slices.Index(names, string(s))
		if i < 0 || set&(1<<i) != 0 {
			return fmt.Errorf("%.100q is not known, or repeated", s)
		}
		set |= 1 << i
		return nil
	})
	if err == nil && set == 0 {
		err = errors.New("is empty")
	}
	return set, err
}

// only reads a value that can be nothing but true.
func (d *kernelDecoder) only() error {
	if !d.word("true") {
		return errors.New("is not true")
	}
	return nil
}

// errRange is wrapped for a whole number that does not fit its field. The JSON
// Schemas have no bound for it.
var errRange = errors.New("the number is too large")

// unsigned reads a whole number between least and most.
func (d *kernelDecoder) unsigned(least, most uint64) (uint64, error) {
	n, err := d.number()
	if err != nil {
		return 0, err
	}
	v, ok := natural(n)
	switch {
	case !ok || v < least:
		return 0, fmt.Errorf("%.40s is not a whole number from %d to %d", n, least, most)
	case v > most:
		return 0, fmt.Errorf("%w: %d, at most %d", errRange, v, most)
	}
	return v, nil
}

func (d *kernelDecoder) uint32(least uint64) (uint32, error) {
	v, err := d.unsigned(least, math.MaxUint32)
	return uint32(v), err
}

func (d *kernelDecoder) uint64(least uint64) (uint64, error) {
	return d.unsigned(least, math.MaxUint64)
}

func (d *kernelDecoder) int64() (int64, error) {
	n, err := d.number()
	if err != nil {
		return 0, err
	}
	return signed(n)
}

// signed reads plain digits, with a minus sign if the number is below 0.
func signed(n []byte) (int64, error) {
	digits, minus := bytes.CutPrefix(n, []byte{'-'})
	v, ok := natural(digits)
	switch {
	case ok && !minus && v <= math.MaxInt64:
		return int64(v), nil
	case ok && minus && v > 0 && v <= 1<<63:
		return -int64(v), nil
	case ok && !minus:
		return 0, fmt.Errorf("%w: %s, at most %d", errRange, n, int64(math.MaxInt64))
	}
	return 0, fmt.Errorf("%.40s is not a whole number in plain digits of 64 bits", n)
}

// natural reads plain digits; ok is false for anything else, and beyond 64 bits.
func natural(digits []byte) (v uint64, ok bool) {
	for _, c := range digits {
		n := uint64(c - '0')
		if n > 9 || v > (math.MaxUint64-n)/10 {
			return 0, false
		}
		v = 10*v + n
	}
	return v, len(digits) > 0
}
