package gitpatch

import (
	"fmt"
	"strconv"

	"github.com/assay-run/assay-run/schema"
)

// Expect lists the sections that a patch must have for a change, in order; none for a change that is not in it.
func Expect(c *schema.WorkspaceChange) ([]Section, error) {
	if !c.InPatch {
		return nil, nil
	}
	from, err := stateOf(c.Before)
	if err != nil {
		return nil, fmt.Errorf("%.200q: before, %w", c.Path, err)
	}
	to, err := stateOf(c.After)
	if err != nil {
		return nil, fmt.Errorf("%.200q: after, %w", c.Path, err)
	}
	name := c.Name()
	switch {
	case from == nil && to == nil:
		return nil, fmt.Errorf("%.200q: it is neither a file nor a link, and in the patch", c.Path)
	case from != nil && to != nil && from.Mode&format == to.Mode&format:
		s := Section{Name: name, From: from, To: to, HasContent: from.ID != to.ID}
		if !s.HasContent {
			from.ID, to.ID = "", ""
		}
		return []Section{s}, nil
	}
	var list []Section
	if from != nil {
		list = append(list, Section{Name: name, From: from})
	}
	if to != nil {
		list = append(list, Section{Name: name, To: to, HasContent: true})
	}
	return list, nil
}

// format are the bits of a mode that tell a file from a link.
const format = 0o170000

// stateOf is a state as git has it; nil for what git does not have.
func stateOf(f *schema.WorkspaceFile) (*State, error) {
	switch {
	case f == nil:
		return nil, nil
	case f.Kind == schema.KindOfLink:
		return &State{Link, ID([]byte(f.LinkTarget()))}, nil
	case f.Kind != schema.KindOfFile:
		return nil, nil
	case f.GitBlob == nil:
		return nil, fmt.Errorf("git_blob is missing")
	}
	mode, err := strconv.ParseUint(f.Mode, 8, 32)
	if err != nil {
		return nil, err
	}
	if mode&0o100 != 0 {
		return &State{Executable, *f.GitBlob}, nil
	}
	return &State{File, *f.GitBlob}, nil
}
