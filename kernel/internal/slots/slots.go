// Package slots keeps something for each slot of the kernel's coalescing cache. Slots
// are numbered from 0, so that a table finds one in a tenth of the time of a map.
package slots

// A Table has a value for each slot. The zero value has the zero value for all.
// It is not safe for concurrent use.
type Table[T any] struct {
	pages []*[page]T
}

const (
	page = 16      // values; small, as short runs use few slots, all over the table
	most = 1 << 26 // slots, of more CPUs than Linux supports: a broken record has any number
)

// At is the place of a slot's value, nil where there is no such slot.
func (t *Table[T]) At(slot uint32) *T {
	if slot >= most {
		return nil
	}
	i := int(slot / page)
	if i >= len(t.pages) {
		t.pages = append(t.pages, make([]*[page]T, i+1-len(t.pages))...)
	}
	if t.pages[i] == nil {
		t.pages[i] = new([page]T)
	}
	return &t.pages[i][slot%page]
}

// Get is the slot's value.
func (t *Table[T]) Get(slot uint32) (v T) {
	if i := int(slot / page); i < len(t.pages) && t.pages[i] != nil {
		v = t.pages[i][slot%page]
	}
	return v
}
