package bpf

// PlainProgram is a program of the object as the kernel is given it, but for where the
// running kernel's structs have their fields, and for the maps.
type PlainProgram struct {
	Name       string
	Begin, End uint32     // of its instructions in Plain
	Maps       []string   // that it uses, in the order of their first use
	Uses       []PlainUse // of fields
}

// PlainUse says that an instruction depends on a field.
type PlainUse struct {
	At    uint16 // the instruction's number, as the kernel counts
	Field uint16 // the field's in PlainFields
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

// PlainConstant is a constant of the programs.
type PlainConstant struct {
	Name       string
	At         uint32 // its place among the constants
	Begin, End uint32 // of its value in Plain, before package kernel sets it
}
