//go:build linux && (amd64 || arm64)

package kernel

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// The programs read a word of the kernel's memory with one instruction, where the kernel
// has a function that tells the verifier what is at an address. See word_at in bpf/path.h.
const (
	castFunction = "bpf_rdonly_cast" // since Linux 6.2
	wordStruct   = "timespec64"      // begins with a word
)

// wordCast are the numbers of the function and of the struct, both 0 when the kernel
// lacks one of them.
func (t *rawTypes) wordCast() (function, word uint32) {
	for _, s := range t.structs {
		if t.named(t.u32(s.off), wordStruct) {
			word = s.id
			break
		}
	}
	if word == 0 || t.cast == 0 {
		return 0, 0
	}
	return t.cast, word
}

// castWords makes the programs call the function.
func castWords(spec *ebpf.CollectionSpec, t *rawTypes) {
	function, _ := t.wordCast()
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			ins := &p.Instructions[i]
			switch {
			case !ins.IsKfuncCall():
			case function != 0:
				ins.Constant = int64(function)
			default: // a call of what does not exist, which the verifier never comes to
				*ins = asm.Instruction{OpCode: asm.Call.Op(asm.ImmSource), Constant: btf.COREBadRelocationSentinel}
			}
		}
	}
}
