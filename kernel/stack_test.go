//go:build linux && (amd64 || arm64)

package kernel

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// TestStackOfCallsFits adds up the stack of the calls below each program about as Linux 6.1 does, which refuses a
// program of more than 512 bytes; later kernels round less. It counts branches that not every kernel takes, which the
// verifier leaves out: 544 bytes were loaded, 576 were not.
func TestStackOfCallsFits(t *testing.T) {
	t.Parallel()
	if emulated {
		t.Skip("the objects are not in the machine, and are the same")
	}
	for _, object := range []string{"assay_x86_bpfel.o", "assay_arm64_bpfel.o"} {
		spec, err := ebpf.LoadCollectionSpec(filepath.Join("..", "bpf", object))
		if err != nil {
			t.Fatal(err)
		}
		for name, program := range spec.Programs {
			if size, chain := deepest(program.Instructions); size > 544 {
				t.Errorf("%s: %s: %d bytes: %s", object, name, size, strings.Join(chain, " > "))
			}
		}
	}
}

// deepest returns the chain of calls of a program that needs the most stack.
func deepest(code asm.Instructions) (size int, chain []string) {
	depth, calls := map[string]int{}, map[string]map[string]bool{}
	var first, in string
	for i, ins := range code {
		if name := ins.Symbol(); name != "" && (i == 0 || code[i-1].OpCode.JumpOp() == asm.Exit ||
			code[i-1].OpCode.JumpOp() == asm.Ja) && calls[name] == nil && !strings.HasPrefix(name, "LBB") {
			in = name
			if first == "" {
				first = in
			}
			calls[in] = map[string]bool{}
		}
		switch op := ins.OpCode; {
		case ins.IsFunctionCall(), ins.IsLoadOfFunctionPointer():
			calls[in][ins.Reference()] = true
		case op.Class().IsLoad() && ins.Src == asm.RFP, op.Class().IsStore() && ins.Dst == asm.RFP:
			depth[in] = max(depth[in], -int(ins.Offset))
		case i > 0 && op.ALUOp() == asm.Add && op.Source() == asm.ImmSource && code[i-1].Src == asm.RFP &&
			code[i-1].OpCode.ALUOp() == asm.Mov && code[i-1].Dst == ins.Dst: // the address of a variable
			depth[in] = max(depth[in], -int(ins.Constant))
		}
	}
	var walk func(string) (int, []string)
	walk = func(name string) (size int, chain []string) {
		for callee := range calls[name] {
			if n, c := walk(callee); n > size {
				size, chain = n, c
			}
		}
		return size + (max(depth[name], 1)+31)/32*32, append([]string{name}, chain...)
	}
	return walk(first)
}
