package tape

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
)

// Bases remembers the bodies of recent requests, so that only the new part of the next body is written. One goroutine
// at a time may use it.
type Bases struct{ last []*base }

// Limits on what a Bases remembers, and the smallest saving that is worth a reference.
const (
	maxBases = 4
	minSaved = 512 // bytes
)

// base is a body as members in order.
type base struct {
	seq     uint64
	names   []string
	members map[string]jsontext.Value
	items   map[string][]jsontext.Value // of members that are arrays
}

// baseOf parses a JSON object; nil for anything else.
func baseOf(seq uint64, body jsontext.Value) *base {
	b := &base{seq: seq, members: map[string]jsontext.Value{}, items: map[string][]jsontext.Value{}}
	in := jsontext.NewDecoder(bytes.NewReader(body))
	if t, err := in.ReadToken(); err != nil || t.Kind() != '{' {
		return nil
	}
	for in.PeekKind() == '"' {
		t, err := in.ReadToken()
		if err != nil {
			return nil
		}
		name := t.String()
		v, err := in.ReadValue()
		if err != nil {
			return nil
		}
		b.names, b.members[name] = append(b.names, name), v.Clone()
		if v.Kind() == '[' {
			b.items[name] = itemsOf(b.members[name])
		}
	}
	return b
}

// itemsOf returns the items of an array.
func itemsOf(array jsontext.Value) (items []jsontext.Value) {
	in := jsontext.NewDecoder(bytes.NewReader(array))
	_, _ = in.ReadToken()
	for in.PeekKind() != ']' {
		v, err := in.ReadValue()
		if err != nil {
			return nil
		}
		end := in.InputOffset()
		items = append(items, array[end-int64(len(v)):end])
	}
	return items
}

// saves returns how many bytes of b are also in of.
func (b *base) saves(of *base) (n int) {
	for name, v := range of.members {
		if bytes.Equal(v, b.members[name]) {
			n += len(v)
			continue
		}
		for i, item := range of.items[name] {
			if i < len(b.items[name]) && bytes.Equal(item, b.items[name][i]) {
				n += len(item)
			}
		}
	}
	return n
}

// Cut returns the part of a body that an earlier body lacks, and which body that is. If the saving is too small, it
// returns the whole body and nil.
func (s *Bases) Cut(body jsontext.Value) (jsontext.Value, *schema.ModelBase) {
	of := baseOf(0, body)
	if of == nil {
		return body, nil
	}
	var best *base
	saved := minSaved
	for _, b := range s.last {
		if n := b.saves(of); n > saved {
			best, saved = b, n
		}
	}
	if best == nil {
		return body, nil
	}
	m := &schema.ModelBase{Seq: best.seq}
	rest := jsontext.Value("{")
	member := func(name string) {
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest, _ = jsontext.AppendQuote(rest, name)
		rest = append(rest, ':')
	}
	for _, name := range of.names {
		v, known := of.members[name], best.items[name]
		if bytes.Equal(v, best.members[name]) {
			m.Members = append(m.Members, name)
			continue
		}
		member(name)
		var runs [][2]int
		var others [][]byte
		for i, item := range of.items[name] {
			switch n := len(runs); {
			case i >= len(known) || !bytes.Equal(item, known[i]):
				others = append(others, item)
			case n > 0 && runs[n-1][0]+runs[n-1][1] == i:
				runs[n-1][1]++
			default:
				runs = append(runs, [2]int{i, 1})
			}
		}
		if runs == nil {
			rest = append(rest, v...)
			continue
		}
		if m.Items == nil {
			m.Items = map[string][][2]int{}
		}
		m.Items[name] = runs
		rest = append(append(append(rest, '['), bytes.Join(others, []byte{','})...), ']')
	}
	return append(rest, '}'), m
}

// Keep remembers the whole body of a line.
func (s *Bases) Keep(seq uint64, body jsontext.Value) {
	b := baseOf(seq, body)
	if b == nil {
		return
	}
	if len(s.last) == maxBases {
		s.last = s.last[1:]
	}
	s.last = append(s.last, b)
}

// errBase means that a body does not fit the earlier body that it refers to.
var errBase = errors.New("its request does not fit to the one that it builds on")

// wholeOf restores a body from rest and the earlier body from.
func wholeOf(rest jsontext.Value, m *schema.ModelBase, from jsontext.Value) (jsontext.Value, error) {
	b, r := baseOf(m.Seq, from), baseOf(0, rest)
	if b == nil || r == nil {
		return nil, errBase
	}
	out := jsontext.Value("{")
	add := func(name string, v []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, name)
		out = append(append(out, ':'), v...)
	}
	for _, name := range m.Members {
		v, ok := b.members[name]
		if !ok {
			return nil, fmt.Errorf("%w: %.100q", errBase, name)
		}
		add(name, v)
	}
	for _, name := range r.names {
		runs, some := m.Items[name]
		if !some {
			add(name, r.members[name])
			continue
		}
		var all [][]byte
		known, others := b.items[name], r.items[name]
		for _, run := range runs {
			for ; len(all) < run[0] && len(others) > 0; others = others[1:] {
				all = append(all, others[0])
			}
			if len(all) != run[0] || run[1] < 1 || run[1] > len(known)-run[0] {
				return nil, fmt.Errorf("%w: %.100q", errBase, name)
			}
			for _, item := range known[run[0] : run[0]+run[1]] {
				all = append(all, item)
			}
		}
		for _, item := range others {
			all = append(all, item)
		}
		add(name, append(append([]byte{'['}, bytes.Join(all, []byte{','})...), ']'))
	}
	return append(out, '}'), nil
}
