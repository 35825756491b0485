//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/assay-run/assay-run/bpf"
)

// What is written of the programs in package bpf is what the loader gives this kernel.
func TestPlainIsWhatTheLoaderMakes(t *testing.T) {
	types, err := readKernelTypes()
	if err != nil {
		t.Skipf("no kernel BTF: %v", err)
	}
	defer types.close()
	t.Run("this kernel", func(t *testing.T) { testPlain(t, types) })
	types.cast = 0
	t.Run("a kernel without the cast", func(t *testing.T) { testPlain(t, types) })
}

func testPlain(t *testing.T, types *rawTypes) {
	object := types.object()
	spec, err := object.Load()
	if err != nil {
		t.Fatal(err)
	}
	castWords(spec, types)
	fields := types.fields(object.Fields)
	needed := must(types.needed(spec))
	if len(object.Programs) != len(spec.Programs) {
		t.Errorf("%d programs, the object has %d", len(object.Programs), len(spec.Programs))
	}
	used := make([]bool, len(fields))
	for i := range object.Programs {
		p := &object.Programs[i]
		got, ok := plainCode(nil, object, p, fields)
		if !ok {
			t.Errorf("%s refers to a field that is not clear", p.Name)
			continue
		}
		var want bytes.Buffer
		if err := encode(&want, spec.Programs[p.Name].Instructions, spec.Programs[p.Name].ByteOrder, needed); err != nil {
			t.Fatal(err)
		}
		withoutMaps(want.Bytes())
		withoutMaps(got)
		for at := 0; at < len(got) && at < want.Len(); at += 8 {
			if w := want.Bytes()[at : at+8]; !bytes.Equal(got[at:at+8], w) {
				t.Errorf("%s: instruction %d is % x, the loader's % x", p.Name, at/8, got[at:at+8], w)
			}
		}
		if len(got) != want.Len() {
			t.Errorf("%s has %d bytes, the loader's %d", p.Name, len(got), want.Len())
		}
		as := &ebpf.ProgramSpec{Name: p.Name, Type: ebpf.ProgramType(p.Type), AttachType: ebpf.AttachType(p.Attach), AttachTo: p.AttachTo, Flags: p.Flags, License: p.License}
		if d := cmp.Diff(spec.Programs[p.Name], as, cmpopts.IgnoreFields(ebpf.ProgramSpec{}, "SectionName", "Instructions", "ByteOrder")); d != "" {
			t.Errorf("program (-object +plain):\n%s", d)
		}
		if maps := mapsOf(spec.Programs[p.Name]); !slices.Equal(p.Maps, maps) {
			t.Errorf("%s uses the maps %q, the loader's %q", p.Name, p.Maps, maps)
		}
		for _, u := range p.Uses {
			used[u.Field] = true
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		t.Errorf("no program uses the field %v", object.Fields[i])
	}
	if d := cmp.Diff(spec.Variables, object.Spec().Variables, cmpopts.IgnoreFields(ebpf.VariableSpec{}, "Type")); d != "" {
		t.Errorf("variables (-object +plain):\n%s", d)
	}
	ignored := cmpopts.IgnoreFields(ebpf.MapSpec{}, "Key", "Value", "InnerMap", "Extra", "Contents")
	if d := cmp.Diff(spec.Maps, object.Spec().Maps, ignored); d != "" {
		t.Errorf("maps (-object +plain):\n%s", d)
	}
}

// The way to a field goes through names, qualifiers and members without a name, and
// what cannot be told is not guessed.
func TestFieldsOfTypes(t *testing.T) {
	num := &btf.Int{Name: "int", Size: 4}
	inner := &btf.Struct{Name: "inner", Size: 8, Members: []btf.Member{{Name: "x", Type: num}, {Name: "y", Type: num, Offset: 32}}}
	hidden := &btf.Union{Size: 8, Members: []btf.Member{{Name: "a", Type: num}, {Name: "b", Type: &btf.Typedef{Name: "inner_t", Type: &btf.Const{Type: inner}}}}}
	outer := &btf.Struct{Name: "outer", Size: 40, Members: []btf.Member{
		{Name: "first", Type: num},
		{Type: hidden, Offset: 64},
		{Name: "many", Type: &btf.Array{Index: num, Type: num, Nelems: 3}, Offset: 128},
		{Name: "bits", Type: num, Offset: 224, BitfieldSize: 3},
		{Name: "many", Type: num, Offset: 256}, // not C
	}}
	twice := func(at btf.Bits) *btf.Struct {
		return &btf.Struct{Name: "twice", Size: 16, Members: []btf.Member{{Name: "same", Type: num}, {Name: "other", Type: num, Offset: at}}}
	}
	b, err := btf.NewBuilder([]btf.Type{outer, twice(32), twice(64)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	types, err := parseTypes(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of   string
		path []string
		want int
	}{
		{"outer", []string{"first"}, 0},
		{"outer___old", []string{"a"}, 8},
		{"outer", []string{"b", "y"}, 12},
		{"outer", []string{"many", "[2]"}, 24},
		{"outer", []string{"many", "[3]"}, fieldUnclear},
		{"outer", []string{"first", "[0]"}, fieldAbsent},
		{"outer", []string{"first", "x"}, fieldAbsent},
		{"outer", []string{"bits"}, fieldUnclear},
		{"outer", []string{"x"}, fieldAbsent},
		{"twice", []string{"same"}, 0},
		{"twice", []string{"other"}, fieldUnclear},
		{"nothing", []string{"first"}, fieldAbsent},
		{"int", []string{"first"}, fieldAbsent},
	} {
		if got := types.fields([]bpf.PlainField{{Struct: c.of, Path: c.path}})[0]; got != c.want {
			t.Errorf("%s %q: %d, want %d", c.of, c.path, got, c.want)
		}
	}
}
