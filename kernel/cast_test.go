//go:build linux && (amd64 || arm64)

package kernel

import "testing"

// Kernels before Linux 6.2 are told of no struct that begins with a word. Their programs
// load here too.
func TestProgramsLoadWithoutTheCast(t *testing.T) {
	s := must(newSet(1))
	defer s.close()
	o := must(s.object())
	if o.types == nil {
		t.Skip("no kernel BTF")
	}
	if err := castWords(o.spec, &rawTypes{}); err != nil {
		t.Fatal(err)
	}
	if err := s.makeMaps(o.spec); err != nil {
		t.Fatal(err)
	}
	if err := s.loadPrograms(o); err != nil {
		t.Fatal(err)
	}
}
