//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/assay-run/assay-run/bpf"
)

// errNoTracepoint: it came with Linux 6.4.
var errNoTracepoint = errors.New("this kernel does not report io_uring requests")

// constants is the map that they are in, the only one that depends on the kernel's types.
const constants = ".rodata"

// load makes the maps and loads and attaches the programs. What does not depend on each
// other is done in parallel: the maps are made while the kernel's types are read, and
// seat 0 is furnished, with a ring of that size, while the programs are loaded, since the
// kernel takes as long to hand its maps to the programs as to check these.
func (s *set) load(ring int) error {
	most := bpf.Assay.Spec() // the other object's maps are the same but for the constants
	s.size(most)
	delete(most.Maps, constants)
	made := make(chan error, 1)
	go func() { made <- s.makeMaps(most) }()

	types, _ := readKernelTypes() // without, the library looks for itself, and says what is missing
	mounted := uint32(0)
	if types != nil {
		defer types.close()
		mounted = types.enumValue("dentry_flags", "DCACHE_MOUNTED") // which is not the same in all kernels
	}
	known := types.learn()
	defer known.close()
	spec := types.object().Spec()
	if err := errors.Join(s.setConstants(spec, types), <-made); err != nil {
		return err
	}
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return name != constants })
	if err := s.makeMaps(spec); err != nil {
		return err
	}

	furnished := make(chan error, 1)
	go func() {
		var err error
		s.first, err = s.furnish(0, ring)
		furnished <- err
	}()
	if err := errors.Join(s.create(types, known), <-furnished); err != nil {
		return err
	}
	located := make(chan error, 1)
	go func() { located <- s.locateNames(mounted) }()
	s.attach()
	<-located // without, names with ".." stay as given and are marked
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
