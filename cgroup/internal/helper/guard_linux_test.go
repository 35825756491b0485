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

// Nobody reads a waiter's pipe: the runner must not wait until somebody does.
func TestAFullPipeStopsNobody(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	self, _ := os.FindProcess(os.Getpid())
	g := &Guard{pipe: w, waiter: self, room: roomIn(w)}
	dir := "/" + strings.Repeat("x", 2100) // a page takes one
	for range 100 {
		g.Inherit(dir)
	}
	g.Leave()
	var left inheritance
	if released(int(r.Fd()), -1, left.hear) {
		t.Error("the guard heard a release")
	}
	if n := len(left.dirs); n < 10 || n > 16 || slices.ContainsFunc(left.dirs, func(d string) bool {
		return d != dir
	}) {
		t.Errorf("heard %d directories", n)
	}
}
