package archive

import (
	"fmt"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// TestTreeIsThatOfRFC6962 holds roots against package tlog, which keeps all hashes.
func TestTreeIsThatOfRFC6962(t *testing.T) {
	var ours tree
	if digest(ours.root()) != "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Error("the root of nothing")
	}
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(at []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(at))
		for i, a := range at {
			out[i] = stored[a]
		}
		return out, nil
	})
	line := func(i int64) []byte { return fmt.Appendf(nil, "line %d", i) }
	for n := int64(1); n <= 70; n++ {
		more, err := tlog.StoredHashes(n-1, line(n-1), read)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, more...)
		ours.addLines(append(line(n-1), '\n'))
		want, err := tlog.TreeHash(n, read)
		if err != nil || ours.root() != want {
			t.Fatalf("the root of %d lines differs (%v)", n, err)
		}
	}
}
