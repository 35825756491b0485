//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// The kernel describes some 130,000 types; the programs read fields of thirty.
// Indexing all of them, and those of every module, is most of what loading a
// program costs, so what the programs need is cut out first: what bpftool's
// "gen min_core_btf" does, at run time. The format is that of
// Documentation/bpf/btf.rst.

// rawTypes is a BTF blob, with the places of what is looked for in it.
type rawTypes struct {
	types, names []byte
	mapped       []byte   // nil when it was read
	count        uint32   // of types, with void, which is 0
	marks        []uint32 // the offset of every type whose id is a multiple of markEvery

	structs  []placed // and unions
	typedefs []placed
	enums    []placed
	cast     uint32 // the function castFunction, 0 when there is none
}

// placed is a type with its offset.
type placed struct{ id, off uint32 }

// markEvery is small enough to be quick to go on from, and large enough that the marks
// are few pages.
const markEvery = 16

func (t *rawTypes) close() {
	if t.mapped != nil {
		_ = unix.Munmap(t.mapped)
	}
}

// typeKinds are how many bytes follow a type's header, for each kind: some and
// some for each of its vlen members. The list is the one that types of the kind go to.
var typeKinds = [32]struct {
	fixed, each uint32
	list        uint8
}{
	kindInt: {fixed: 4}, kindArray: {fixed: 12}, kindStruct: {each: 12, list: listStructs}, kindUnion: {each: 12, list: listStructs},
	kindEnum: {each: 8, list: listEnums}, kindTypedef: {list: listTypedefs}, kindFuncProto: {each: 8}, kindVar: {fixed: 4},
	kindDatasec: {each: 12}, kindDeclTag: {fixed: 4}, kindEnum64: {each: 12},
}

// The lists of types that are looked for.
const (
	listNone = iota
	listStructs
	listTypedefs
	listEnums
)

const (
	_ = iota
	kindInt
	kindPtr
	kindArray
	kindStruct
	kindUnion
	kindEnum
	kindFwd
	kindTypedef
	kindVolatile
	kindConst
	kindRestrict
	kindFunc
	kindFuncProto
	kindVar
	kindDatasec
	kindFloat
	kindDeclTag
	kindTypeTag
	kindEnum64

	typeHeader = 12 // name, info, size or type
	btfHeader  = 24
	btfMagic   = 0xeb9f
)

var errBTF = errors.New("broken BTF")

// readKernelTypes reads the running kernel's BTF. Close it.
func readKernelTypes() (*rawTypes, error) {
	f, err := os.Open("/sys/kernel/btf/vmlinux")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	raw, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_PRIVATE) // since 6.16
	if err != nil {
		if raw, err = io.ReadAll(f); err != nil {
			return nil, err
		}
		return parseTypes(raw)
	}
	t, err := parseTypes(raw)
	if err != nil {
		_ = unix.Munmap(raw)
		return nil, err
	}
	t.mapped = raw
	return t, nil
}

func parseTypes(raw []byte) (*rawTypes, error) {
	ne := binary.NativeEndian
	if len(raw) < btfHeader || ne.Uint16(raw) != btfMagic {
		return nil, errBTF
	}
	section := func(at int) []byte {
		off, n := uint64(ne.Uint32(raw[4:]))+uint64(ne.Uint32(raw[at:])), uint64(ne.Uint32(raw[at+4:]))
		if off+n > uint64(len(raw)) {
			return nil
		}
		return raw[off : off+n]
	}
	t := &rawTypes{types: section(8), names: section(16)}
	if t.types == nil || t.names == nil {
		return nil, errBTF
	}
	return t, t.walk()
}

// walk finds the place of every type. Only the one before tells where a type is, so the
// CPU waits for each size, unless it guesses what comes next. It guesses functions well, half
// of all, and the rest badly: their kind is looked up in tables and not branched on.
func (t *rawTypes) walk() error {
	// As much as a kernel has, so that nothing has to grow.
	size := uint32(len(t.types))
	lists := [...][]placed{listNone: nil, listStructs: make([]placed, 0, size/200), listTypedefs: make([]placed, 0, size/800), listEnums: make([]placed, 0, size/1000)}
	t.marks = make([]uint32, 0, size/24/markEvery)
	off := uint32(0)
	for t.count = 1; off < size; {
		t.marks = append(t.marks, off)
		var found [len(lists)][markEvery]placed
		var n [len(lists)]uint32
		for end := t.count&^(markEvery-1) + markEvery; off < size && t.count < end; t.count++ {
			if size-off < typeHeader {
				return errBTF
			}
			kind, vlen := t.info(off)
			if kind == kindFunc {
				if t.begins(t.u32(off), castFunction) && t.named(t.u32(off), castFunction) {
					t.cast = t.count
				}
				off += typeHeader
				continue
			}
			if kind > kindEnum64 {
				return fmt.Errorf("%w: type %d is of kind %d", errBTF, t.count, kind)
			}
			k := &typeKinds[kind]
			found[k.list][n[k.list]%markEvery] = placed{t.count, off}
			n[k.list]++
			off += typeHeader + k.fixed + vlen*k.each
		}
		for l := listStructs; l < len(lists); l++ {
			lists[l] = append(lists[l], found[l][:n[l]]...)
		}
	}
	if off > size {
		return errBTF
	}
	t.structs, t.typedefs, t.enums = lists[listStructs], lists[listTypedefs], lists[listEnums]
	return nil
}

// begins tells whether the name at off has the first eight bytes of that one: quicker than
// named for who asks of many.
func (t *rawTypes) begins(off uint32, name string) bool {
	return uint64(off)+8 <= uint64(len(t.names)) && le.Uint64(t.names[off:]) == le.Uint64([]byte(name))
}

// at is the offset of a type that is not void.
func (t *rawTypes) at(id uint32) (off uint32, ok bool) {
	if id == 0 || id >= t.count {
		return 0, false
	}
	off = t.marks[id/markEvery]
	n := id % markEvery
	if id < markEvery {
		n-- // the first mark is that of type 1
	}
	for range n {
		kind, vlen := t.info(off)
		off += typeHeader + typeKinds[kind].fixed + vlen*typeKinds[kind].each
	}
	return off, true
}

func (t *rawTypes) u32(off uint32) uint32 { return binary.NativeEndian.Uint32(t.types[off:]) }

func (t *rawTypes) info(off uint32) (kind, vlen uint32) {
	info := t.u32(off + 4)
	return info >> 24 & 0x1f, info & 0xffff
}

func (t *rawTypes) name(off uint32) []byte {
	if off >= uint32(len(t.names)) {
		return nil
	}
	name, _, _ := bytes.Cut(t.names[off:], []byte{0})
	return name
}

// named tells whether the name at off is that one.
func (t *rawTypes) named(off uint32, name string) bool {
	end := uint64(off) + uint64(len(name))
	return end < uint64(len(t.names)) && t.names[end] == 0 && string(t.names[off:end]) == name
}

// tracepoint is the type of a tracepoint, typedef void (*btf_trace_NAME)(void *, ...);
// the zero value when there is none.
func (t *rawTypes) tracepoint(name string) placed {
	want := "btf_trace_" + name
	for _, p := range t.typedefs {
		if t.named(t.u32(p.off), want) {
			return p
		}
	}
	return placed{}
}

// tracepointArgs is how many arguments a tracepoint has, 0 when that is not known:
// those of its type but for the first.
func (t *rawTypes) tracepointArgs(name string) int {
	p := t.tracepoint(name)
	if p.id == 0 {
		return 0
	}
	off := p.off
	for _, expected := range []uint32{kindPtr, kindFuncProto} {
		var ok bool
		if off, ok = t.at(t.u32(off + 8)); !ok {
			return 0
		}
		kind, n := t.info(off)
		if kind != expected {
			return 0
		}
		if kind == kindFuncProto {
			return int(n) - 1
		}
	}
	return 0
}

// enumValue is the value of a member of an enum, 0 when there is none.
func (t *rawTypes) enumValue(enum, member string) uint32 {
	for _, p := range t.enums {
		off := p.off
		if !t.named(t.u32(off), enum) {
			continue
		}
		_, n := t.info(off)
		for i := range n {
			if at := off + typeHeader + i*typeKinds[kindEnum].each; t.named(t.u32(at), member) {
				return t.u32(at + 4)
			}
		}
	}
	return 0
}
