package view

import "slices"

// List holds the first entries of a longer list.
type List[T any] struct {
	Items []T `json:"items"`
	// Total is the number of distinct items that were tracked. Beyond counts the occurrences of items beyond the
	// limits of tracking.
	Total  uint64 `json:"total"`
	Beyond uint64 `json:"beyond,omitempty"`
}

// Limits of a tally: its number of items and the size of their keys.
const (
	maxDistinct = 50_000
	maxKeyBytes = 8 << 20
)

// tally collects items by key, in the order in which they came.
type tally[T any] struct {
	m      map[string]int // index in items
	items  []T
	bytes  int
	beyond uint64
}

func newTally[T any]() *tally[T] { return &tally[T]{m: make(map[string]int)} }

// at returns the item of key, which is new if it is zero. It is valid until the next call. If the tally is full, at
// counts n occurrences and returns nil.
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

// list returns at most limit items (0: all), sorted by rank; items of the same rank keep their order. It sorts the
// tally's own items, since a copy could be large. Afterwards only has may be called.
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

// split divides a list into the items for which so is true and the others. Beyond, which cannot be divided, goes to the
// first list.
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
