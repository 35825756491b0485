//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sync/errgroup"
)

// heavy are the programs that take the verifier about as long as all others
// together.
var heavy = []string{"sys_exit", "execed"}

// create loads everything, or, where some program is refused, everything else.
// types are those of the kernel's that the programs refer to; nil looks them up.
func (l *loaded) create(spec *ebpf.CollectionSpec, types *btf.Spec) error {
	if types != nil && l.createHalves(spec, types) == nil {
		return nil
	}
	var err error
	cache := btf.NewCache()
	for range len(spec.Programs) {
		l.coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: cache})
		if err == nil {
			return nil
		}
		name := refused(spec, err)
		if name == "" || name == "sys_exit" {
			return err
		}
		l.failed[name] = err
		delete(spec.Programs, name)
	}
	return err
}

// createHalves loads the programs on two threads, around the same maps.
func (l *loaded) createHalves(spec *ebpf.CollectionSpec, types *btf.Spec) error {
	empty := *spec
	empty.Programs = nil
	all, err := ebpf.NewCollection(&empty)
	if err != nil {
		return err
	}
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
			colls[i], err = ebpf.NewCollectionWithOptions(&halves[i], ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: types}, MapReplacements: all.Maps})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		for _, c := range append(colls[:], all) {
			if c != nil {
				c.Close()
			}
		}
		return errors.Join(err)
	}
	all.Programs = map[string]*ebpf.Program{}
	for _, c := range colls {
		maps.Copy(all.Programs, c.Programs)
		c.Programs = nil
		c.Close() // its copies of the maps
	}
	l.coll = all
	return nil
}
