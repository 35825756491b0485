//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/assay-run/assay-run/bpf"
)

// object is this build's programs and maps, configured for this host.
type object struct {
	spec    *ebpf.CollectionSpec
	types   *btf.Spec         // the kernel's that the programs refer to; nil when they cannot be told
	mounted uint32            // DCACHE_MOUNTED, which is not the same in all kernels
	targets map[string]uint32 // the kernel's types of the tracepoints that programs are loaded for, 0 unknown
}

// errNoTracepoint: it came with Linux 6.4.
var errNoTracepoint = errors.New("this kernel does not report io_uring requests")

// object reads the embedded object and configures it. Programs that this kernel has
// no use for go to s.failed.
func (s *set) object() (*object, error) {
	types := make(chan *rawTypes, 1)
	go func() {
		t, _ := readKernelTypes() // without, the loader looks for itself, and says what is missing
		types <- t
	}()
	spec, err := bpf.LoadAssay()
	kernelTypes := <-types
	if err != nil {
		return nil, fmt.Errorf("read the embedded programs: %w", err)
	}
	if err := s.configure(spec); err != nil {
		return nil, err
	}
	o := &object{spec: spec}
	if kernelTypes == nil {
		return o, nil
	}
	o.mounted = kernelTypes.enumValue("dentry_flags", "DCACHE_MOUNTED")
	if err := spec.Variables["complete_args"].Set(uint32(kernelTypes.tracepointArgs("io_uring_complete"))); err != nil {
		return nil, fmt.Errorf("set complete_args in the programs: %w", err)
	}
	if err := castWords(spec, kernelTypes); err != nil {
		return nil, err
	}
	if kernelTypes.tracepointArgs(tracepoints["submitted"]) == 0 {
		s.failed["submitted"] = errNoTracepoint
		delete(spec.Programs, "submitted")
	}
	o.targets = map[string]uint32{}
	for _, p := range spec.Programs {
		if p.Type == ebpf.Tracing {
			o.targets[p.AttachTo] = kernelTypes.tracepoint(p.AttachTo).id
		}
	}
	o.types = neededTypes(kernelTypes, spec)
	return o, nil
}

// load makes the maps and loads the programs, and furnishes seat 0 meanwhile, with a
// ring of that size: the kernel takes as long to hand its maps to the programs as to
// check these.
func (s *set) load(ring int) error {
	o, err := s.object()
	if err != nil {
		return err
	}
	if err := s.makeMaps(o.spec); err != nil {
		return err
	}
	furnished := make(chan error, 1)
	go func() {
		var err error
		s.first, err = s.furnish(0, ring)
		furnished <- err
	}()
	if err := errors.Join(s.create(o), <-furnished); err != nil {
		return err
	}
	_ = s.locateNames(o.mounted) // without, names with ".." stay as given and are marked
	return s.remember()
}

// neededTypes are the kernel's types that spec may refer to, or nil when they
// cannot be told.
func neededTypes(all *rawTypes, spec *ebpf.CollectionSpec) *btf.Spec {
	if all == nil {
		return nil
	}
	defer all.close()
	names, err := structNames(spec.Types)
	if err != nil {
		return nil
	}
	types, err := all.cut(names)
	if err != nil {
		return nil
	}
	return types
}
