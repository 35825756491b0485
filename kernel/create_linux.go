//go:build linux && (amd64 || arm64)

package kernel

import (
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sync/errgroup"
)

// heavy are the programs that take the verifier about as long as all others
// together.
var heavy = []string{"sys_exit", "execed", "skb_out"}

// create loads the programs onto the maps or, where some program is refused, all
// others. types are those of the kernel's that the programs refer to; nil looks
// them up.
func (s *set) create(spec *ebpf.CollectionSpec, types *btf.Spec) error {
	if types != nil && s.loadHalves(spec, types) == nil {
		return nil
	}
	var err error
	cache := btf.NewCache()
	for range len(spec.Programs) {
		var coll *ebpf.Collection
		coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: cache, MapReplacements: s.maps})
		if err == nil {
			s.take(coll)
			return nil
		}
		name := refused(spec, err)
		if name == "" || name == "sys_exit" {
			return err
		}
		s.failed[name] = err
		delete(spec.Programs, name)
	}
	return err
}

func (s *set) makeMaps(spec *ebpf.CollectionSpec) error {
	bare := *spec
	bare.Programs = nil
	coll, err := ebpf.NewCollection(&bare)
	if err != nil {
		return err
	}
	s.maps, s.vars, coll.Maps = coll.Maps, coll.Variables, nil
	coll.Close()
	return nil
}

// take takes the programs out of a collection.
func (s *set) take(coll *ebpf.Collection) {
	maps.Copy(s.progs, coll.Programs)
	coll.Programs = nil
	coll.Close() // its copies of the maps
}

// loadHalves loads the programs on two threads.
func (s *set) loadHalves(spec *ebpf.CollectionSpec, types *btf.Spec) error {
	halves := [2]ebpf.CollectionSpec{*spec, *spec}
	halves[0].Programs = map[string]*ebpf.ProgramSpec{}
	halves[1].Programs = maps.Clone(spec.Programs)
	for _, name := range heavy {
		halves[0].Programs[name] = spec.Programs[name]
		delete(halves[1].Programs, name)
	}
	var colls [2]*ebpf.Collection
	var g errgroup.Group
	for i := range halves {
		g.Go(func() (err error) {
			colls[i], err = ebpf.NewCollectionWithOptions(&halves[i], ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: types}, MapReplacements: s.maps})
			return err
		})
	}
	err := g.Wait()
	for _, c := range colls {
		switch {
		case c == nil:
		case err == nil:
			s.take(c)
		default:
			c.Close()
		}
	}
	return err
}
