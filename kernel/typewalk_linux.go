//go:build linux && (amd64 || arm64)

package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
)

var errBTF = errors.New("broken BTF")

// stretch is a part of the types that is walked for itself.
type stretch struct {
	at, end uint32   // where the walk is, and where it is to end
	first   uint32   // the id of its first type
	count   uint32   // of the types that it has been through
	marks   []uint32 // the offsets of its first type and of each markEvery-th after it
	named   []uint32 // those of types that are looked for by name
	casts   []uint32 // and among others those of what has a name like castFunction
}

const (
	// markEvery is small enough to be quick to go on from, and large enough that the marks
	// are few pages.
	markEvery = 16

	// A CPU walks four stretches in less than twice the time of one.
	stretches = 8

	// plausible is how many types in a row have to look like types for a guess.
	plausible = 16
)

// walk finds the place of every type. Only the one before tells where a type is, so the
// CPU would wait for each. So the types are walked in stretches, of which all but the first
// begin at a guess. A guess was right if the stretch before ends there; else that one goes
// on to the end of what was guessed, of which nothing is kept.
func (t *rawTypes) walk() error {
	parts := t.split()
	for four := range slices.Chunk(parts, 4) {
		if len(four) == 4 {
			t.walkFour(four[0], four[1], four[2], four[3])
		}
	}
	t.parts, t.count = parts[:0], 1
	for len(parts) > 0 {
		s := parts[0]
		t.walkOne(s)
		for parts = parts[1:]; s.at != s.end && len(parts) > 0; parts = parts[1:] {
			s.end = parts[0].end
			t.walkOne(s)
		}
		if s.at != s.end {
			return fmt.Errorf("%w: a type after the first %d has no end", errBTF, t.count-1)
		}
		s.first = t.count
		t.count += s.count
		t.parts = append(t.parts, s)
		for _, off := range s.casts {
			if kind, _ := t.info(off); kind == kindFunc && t.named(t.u32(off), castFunction) {
				t.cast = t.idOf(off)
			}
		}
	}
	return nil
}

// split guesses where the stretches begin. Where that cannot be told there is but one.
func (t *rawTypes) split() []*stretch {
	size := uint32(len(t.types))
	each := size / stretches &^ 3
	parts := make([]*stretch, stretches)
	for i := range parts {
		at := each * uint32(i)
		if i > 0 {
			var ok bool
			if at, ok = t.guess(at, at+each); !ok {
				return []*stretch{{end: size}}
			}
			parts[i-1].end = at
		}
		// Room for as much as a kernel has, so that nothing has to grow.
		parts[i] = &stretch{at: at, end: size, marks: make([]uint32, 0, each/16/markEvery), named: make([]uint32, 0, each/64)}
	}
	return parts
}

// guess finds what looks like the beginning of a type.
func (t *rawTypes) guess(from, to uint32) (uint32, bool) {
	for ; from < to; from += 4 {
		at, n := from, 0
		for ; n < plausible && at < to && uint64(at)+typeHeader <= uint64(len(t.types)); n++ {
			const unused = 0x60ff0000 // of the word with kind and vlen
			if t.u32(at+4)&unused != 0 || uint64(t.u32(at)) >= uint64(len(t.names)) {
				break
			}
			at = t.after(at)
		}
		if n == plausible && at < to {
			return from, true
		}
	}
	return 0, false
}

// after is the offset of the type after the one at off, or at least beyondTypes.
func (t *rawTypes) after(off uint32) uint32 {
	kind, vlen := t.info(off)
	return off + typeKinds[kind].size + vlen*typeKinds[kind].each
}

// walkFour goes on with four stretches by turns, until one of them ends. It does not
// branch on a type's kind, which a CPU guesses badly.
func (t *rawTypes) walkFour(a, b, c, d *stretch) {
	types, names := t.types, t.names
	begins := le.Uint64([]byte(castFunction))
	if len(names) < 8 {
		return
	}
	last := uint32(len(names) - 8)
	atA, atB, atC, atD := a.at, b.at, c.at, d.at
	endA, endB, endC, endD := within(types, a.end), within(types, b.end), within(types, c.end), within(types, d.end)
	for n := uint32(markEvery); n == markEvery; {
		var named [4][markEvery]uint32
		var inA, inB, inC, inD uint32 // how many there are
		for n = 0; n < markEvery && atA < endA && atB < endB && atC < endC && atD < endD; n++ {
			if begin(types, names, atA, last) == begins || begin(types, names, atB, last) == begins ||
				begin(types, names, atC, last) == begins || begin(types, names, atD, last) == begins {
				a.casts, b.casts, c.casts, d.casts = append(a.casts, atA), append(b.casts, atB), append(c.casts, atC), append(d.casts, atD)
			}
			named[0][inA%markEvery], named[1][inB%markEvery], named[2][inC%markEvery], named[3][inD%markEvery] = atA, atB, atC, atD
			atA, inA = step(types, atA, inA)
			atB, inB = step(types, atB, inB)
			atC, inC = step(types, atC, inC)
			atD, inD = step(types, atD, inD)
		}
		a.add(n, atA, named[0][:inA])
		b.add(n, atB, named[1][:inB])
		c.add(n, atC, named[2][:inC])
		d.add(n, atD, named[3][:inD])
	}
}

// walkOne goes on with one stretch, to its end or beyond.
func (t *rawTypes) walkOne(s *stretch) {
	for end := within(t.types, s.end); s.at < end; {
		if t.named(t.u32(s.at), castFunction) {
			s.casts = append(s.casts, s.at)
		}
		if s.count%markEvery == 0 {
			s.marks = append(s.marks, s.at)
		}
		if kind, _ := t.info(s.at); typeKinds[kind].named != 0 {
			s.named = append(s.named, s.at)
		}
		s.count++
		s.at = t.after(s.at)
	}
}

// add takes in types of a block that begins with a mark.
func (s *stretch) add(n, at uint32, named []uint32) {
	if n > 0 {
		s.marks = append(s.marks, s.at)
	}
	s.named = append(s.named, named...)
	s.count += n
	s.at = at
}

// within is end, or where the last type can begin that has a whole header.
func within(types []byte, end uint32) uint32 {
	return min(end, uint32(max(len(types)-typeHeader+1, 0)))
}

// begin is the first eight bytes of a type's name.
func begin(types, names []byte, at, last uint32) uint64 {
	return le.Uint64(names[min(binary.NativeEndian.Uint32(types[at:]), last):])
}

// step is [rawTypes.after], and counts what is looked for by name.
func step(types []byte, at, named uint32) (next, n uint32) {
	info := binary.NativeEndian.Uint32(types[at+4:])
	k := &typeKinds[info>>24&0x1f]
	return at + k.size + info&0xffff*k.each, named + k.named
}

// at is the offset of a type that is not void.
func (t *rawTypes) at(id uint32) (off uint32, ok bool) {
	if id == 0 || id >= t.count {
		return 0, false
	}
	i := len(t.parts) - 1
	for id < t.parts[i].first {
		i--
	}
	id -= t.parts[i].first
	off = t.parts[i].marks[id/markEvery]
	for range id % markEvery {
		off = t.after(off)
	}
	return off, true
}

// idOf is the id of the type at an offset.
func (t *rawTypes) idOf(off uint32) uint32 {
	i := len(t.parts) - 1
	for off < t.parts[i].marks[0] {
		i--
	}
	s := t.parts[i]
	m, ok := slices.BinarySearch(s.marks, off)
	if !ok {
		m--
	}
	id := s.first + uint32(m)*markEvery
	for at := s.marks[m]; at < off; at = t.after(at) {
		id++
	}
	return id
}

// lookedFor are the offsets of the types that are looked for by name.
func (t *rawTypes) lookedFor(yield func(uint32) bool) {
	for _, s := range t.parts {
		for _, off := range s.named {
			if !yield(off) {
				return
			}
		}
	}
}

// called are the offsets of the types of that name and one of the kinds.
func (t *rawTypes) called(name string, kinds ...uint32) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for off := range t.lookedFor {
			if !t.named(t.u32(off), name) {
				continue
			}
			if kind, _ := t.info(off); slices.Contains(kinds, kind) && !yield(off) {
				return
			}
		}
	}
}

// isStruct tells whether the type at off is a struct or union.
func (t *rawTypes) isStruct(off uint32) bool {
	kind, _ := t.info(off)
	return kind == kindStruct || kind == kindUnion
}
