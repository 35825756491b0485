//go:build linux && (amd64 || arm64)

package kernel

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// A struct's members can look like types, so that a stretch begins in the middle of a
// type. All types are found nevertheless, under their numbers.
func TestWalkFindsEveryType(t *testing.T) {
	names := append([]byte{0}, castFunction+"\x00"+wordStruct+"\x00"...)
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		var types []byte
		put := func(words ...uint32) {
			for _, w := range words {
				types = binary.NativeEndian.AppendUint32(types, w)
			}
		}
		var places []uint32
		begin := func(name, kind, vlen uint32) {
			places = append(places, uint32(len(types)))
			put(name, kind<<24|vlen, 0)
		}
		cast, word := uint32(0), uint32(0)
		n := 1 + random.IntN(2000)
		for i := range n {
			switch kind := 1 + random.Uint32N(kindEnum64); {
			case i == n/3:
				begin(1, kindFunc, 1)
				cast = uint32(i + 1)
			case i == n/2:
				begin(uint32(len(castFunction)+2), kindStruct, 0)
				word = uint32(i + 1)
			case typeKinds[kind].each == 12:
				members := random.Uint32N(400)
				begin(0, kind, members)
				for range members {
					put(0, kindPtr<<24, 0)
				}
			default:
				members := uint32(0)
				if typeKinds[kind].each > 0 {
					members = random.Uint32N(10)
				}
				begin(0, kind, members)
				types = append(types, make([]byte, typeKinds[kind].size-typeHeader+members*typeKinds[kind].each)...)
			}
		}
		x := &rawTypes{types: types, names: names}
		if err := x.walk(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if x.count != uint32(len(places))+1 {
			t.Fatalf("seed %d: %d types, want %d", seed, x.count-1, len(places))
		}
		for i, want := range places {
			id := uint32(i + 1)
			if off, ok := x.at(id); !ok || off != want || x.idOf(off) != id {
				t.Fatalf("seed %d: type %d is at %d and called %d there, want it at %d", seed, id, off, x.idOf(off), want)
			}
		}
		if f, w := x.wordCast(); n > 5 && (f != cast || w != word) {
			t.Errorf("seed %d: the function is %d and the struct %d, want %d and %d", seed, f, w, cast, word)
		}
		x = &rawTypes{types: types[:len(types)-4], names: names}
		if x.walk() == nil {
			t.Errorf("seed %d: types that are cut short pass for whole", seed)
		}
		binary.NativeEndian.PutUint32(types[places[n/4]+4:], 20<<24)
		x = &rawTypes{types: types, names: names}
		if x.walk() == nil {
			t.Errorf("seed %d: a kind that there is not passes", seed)
		}
	}
}
