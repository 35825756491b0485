package schema_test

import (
	"testing"

	"github.com/assay-run/assay-run/schema"
)

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		word     string
		names    []string
		nearest  string
		distance int
	}{
		{"conect", []string{"open", "connect", "connections"}, "connect", 1},
		{"open", []string{"openat", "open"}, "open", 0},
		{"b", []string{"d", "c"}, "c", 1},
		{"", []string{"abc"}, "abc", 3},
		{"timeout", []string{"time-out", "tineouts"}, "time-out", 1},
	} {
		if nearest, distance := schema.Nearest(c.word, c.names); nearest != c.nearest || distance != c.distance {
			t.Errorf("%q in %q: %q, %d", c.word, c.names, nearest, distance)
		}
	}
}
