//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"testing"
)

// The programs for kernels before Linux 6.2 load here too.
func TestProgramsLoadWithoutTheCast(t *testing.T) {
	types, err := readKernelTypes()
	if err != nil {
		t.Skipf("no kernel BTF: %v", err)
	}
	defer types.close()
	types.cast = 0
	s := must(newSet(1))
	defer s.close()
	spec := types.object().Spec()
	if err := errors.Join(s.configure(spec, types), s.makeMaps(spec), s.loadPrograms(types, types.learn())); err != nil {
		t.Fatal(err)
	}
}
