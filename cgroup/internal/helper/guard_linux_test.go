//go:build linux

package helper

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// A long line, and one that a read has cut, are heard whole.
func TestTheGuardHearsWholeLines(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	long := "/" + strings.Repeat("x", 5000)
	g := &Guard{pipe: w}
	go func() {
		g.Inherit("/a\nb")
		g.Inherit(long)
		g.Inherit("relative")
		_ = g.Release()
	}()
	var left inheritance
	if !released(int(r.Fd()), -1, left.hear) {
		t.Error("the release was not heard")
	}
	if want := []string{"/a\nb", long}; !slices.Equal(left.dirs, want) {
		t.Errorf("heard %d directories, want %d", len(left.dirs), len(want))
	}
}
