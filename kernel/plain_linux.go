//go:build linux && (amd64 || arm64)

package kernel

import (
	"slices"
	"unsafe"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/assay-run/assay-run/bpf"
)

// plain tells whether the set is this build's by what is written of its programs in
// package bpf. False says nothing yet: it can be that this has not understood the
// kernel's types.
func (x *suspect) plain() bool {
	types, err := readKernelTypes()
	if err != nil {
		return false
	}
	defer types.close()
	if !x.plainConstants(types) {
		return false
	}
	object := types.object()
	fields := types.fields(object.Fields)
	same, ok := 0, false
	var code []byte
	for i := range object.Programs {
		p := &object.Programs[i]
		tag, there := x.tags[p.Name]
		if !there {
			continue // this kernel refused it
		}
		if code, ok = plainCode(code[:0], object, p, fields); !ok {
			return false
		}
		if !digested(withoutMaps(code), tag) || !slices.EqualFunc(p.Maps, x.maps[p.Name], x.called) {
			return false
		}
		same++
	}
	return same == len(x.tags)
}

// plainCode appends a program's instructions, with the fields where the kernel has them.
func plainCode(code []byte, o *bpf.Object, p *bpf.PlainProgram, fields []int) ([]byte, bool) {
	code = append(code, (*o.Code)[p.Begin:p.End]...)
	for _, u := range p.Uses {
		if !relocate(code[int(u.At)*asm.InstructionSize:], fields[u.Field], o.Fields[u.Field].Exists) {
			return nil, false
		}
	}
	return code, true
}

// plainConstants tells the same of the constants.
func (x *suspect) plainConstants(types *rawTypes) bool {
	native, ia32 := sysTables()
	args := uint32(types.tracepointArgs("io_uring_complete"))
	_, word := types.wordCast()
	object := types.object()
	set := map[string]string{
		"syscalls":  textOf(append(kernelTable(native), kernelTable(ia32)...)),
		"uring_ops": textOf(uringTable()), "complete_args": textOf([]uint32{args}), "word_type": textOf([]uint32{word}),
	}
	for _, c := range object.Variables {
		if c.Map != ".rodata" {
			continue
		}
		want, ok := set[c.Name]
		if !ok {
			want = (*object.Code)[c.Begin:c.End]
		}
		end := int(c.At) + len(want)
		if c.Name != "seed" && (len(want) != int(c.End-c.Begin) || end > len(x.constants) || string(x.constants[c.At:end]) != want) {
			return false
		}
	}
	return true
}

// textOf is a slice's memory.
func textOf[T any](s []T) string {
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}

// relocate makes an instruction refer to a field as the loader would: btf.CORERelocate
// and btf.COREFixup.
func relocate(ins []byte, field int, exists bool) bool {
	const offset, immediate = 2, 4 // in struct bpf_insn
	class := asm.OpCode(ins[0]).Class()
	switch {
	case field == fieldUnclear:
		return false
	case exists && field == fieldAbsent:
		le.PutUint32(ins[immediate:], 0)
	case exists:
		le.PutUint32(ins[immediate:], 1)
	case field == fieldAbsent: // a call of what does not exist
		ins[0], ins[1] = byte(asm.Call.Op(asm.ImmSource)), 0
		le.PutUint16(ins[offset:], 0)
		le.PutUint32(ins[immediate:], btf.COREBadRelocationSentinel)
	case class == asm.LdXClass || class == asm.StClass || class == asm.StXClass:
		le.PutUint16(ins[offset:], uint16(field))
	case class == asm.ALUClass || class == asm.ALU64Class || class == asm.JumpClass:
		le.PutUint32(ins[immediate:], uint32(field))
	default:
		return false
	}
	return true
}
