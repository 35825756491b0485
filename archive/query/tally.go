package query

import (
	"cmp"
	"slices"
)

// List holds the first entries of a longer list.
type List[T any] struct {
	Items []T `json:"items"`
	// Total is how many different ones were told apart, Beyond how many
	// occurrences of further ones were only counted.
	Total  uint64 `json:"total"`
	Beyond uint64 `json:"beyond,omitempty"`
}

// maxDistinct and maxKeyBytes bound a tally.
const (
	maxDistinct = 50_000
	maxKeyBytes = 8 << 20
)

// tally gathers items by key, as many as it may.
type tally[T any] struct {
	m      map[string]*T
	bytes  int
	beyond uint64
}

func newTally[T any]() *tally[T] { return &tally[T]{m: make(map[string]*T)} }

// at returns the item of key, a zero one the first time. When no more are
// taken in it counts n occurrences and returns nil.
func (t *tally[T]) at(key string, n uint64) *T {
	if v := t.m[key]; v != nil {
		return v
	}
	if len(t.m) >= maxDistinct || t.bytes+len(key) > maxKeyBytes {
		t.beyond += n
		return nil
	}
	v := new(T)
	t.m[key] = v
	t.bytes += len(key)
	return v
}

// list returns the limit items of the greatest weight, equal ones by name.
func (t *tally[T]) list(limit int, weigh func(*T) (uint64, string)) List[T] {
	l := List[T]{Items: []T{}, Total: uint64(len(t.m)), Beyond: t.beyond}
	all := make([]*T, 0, len(t.m))
	for _, v := range t.m {
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b *T) int {
		wa, na := weigh(a)
		wb, nb := weigh(b)
		return cmp.Or(cmp.Compare(wb, wa), cmp.Compare(na, nb))
	})
	for _, v := range all[:min(limit, len(all))] {
		l.Items = append(l.Items, *v)
	}
	return l
}
