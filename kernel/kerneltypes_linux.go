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

// rawTypes is a BTF blob, with the offset of every type.
type rawTypes struct {
	types, names []byte
	at           []uint32 // by type id; 0 is void
	mapped       []byte   // nil when it was read
}

func (t *rawTypes) close() {
	if t.mapped != nil {
		_ = unix.Munmap(t.mapped)
	}
}

// typeKinds are how many bytes follow a type's header, for each kind: some and
// some for each of its vlen members.
var typeKinds = [...]struct{ fixed, each uint32 }{
	kindInt: {4, 0}, kindPtr: {}, kindArray: {12, 0}, kindStruct: {0, 12}, kindUnion: {0, 12}, kindEnum: {0, 8},
	kindFwd: {}, kindTypedef: {}, kindVolatile: {}, kindConst: {}, kindRestrict: {}, kindFunc: {}, kindFuncProto: {0, 8},
	kindVar: {4, 0}, kindDatasec: {0, 12}, kindFloat: {}, kindDeclTag: {4, 0}, kindTypeTag: {}, kindEnum64: {0, 12},
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
	t.at = make([]uint32, 1, len(t.types)/24)
	for off := uint32(0); off < uint32(len(t.types)); {
		if int(off)+typeHeader > len(t.types) {
			return nil, errBTF
		}
		kind, vlen := t.info(off)
		if int(kind) >= len(typeKinds) {
			return nil, fmt.Errorf("%w: type %d is of kind %d", errBTF, len(t.at), kind)
		}
		t.at = append(t.at, off)
		off += typeHeader + typeKinds[kind].fixed + vlen*typeKinds[kind].each
		if off > uint32(len(t.types)) {
			return nil, errBTF
		}
	}
	return t, nil
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

// tracepointArgs is how many arguments a tracepoint has, 0 when that is not
// known: those of typedef void (*btf_trace_NAME)(void *, ...), but for the first.
func (t *rawTypes) tracepointArgs(name string) int {
	want := "btf_trace_" + name
	for _, off := range t.at[1:] {
		if kind, _ := t.info(off); kind != kindTypedef || string(t.name(t.u32(off))) != want {
			continue
		}
		for _, expected := range []uint32{kindPtr, kindFuncProto} {
			id := t.u32(off + 8)
			if id == 0 || id >= uint32(len(t.at)) {
				return 0
			}
			off = t.at[id]
			kind, n := t.info(off)
			if kind != expected {
				return 0
			}
			if kind == kindFuncProto {
				return int(n) - 1
			}
		}
	}
	return 0
}

// enumValue is the value of a member of an enum, 0 when there is none.
func (t *rawTypes) enumValue(enum, member string) uint32 {
	for _, off := range t.at[1:] {
		kind, n := t.info(off)
		if kind != kindEnum || string(t.name(t.u32(off))) != enum {
			continue
		}
		for i := range n {
			if at := off + typeHeader + i*typeKinds[kindEnum].each; string(t.name(t.u32(at))) == member {
				return t.u32(at + 4)
			}
		}
	}
	return 0
}
