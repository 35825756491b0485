//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// genuine makes sure that a pinned set is what this build would load on this kernel. A
// pinned set says itself what it is made of, and root can write that too. So the embedded
// object is loaded beside it, attached to nothing, and the kernel's tags of the programs,
// the maps that they use and their constants are compared.
func (s *set) genuine() error {
	own, err := newSet(1)
	if err != nil {
		return err
	}
	defer own.close()
	object, err := own.loadObject()
	if err != nil {
		return fmt.Errorf("it cannot be compared with this build: %w", err)
	}
	if own.made, err = own.ids(); err != nil {
		return err
	}
	constants, err := s.maps[".rodata"].LookupBytes(uint32(0))
	if err != nil {
		return fmt.Errorf("read the constants: %w", err)
	}
	for _, v := range object.Variables {
		end := int(v.Offset) + len(v.Value)
		if v.SectionName == ".rodata" && v.Name != "seed" && (end > len(constants) || !bytes.Equal(constants[v.Offset:end], v.Value)) {
			return fmt.Errorf("its constant %s is not this build's", v.Name)
		}
	}
	for name, p := range s.progs {
		if own.progs[name] == nil {
			return fmt.Errorf("this build has no program %s", name)
		}
		if s.made.Tags[name] != own.made.Tags[name] {
			return fmt.Errorf("its program %s is not this build's", name)
		}
		theirs, err := s.mapsOf(p)
		if err != nil {
			return err
		}
		ours, err := own.mapsOf(own.progs[name])
		if err != nil {
			return err
		}
		if !slices.Equal(theirs, ours) {
			return fmt.Errorf("its program %s uses other maps", name)
		}
	}
	for name := range own.progs {
		if s.progs[name] == nil {
			return fmt.Errorf("it lacks program %s", name)
		}
	}
	return nil
}

// mapsOf are the names of the set's maps that a program uses, in the order of their first
// use. A map of somebody else's has no name.
func (s *set) mapsOf(p *ebpf.Program) ([]string, error) {
	info, err := p.Info()
	if err != nil {
		return nil, fmt.Errorf("ask for program %s: %w", p, err)
	}
	ids, _ := info.MapIDs()
	names := make([]string, len(ids))
	for i, id := range ids {
		for name, have := range s.made.Maps {
			if have == uint32(id) {
				names[i] = name
			}
		}
	}
	return names, nil
}

// loadObject loads the embedded object for this kernel, attached to nothing, and returns it.
func (s *set) loadObject() (*ebpf.CollectionSpec, error) {
	cache := btf.NewCache()
	object, err := s.embedded(typesOf(cache))
	if err != nil {
		return nil, err
	}
	if err := s.makeMaps(object); err != nil {
		return nil, err
	}
	return object, s.loadPrograms(object, cache)
}
