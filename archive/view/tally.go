package view

import "slices"

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

// tally gathers items by key, as many as it may, in the order in which they came.
type tally[T any] struct {
	m      map[string]int // the place in items
	items  []T
	bytes  int
	beyond uint64
}

func newTally[T any]() *tally[T] { return &tally[T]{m: make(map[string]int)} }

// at returns the item of key, which is zero the first time and valid until the next call. If the tally
// is full, at counts n occurrences and returns nil.
func (t *tally[T]) at(key string, n uint64) *T {
	if i, ok := t.m[key]; ok {
		return &t.items[i]
	}
	if len(t.m) >= maxDistinct || t.bytes+len(key) > maxKeyBytes {
		t.beyond += n
		return nil
	}
	t.m[key] = len(t.items)
	t.items = append(t.items, *new(T))
	t.bytes += len(key)
	return &t.items[len(t.items)-1]
}

func (t *tally[T]) has(key string) bool { _, ok := t.m[key]; return ok }

// list returns limit items, those of the lowest rank first and equal ones in the order in which
// they came. Limit 0 is all of them. It sorts the tally's own items, as a copy could be large:
// afterwards only has may be called.
func (t *tally[T]) list(limit int, rank func(*T) int) List[T] {
	slices.SortStableFunc(t.items, func(a, b T) int { return rank(&a) - rank(&b) })
	l := List[T]{Items: t.items, Total: uint64(len(t.m)), Beyond: t.beyond}
	if l.Items == nil {
		l.Items = []T{}
	}
	if limit > 0 {
		l.Items = slices.Clone(l.Items[:min(limit, len(l.Items))])
	}
	return l
}

// split parts a list in those that are so and the others. How many of each were only
// counted is not known: the first part has them.
func split[T any](l List[T], so func(T) bool) (first, second List[T]) {
	for _, item := range l.Items {
		part := &second
		if so(item) {
			part = &first
		}
		part.Items = append(part.Items, item)
		part.Total++
	}
	first.Beyond = l.Beyond
	return first, second
}
