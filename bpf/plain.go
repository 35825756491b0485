//go:build 386 || amd64 || arm64

package bpf

import "github.com/cilium/ebpf"

// Object is a compilation of the programs. [Words] is for kernels that have
// bpf_rdonly_cast, [Assay] for all.
type Object struct {
	Load func() (*ebpf.CollectionSpec, error) // as compiled

	// The rest is what internal/plain makes of it. Code has what the others refer to.
	Code      *string
	Programs  []PlainProgram
	Fields    []PlainField // of the kernel's, that the programs use
	Variables []PlainVariable
	maps      []plainMap
	types     [2]int // where they begin and end in Code
}

// PlainProgram is a program of the object as the kernel is given it, but for where the
// running kernel's structs have their fields, and for the maps.
type PlainProgram struct {
	Name         string
	Type, Attach uint32 // ebpf.ProgramType and ebpf.AttachType
	AttachTo     string
	Flags        uint32
	License      string

	// Its instructions are in Code from Begin to End. Which types its functions have
	// (struct bpf_func_info) follows, up to Functions.
	Begin, End, Functions uint32

	Maps []string   // that it uses, in the order of their first use
	Uses []PlainUse // of fields
}

// PlainUse says that an instruction depends on a field.
type PlainUse struct {
	At    uint16 // the instruction's number, as the kernel counts
	Field uint16 // the field's in Fields
}

// PlainField is a field of one of the kernel's structs, or a function of the kernel's,
// of which the number is asked for. Struct may have a suffix after "___", which tells two
// forms of one struct apart. A step of the path is the name of a member, or [N] for an
// element of an array.
type PlainField struct {
	Struct string
	Path   []string
	Exists bool // whether it exists is asked for, else its offset

	Function string // its name; the rest is empty
}

// PlainVariable is a variable or constant of the programs.
type PlainVariable struct {
	Name       string
	Map        string // that it is in
	At         uint32 // its place there
	Begin, End uint32 // of its value in Code, before package kernel sets it
}

// plainMap is a map, before package kernel sets its size.
type plainMap struct {
	name                         string
	kind, key, value, max, flags uint32
}

// Types are those of the programs' functions, as the kernel is given them.
func (o *Object) Types() []byte { return []byte((*o.Code)[o.types[0]:o.types[1]]) }

// Spec is the object without programs, and without the types of maps and variables.
func (o *Object) Spec() *ebpf.CollectionSpec {
	spec := &ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{}, Variables: map[string]*ebpf.VariableSpec{}}
	for _, m := range o.maps {
		spec.Maps[m.name] = &ebpf.MapSpec{
			Name: m.name, Type: ebpf.MapType(m.kind), KeySize: m.key, ValueSize: m.value, MaxEntries: m.max, Flags: m.flags,
		}
	}
	for _, v := range o.Variables {
		spec.Variables[v.Name] = &ebpf.VariableSpec{Name: v.Name, SectionName: v.Map, Offset: v.At, Value: []byte((*o.Code)[v.Begin:v.End])}
		m := spec.Maps[v.Map]
		m.Contents = []ebpf.MapKV{{Key: uint32(0), Value: make([]byte, m.ValueSize)}}
	}
	return spec
}
