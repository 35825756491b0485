package layer

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"unsafe"
)

// stringSet is a set of strings in three slices without pointers: a quarter of
// what a map of them takes, and nothing for the garbage collector to walk.
// Together they hold less than 4 GiB. The zero value is empty.
type stringSet struct {
	text  []byte   // all strings, one after the other
	ends  []uint32 // where each ends in text
	table []uint32 // hashed: the number of a string plus 1, 0 when free
	seed  maphash.Seed
}

// add reports whether v is new.
func (s *stringSet) add(v string) bool {
	if 4*len(s.ends) >= 3*len(s.table) {
		s.grow()
	}
	i := s.slot(maphash.String(s.seed, v), v)
	if s.table[i] != 0 {
		return false
	}
	s.text = append(s.text, v...)
	s.ends = append(s.ends, uint32(len(s.text)))
	s.table[i] = uint32(len(s.ends))
	return true
}

// slot is where v is, or where it belongs.
func (s *stringSet) slot(hash uint64, v string) uint64 {
	mask := uint64(len(s.table) - 1)
	i := hash & mask
	for s.table[i] != 0 && s.at(s.table[i]-1) != v {
		i = (i + 1) & mask
	}
	return i
}

// at is the nth string, until the set is cleared.
func (s *stringSet) at(n uint32) string {
	start := uint32(0)
	if n > 0 {
		start = s.ends[n-1]
	}
	return unsafe.String(unsafe.SliceData(s.text[start:]), s.ends[n]-start)
}

func (s *stringSet) grow() {
	if s.table == nil {
		s.seed = maphash.MakeSeed()
	}
	s.table = make([]uint32, max(256, 2*len(s.table)))
	mask := uint64(len(s.table) - 1)
	for n := range uint32(len(s.ends)) {
		i := maphash.String(s.seed, s.at(n)) & mask
		for s.table[i] != 0 {
			i = (i + 1) & mask
		}
		s.table[i] = n + 1
	}
}

// bytes is about what the strings take.
func (s *stringSet) bytes() int { return len(s.text) + 12*len(s.ends) }

// clear empties the set and keeps its memory.
func (s *stringSet) clear() {
	s.text, s.ends = s.text[:0], s.ends[:0]
	clear(s.table)
}

// sorted yields the strings, ascending by bytes, as at does. The set must not
// change meanwhile.
func (s *stringSet) sorted() iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, n := range s.order() {
			if !yield(s.at(n)) {
				return
			}
		}
	}
}

// order is the numbers of the strings, ascending by the strings' bytes.
func (s *stringSet) order() []uint32 {
	order := make([]uint32, len(s.ends))
	for n := range order {
		order[n] = uint32(n)
	}
	slices.SortFunc(order, func(a, b uint32) int { return strings.Compare(s.at(a), s.at(b)) })
	return order
}
