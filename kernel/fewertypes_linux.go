//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// needed are the types that spec may refer to.
func (t *rawTypes) needed(spec *ebpf.CollectionSpec) (*btf.Spec, error) {
	names, err := structNames(spec.Types)
	if err != nil {
		return nil, err
	}
	return t.cut(names)
}

// cut returns the structs and unions called one of names, and what they consist
// of. What a pointer points to is left out.
func (t *rawTypes) cut(names map[string]bool) (*btf.Spec, error) {
	c := cutter{from: t, ids: map[uint32]uint32{}, texts: map[uint32]uint32{0: 0}, names: []byte{0}}
	for off := range t.lookedFor {
		if name := t.u32(off); name != 0 && t.isStruct(off) && names[string(t.name(name))] {
			c.keep(t.idOf(off))
		}
	}
	for i := 0; i < len(c.kept); i++ { // it grows
		off, _ := t.at(c.kept[i])
		if err := c.copy(off); err != nil {
			return nil, err
		}
	}
	var raw bytes.Buffer
	n := uint32(len(c.types))
	for _, v := range []any{uint16(btfMagic), uint8(1), uint8(0), uint32(btfHeader), uint32(0), n, n, uint32(len(c.names)), c.types, c.names} {
		_ = binary.Write(&raw, binary.NativeEndian, v) // a buffer cannot fail
	}
	return btf.LoadSpecFromReader(bytes.NewReader(raw.Bytes()))
}

// cutter copies types into a blob of their own, under new numbers.
type cutter struct {
	from         *rawTypes
	kept         []uint32          // old ids, in the order of the new
	ids, texts   map[uint32]uint32 // new for old: type ids and offsets of names
	types, names []byte
}

func (c *cutter) keep(id uint32) uint32 {
	if id == 0 || id >= c.from.count {
		return 0
	}
	if _, ok := c.ids[id]; !ok {
		c.kept = append(c.kept, id)
		c.ids[id] = uint32(len(c.kept))
	}
	return c.ids[id]
}

func (c *cutter) text(off uint32) uint32 {
	if _, ok := c.texts[off]; !ok {
		c.texts[off] = uint32(len(c.names))
		c.names = append(append(c.names, c.from.name(off)...), 0)
	}
	return c.texts[off]
}

func (c *cutter) put(v uint32) { c.types = binary.NativeEndian.AppendUint32(c.types, v) }

// copy appends the type at off.
func (c *cutter) copy(off uint32) error {
	u32 := c.from.u32
	kind, vlen := c.from.info(off)
	c.put(c.text(u32(off)))
	c.put(u32(off + 4))
	switch kind {
	case kindPtr:
		c.put(0)
	case kindTypedef, kindVolatile, kindConst, kindRestrict, kindTypeTag:
		c.put(c.keep(u32(off + 8)))
	default: // its size
		c.put(u32(off + 8))
	}
	off += typeHeader
	switch kind {
	case kindInt:
		c.put(u32(off))
	case kindArray:
		c.put(c.keep(u32(off)))
		c.put(c.keep(u32(off + 4)))
		c.put(u32(off + 8))
	case kindStruct, kindUnion:
		for i := range vlen {
			m := off + 12*i
			c.put(c.text(u32(m)))
			c.put(c.keep(u32(m + 4)))
			c.put(u32(m + 8))
		}
	case kindEnum, kindEnum64:
		each := typeKinds[kind].each
		for i := range vlen {
			v := off + each*i
			c.put(c.text(u32(v)))
			for w := uint32(4); w < each; w += 4 {
				c.put(u32(v + w))
			}
		}
	case kindPtr, kindFwd, kindTypedef, kindVolatile, kindConst, kindRestrict, kindFloat, kindTypeTag:
	default:
		return fmt.Errorf("%w: a struct with a member of kind %d", errBTF, kind)
	}
	return nil
}

// structNames are the names of the structs and unions in types, without the
// "___flavour" that tells two forms of one type of the kernel's apart.
func structNames(types *btf.Spec) (map[string]bool, error) {
	names := map[string]bool{}
	for typ, err := range types.All() {
		if err != nil {
			return nil, err
		}
		switch typ.(type) {
		case *btf.Struct, *btf.Union:
			name, _, _ := strings.Cut(typ.TypeName(), "___")
			names[name] = true
		}
	}
	delete(names, "")
	return names, nil
}
