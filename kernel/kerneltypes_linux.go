//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// The kernel describes some 130,000 types; the programs read fields of thirty.
// Indexing all of them, and those of every module, is most of what loading a
// program costs, so what the programs need is cut out first: what bpftool's
// "gen min_core_btf" does, at run time. The format is that of
// Documentation/bpf/btf.rst.

// rawTypes is a BTF blob, with the places of its types.
type rawTypes struct {
	types, names []byte
	mapped       []byte // nil when it was read
	parts        []*stretch
	count        uint32 // of types, with void, which is 0
	cast         uint32 // the function castFunction, 0 when there is none
	word         uint32 // the struct wordStruct, 0 until it is asked for
}

// placed is a type with its offset.
type placed struct{ id, off uint32 }

func (t *rawTypes) close() {
	if t.mapped != nil {
		_ = unix.Munmap(t.mapped)
	}
}

// typeKinds are the sizes of types in bytes, for each kind: with the header, and for each
// of the vlen members. Of those for which named is 1 types are looked for by name.
var typeKinds = [32]struct{ size, each, named uint32 }{
	kindInt: {size: 16}, kindPtr: {size: 12}, kindArray: {size: 24}, kindStruct: {size: 12, each: 12, named: 1}, kindUnion: {size: 12, each: 12, named: 1},
	kindEnum: {size: 12, each: 8, named: 1}, kindFwd: {size: 12}, kindTypedef: {size: 12, named: 1}, kindVolatile: {size: 12}, kindConst: {size: 12},
	kindRestrict: {size: 12}, kindFunc: {size: 12}, kindFuncProto: {size: 12, each: 8}, kindVar: {size: 16}, kindDatasec: {size: 12, each: 12},
	kindFloat: {size: 12}, kindDeclTag: {size: 16}, kindTypeTag: {size: 12}, kindEnum64: {size: 12, each: 12},
	0: {size: noKind}, 20: {size: noKind}, 21: {size: noKind}, 22: {size: noKind}, 23: {size: noKind}, 24: {size: noKind}, 25: {size: noKind},
	26: {size: noKind}, 27: {size: noKind}, 28: {size: noKind}, 29: {size: noKind}, 30: {size: noKind}, 31: {size: noKind},
}

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

	// noKind is the size of a type of a kind that there is not: it ends beyond all types.
	noKind = 1 << 30

	typeHeader = 12 // name, info, size or type
	btfHeader  = 24
	btfMagic   = 0xeb9f
)

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
	if t.types == nil || t.names == nil || len(t.types) >= noKind {
		return nil, errBTF
	}
	return t, t.walk()
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
	for off := range t.called(want, kindTypedef) {
		return placed{t.idOf(off), off}
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
	for off := range t.called(enum, kindEnum) {
		_, n := t.info(off)
		for i := range n {
			if at := off + typeHeader + i*typeKinds[kindEnum].each; t.named(t.u32(at), member) {
				return t.u32(at + 4)
			}
		}
	}
	return 0
}
