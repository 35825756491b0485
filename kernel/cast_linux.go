//go:build linux && (amd64 || arm64)

package kernel

import (
	"github.com/cilium/ebpf"

	"github.com/assay-run/assay-run/bpf"
)

// The programs read a word of the kernel's memory with one instruction, where the kernel
// has a function that tells the verifier what is at an address. See bpf/word.h.
const (
	castFunction = "bpf_rdonly_cast" // since Linux 6.2
	wordStruct   = "timespec64"      // begins with a word
)

// wordCast are the numbers of the function and of the struct, both 0 when the kernel
// lacks one of them.
func (t *rawTypes) wordCast() (function, word uint32) {
	if t.word == 0 {
		for off := range t.called(wordStruct, kindStruct, kindUnion) {
			t.word = t.idOf(off)
			break
		}
	}
	if t.word == 0 || t.cast == 0 {
		return 0, 0
	}
	return t.cast, t.word
}

// object is the compilation of the programs for this kernel.
func (t *rawTypes) object() *bpf.Object {
	if t == nil {
		return &bpf.Assay
	}
	if function, _ := t.wordCast(); function == 0 {
		return &bpf.Assay
	}
	return &bpf.Words
}

// castWords makes the programs call the function, if they do.
func castWords(spec *ebpf.CollectionSpec, t *rawTypes) {
	function, _ := t.wordCast()
	for _, p := range spec.Programs {
		for i := range p.Instructions {
			if ins := &p.Instructions[i]; ins.IsKfuncCall() {
				ins.Constant = int64(function)
			}
		}
	}
}
