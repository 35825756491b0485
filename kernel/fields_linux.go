//go:build linux && (amd64 || arm64)

package kernel

import (
	"strconv"
	"strings"

	"github.com/assay-run/assay-run/bpf"
)

// What fields tells of a field instead of its offset.
const (
	fieldAbsent  = -1
	fieldUnclear = -2 // ask the loader
)

// maxSteps bounds the way through types, of what is given a name and of what has none.
const maxSteps = 32

// fields are the offsets of the fields in the kernel's structs, or why there is none.
func (t *rawTypes) fields(list []bpf.PlainField) []int {
	structs := t.structsOf(list)
	out := make([]int, len(list))
	cast, _ := t.wordCast()
	for i, f := range list {
		out[i] = fieldAbsent
		if f.Function == castFunction && cast != 0 {
			out[i] = int(cast)
		}
		for n, off := range structs[essential(f.Struct)] {
			at := t.follow(off, f.Path)
			if n > 0 && at != out[i] {
				at = fieldUnclear // two structs of one name
			}
			out[i] = at
		}
	}
	return out
}

// essential is a name without what tells two forms of one type apart.
func essential(name string) string {
	name, _, _ = strings.Cut(name, "___")
	return name
}

// structsOf are the kernel's structs and unions that the fields are of, by name.
func (t *rawTypes) structsOf(list []bpf.PlainField) map[string][]uint32 {
	out := map[string][]uint32{}
	var begins [1 << 16]bool // the first two bytes of a name that is wanted
	for _, f := range list {
		if f.Function != "" {
			continue
		}
		name := essential(f.Struct)
		out[name] = nil
		begins[le.Uint16([]byte(name))] = true
	}
	for off := range t.lookedFor {
		name := t.u32(off)
		if uint64(name)+2 > uint64(len(t.names)) || !begins[le.Uint16(t.names[name:])] {
			continue
		}
		if have, wanted := out[string(t.name(name))]; wanted && t.isStruct(off) {
			out[string(t.name(name))] = append(have, off)
		}
	}
	return out
}

// follow goes from the struct at off to a field, and returns its offset in bytes.
func (t *rawTypes) follow(off uint32, path []string) int {
	bits, ok := 0, true
	for _, step := range path {
		if !ok {
			return fieldAbsent
		}
		var at int
		var typ uint32
		if number, ok := strings.CutPrefix(step, "["); ok {
			typ, at = t.element(off, strings.TrimSuffix(number, "]"))
		} else {
			typ, at = t.member(off, step, maxSteps)
		}
		if at < 0 {
			return at
		}
		bits += at
		off, ok = t.plain(typ)
	}
	if bits%8 != 0 {
		return fieldUnclear
	}
	return bits / 8
}

// plain is the place of a type without names and qualifiers.
func (t *rawTypes) plain(id uint32) (off uint32, ok bool) {
	for range maxSteps {
		off, ok := t.at(id)
		if !ok {
			return 0, false
		}
		switch kind, _ := t.info(off); kind {
		case kindTypedef, kindVolatile, kindConst, kindRestrict, kindTypeTag:
			id = t.u32(off + 8)
		default:
			return off, true
		}
	}
	return 0, false
}

// element is the type of an array's element, and where it is in bits.
func (t *rawTypes) element(off uint32, number string) (typ uint32, at int) {
	n, err := strconv.Atoi(number)
	if kind, _ := t.info(off); kind != kindArray || err != nil {
		return 0, fieldAbsent
	}
	typ = t.u32(off + typeHeader)
	of, ok := t.plain(typ)
	if !ok {
		return 0, fieldUnclear
	}
	switch kind, _ := t.info(of); {
	case n >= int(t.u32(off+typeHeader+8)):
		return 0, fieldUnclear
	case kind == kindInt || kind == kindStruct || kind == kindUnion:
		return typ, 8 * n * int(t.u32(of+8))
	}
	return 0, fieldUnclear
}

// member is the type of a member, and where it is in bits. The members of one without
// a name are as if of the struct itself.
func (t *rawTypes) member(off uint32, name string, depth int) (typ uint32, at int) {
	kind, n := t.info(off)
	if kind != kindStruct && kind != kindUnion || depth == 0 {
		return 0, fieldAbsent
	}
	const flagged = 1 << 31 // offsets have the size of a field of bits in their first byte
	fields := t.u32(off+4)&flagged != 0
	place := func(m uint32) (at int, ok bool) {
		bits := t.u32(m + 8)
		if fields {
			return int(bits & 0xffffff), bits>>24 == 0
		}
		return int(bits), true
	}
	first := off + typeHeader
	end := first + n*typeKinds[kindStruct].each
	for m := first; m < end; m += typeKinds[kindStruct].each {
		if t.named(t.u32(m), name) {
			at, ok := place(m)
			if !ok {
				return 0, fieldUnclear
			}
			return t.u32(m + 4), at
		}
	}
	for m := first; m < end; m += typeKinds[kindStruct].each {
		if t.u32(m) != 0 {
			continue
		}
		within, ok := t.plain(t.u32(m + 4))
		if !ok {
			continue
		}
		if typ, inner := t.member(within, name, depth-1); inner != fieldAbsent {
			at, ok := place(m)
			if !ok || inner < 0 {
				return 0, fieldUnclear
			}
			return typ, at + inner
		}
	}
	return 0, fieldAbsent
}
