//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// errNoTracepoint: it came with Linux 6.4.
var errNoTracepoint = errors.New("this kernel does not report io_uring requests")

// load makes the maps and loads the programs, and furnishes seat 0 meanwhile, with a
// ring of that size: the kernel takes as long to hand its maps to the programs as to
// check these.
func (s *set) load(ring int) error {
	types, _ := readKernelTypes() // without, the library looks for itself, and says what is missing
	mounted := uint32(0)
	if types != nil {
		defer types.close()
		mounted = types.enumValue("dentry_flags", "DCACHE_MOUNTED") // which is not the same in all kernels
	}
	spec := types.object().Spec()
	if err := s.configure(spec, types); err != nil {
		return err
	}
	if err := s.makeMaps(spec); err != nil {
		return err
	}
	furnished := make(chan error, 1)
	go func() {
		var err error
		s.first, err = s.furnish(0, ring)
		furnished <- err
	}()
	if err := errors.Join(s.create(types), <-furnished); err != nil {
		return err
	}
	_ = s.locateNames(mounted) // without, names with ".." stay as given and are marked
	return s.remember()
}

// embedded reads the embedded object and configures it.
func (s *set) embedded(types *rawTypes) (*ebpf.CollectionSpec, error) {
	spec, err := types.object().Load()
	if err != nil {
		return nil, fmt.Errorf("read the embedded programs: %w", err)
	}
	return spec, s.configure(spec, types)
}
