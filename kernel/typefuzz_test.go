//go:build linux && (amd64 || arm64)

package kernel

import (
	"testing"

	"github.com/assay-run/assay-run/bpf"
)

// Whatever the types are, to look for something in them ends, and does not panic.
func FuzzKernelTypes(f *testing.F) {
	names := []byte("\x00" + castFunction + "\x00" + wordStruct + "\x00btf_trace_sys_enter\x00dentry_flags\x00")
	for kind := uint32(0); kind <= kindEnum64+1; kind++ {
		var types []byte
		for i := range uint32(200) {
			types = le.AppendUint32(types, i%uint32(len(names)))
			types = le.AppendUint32(types, kind<<24|i%3)
			types = append(types, make([]byte, 4+i%3*typeKinds[kind].each)...)
		}
		f.Add(types, names)
	}
	f.Fuzz(func(t *testing.T, types, names []byte) {
		x := &rawTypes{types: types, names: names}
		if x.walk() != nil {
			return
		}
		for id := uint32(1); id < min(x.count, 1000); id++ {
			if off, ok := x.at(id); !ok || x.idOf(off) != id {
				t.Fatalf("type %d of %d is at %d, where type %d is", id, x.count, off, x.idOf(off))
			}
		}
		x.object()
		x.fields(bpf.Assay.Fields)
		x.tracepointArgs("sys_enter")
		x.enumValue("dentry_flags", "DCACHE_MOUNTED")
		_, _ = x.cut(map[string]bool{wordStruct: true})
	})
}
