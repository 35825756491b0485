package layer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The set is one like a map's keys, through growth and clearing.
func TestStringSetIsASet(t *testing.T) {
	var s stringSet
	r := rand.New(rand.NewPCG(1, 2))
	for range 3 {
		want := map[string]struct{}{}
		for range 5000 {
			v := fmt.Sprint(r.IntN(3000))
			if r.IntN(100) == 0 {
				v = "" // strings without bytes, and with zeroes, count like others
			} else if r.IntN(100) == 0 {
				v += "\x00\xff"
			}
			_, had := want[v]
			want[v] = struct{}{}
			if s.add(v) == had {
				t.Fatalf("%q was there: %v, and add says it is new: %v", v, had, !had)
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Collect(s.sorted())); diff != "" {
			t.Fatal(diff)
		}
		s.clear()
		if len(s.order()) != 0 || s.bytes() != 0 {
			t.Fatal("not empty")
		}
	}
}
