//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/bpf"
)

// layout is what relocations are made from.
type layout struct {
	Name   string
	Offset btf.Bits
	Size   int
}

func layoutOf(t *testing.T, s *btf.Struct) []layout {
	t.Helper()
	var out []layout
	for _, m := range s.Members {
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			size = -1
		}
		out = append(out, layout{m.Name, m.Offset, size})
	}
	return out
}

// Every struct that is cut out of the kernel's types is as it is there, and
// only those that the kernel lacks are missing.
func TestNeededTypesAreTheKernels(t *testing.T) {
	spec, err := bpf.Assay.Load()
	if err != nil {
		t.Fatal(err)
	}
	names, err := structNames(spec.Types)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := btf.LoadKernelSpec()
	if err != nil {
		t.Skipf("no kernel BTF: %v", err)
	}
	raw, err := readKernelTypes()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()
	needed := must(raw.needed(spec))
	structs := 0
	for name := range names {
		theirs, err := whole.AnyTypesByName(name)
		if errors.Is(err, btf.ErrNotFound) {
			continue
		}
		ours, err := needed.AnyTypesByName(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var want, got [][]layout
		for _, typ := range theirs {
			if s, ok := typ.(*btf.Struct); ok {
				want = append(want, layoutOf(t, s))
			}
		}
		for _, typ := range ours {
			if s, ok := typ.(*btf.Struct); ok {
				got = append(got, layoutOf(t, s))
				structs++
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-kernel +cut):\n%s", name, d)
		}
	}
	if structs < 20 {
		t.Errorf("only %d structs were cut", structs)
	}
}

// A kernel that loads our programs at all loads them without the library, and gets the
// same.
func TestLoadsWithNeededTypes(t *testing.T) {
	newCgroup(t) // skips where nothing can be loaded
	types, err := readKernelTypes()
	if err != nil {
		t.Skipf("no kernel BTF: %v", err)
	}
	defer types.close()
	load := func(with func(s *set) error) map[string]string {
		s := must(newSet(1))
		defer s.close()
		spec := types.object().Spec()
		if err := errors.Join(s.configure(spec, types), s.makeMaps(spec), with(s)); err != nil {
			t.Fatal(err)
		}
		return must(s.ids()).Tags
	}
	ours := load(func(s *set) error { return s.loadPrograms(types, types.learn()) })
	lacking := must(readKernelTypes()) // where a tracepoint is cannot be told, so the library loads them all
	defer lacking.close()
	sysExit := lacking.tracepoint("sys_exit").off
	for _, s := range lacking.parts {
		s.named = slices.DeleteFunc(s.named, func(off uint32) bool { return off == sysExit })
	}
	if s := must(newSet(1)); s.loadPrograms(lacking, lacking.learn()) == nil {
		t.Error("loads without the tracepoint")
	}
	library := load(func(s *set) error { return s.create(lacking, lacking.learn()) })
	if d := cmp.Diff(library, ours); d != "" {
		t.Errorf("programs differ (-library +ours):\n%s", d)
	}
}

// They are made before it is known which object this kernel takes.
func TestObjectsHaveTheSameMaps(t *testing.T) {
	assay, words := bpf.Assay.Spec().Maps, bpf.Words.Spec().Maps
	delete(assay, constants)
	delete(words, constants)
	if d := cmp.Diff(assay, words); d != "" {
		t.Errorf("maps differ (-assay +words):\n%s", d)
	}
}

// One that the kernel refuses is left out, and it says why.
func TestRefusedProgramIsLeftOut(t *testing.T) {
	newCgroup(t)
	s := must(newSet(1))
	defer s.close()
	types, err := readKernelTypes()
	if err != nil {
		t.Skipf("no kernel BTF: %v", err)
	}
	defer types.close()
	spec := must(s.embedded(types))
	if err := s.makeMaps(spec); err != nil {
		t.Fatal(err)
	}
	spec.Programs["settled"].Instructions[0] = asm.Mov.Reg(asm.R0, asm.R9).WithMetadata(spec.Programs["settled"].Instructions[0].Metadata)
	all := len(spec.Programs)
	if err := s.createFrom(spec); err != nil {
		t.Fatal(err)
	}
	if err := s.failed["settled"]; err == nil || !strings.Contains(err.Error(), "R9 !read_ok") {
		t.Errorf("settled: %v", err)
	}
	if len(s.progs) != all-1 {
		t.Errorf("%d programs of %d", len(s.progs), all)
	}
}

// BTF comes from the kernel, but a broken one must not take the run down.
func TestBrokenTypes(t *testing.T) {
	raw, err := readKernelTypes()
	if err != nil {
		t.Skipf("no kernel BTF: %v", err)
	}
	head := raw.mapped
	if head == nil {
		t.Skip("not mapped here")
	}
	defer raw.close()
	for _, n := range []int{0, 1, 23, 24, 25, 36, 37, 100, 4096, len(head) / 2, len(head) - 1} {
		if _, err := parseTypes(head[:n]); err == nil {
			t.Errorf("%d bytes of %d pass for whole", n, len(head))
		}
	}
}

// What is read from the kernel's types beside its structs.
func TestEnumsAndTracepoints(t *testing.T) {
	raw, err := readKernelTypes()
	if err != nil {
		t.Skipf("no kernel BTF: %v", err)
	}
	defer raw.close()
	if v := raw.enumValue("pid_type", "PIDTYPE_TGID"); v != 1 {
		t.Errorf("PIDTYPE_TGID is %d, want 1", v)
	}
	if v := raw.enumValue("pid_type", "PIDTYPE_NONE"); v != 0 {
		t.Errorf("a member that there is none of is %d", v)
	}
	if n := raw.tracepointArgs("sched_process_fork"); n != 2 {
		t.Errorf("sched_process_fork has %d arguments, want 2", n)
	}
	if n := raw.tracepointArgs("no_such_tracepoint"); n != 0 {
		t.Errorf("a tracepoint that there is not has %d arguments", n)
	}
}
