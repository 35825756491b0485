package view

import "slices"

// List holds the first entries of a longer list.
type List[T any] struct {
	Items []T `json:"items"`
	// Total is the number of distinct items that were tracked. Beyond counts the occurrences of items beyond the
	// limits of tracking.
	Total  uint64 `json:"total"`
	Beyond uint64 `json:"beyond,omitempty"`
	// BeyondSecret and BeyondOutside are those of Beyond that the text lists apart: files that may hold secrets, of a
	// list of what was read, and others outside of the workspace.
	BeyondSecret  uint64 `json:"beyond_secret,omitempty"`
	BeyondOutside uint64 `json:"beyond_outside,omitempty"`
}

// Limits of a tally: its number of items and the size of their keys.
const (
	maxDistinct = 50_000
	maxKeyBytes = 8 << 20
)

// tally collects items by key, in the order in which they came.
type tally[T any] struct {
	m               map[string]int // index in items
	items           []T
	bytes           int
	beyond          uint64
	secret, outside uint64 // of beyond

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

// get returns the item of key; nil if there is none. It is valid until the next call of at.
func (t *tally[T]) get(key string) *T {
	if i, ok := t.m[key]; ok {
		return &t.items[i]
	}
	return nil
}

func (t *tally[T]) has(key string) bool { _, ok := t.m[key]; return ok }

// list returns at most limit items (0: all), sorted by rank; items of the same rank keep their order. It sorts the
// tally's own items, since a copy could be large. Afterwards only has may be called.
func (t *tally[T]) list(limit int, rank func(*T) int) List[T] {
	slices.SortStableFunc(t.items, func(a, b T) int { return rank(&a) - rank(&b) })
	l := List[T]{Items: t.items, Total: uint64(len(t.m)), Beyond: t.beyond, BeyondSecret: t.secret,
		BeyondOutside: t.outside}
	if l.Items == nil {
		l.Items = []T{}
	}
	if limit > 0 {
		l.Items = slices.Clone(l.Items[:min(limit, len(l.Items))])
	}
	return l
}

// apart divides a list of files into those that may hold secrets and the others.
func apart(l List[File]) (first, second List[File]) {
	first, second = split(l, func(f File) bool { return f.Secret })
	first.Beyond, second.Beyond, second.BeyondOutside = l.BeyondSecret, l.Beyond-l.BeyondSecret, l.BeyondOutside
	return first, second
}

// places divides a list of files into those outside of the workspace and those inside.
func places(l List[File]) (outside, inside List[File]) {
	outside, inside = split(l, func(f File) bool { return f.Outside })
	outside.Beyond, inside.Beyond = l.BeyondOutside, l.Beyond-l.BeyondOutside
	return outside, inside
}

// split divides the items of a list into those for which so is true and the others.
func split[T any](l List[T], so func(T) bool) (first, second List[T]) {
	for _, item := range l.Items {
		part := &second
		if so(item) {
			part = &first
		}
		part.Items = append(part.Items, item)
		part.Total++
	}
	return first, second
}
