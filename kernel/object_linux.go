//go:build linux && (amd64 || arm64)

package kernel

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/assay-run/assay-run/bpf"
)

// errNoTracepoint: it came with Linux 6.4.
var errNoTracepoint = errors.New("this kernel does not report io_uring requests")

// kernelTypes are the running kernel's, as far as the programs' constants depend on them.
type kernelTypes struct {
	spec     *btf.Spec // nil when they cannot be read
	castless bool      // in tests, as before Linux 6.2
}

// The programs read a word of the kernel's memory with one instruction, where the kernel
// has a function that tells the verifier what is at an address. See bpf/word.h.
const (
	castFunction = "bpf_rdonly_cast" // since Linux 6.2
	wordStruct   = "timespec64"      // begins with a word
)

// typesOf reads them. Where they cannot be read, the library says so when it loads the
// programs.
func typesOf(cache *btf.Cache) kernelTypes {
	spec, err := cache.Kernel()
	if err != nil {
		return kernelTypes{}
	}
	return kernelTypes{spec: spec}
}

// named returns the kernel's only type of kind T and that name.
func named[T btf.Type](k kernelTypes, name string) (typ T, err error) {
	if k.spec == nil {
		return typ, btf.ErrNotFound
	}
	return typ, k.spec.TypeByName(name, &typ)
}

// word is the number of a struct that begins with a word, 0 where the programs have to
// read words with a helper.
func (k kernelTypes) word() btf.TypeID {
	_, err := named[*btf.Func](k, castFunction)
	word, missing := named[*btf.Struct](k, wordStruct)
	if err != nil || missing != nil || k.castless {
		return 0
	}
	id, err := k.spec.TypeID(word)
	if err != nil {
		return 0
	}
	return id
}

// tracepointArgs is how many arguments a tracepoint has, 0 when there is none. Its type is
// typedef void (*btf_trace_NAME)(void *, ...).
func (k kernelTypes) tracepointArgs(name string) uint32 {
	def, err := named[*btf.Typedef](k, "btf_trace_"+name)
	if err != nil {
		return 0
	}
	pointer, _ := def.Type.(*btf.Pointer)
	if pointer == nil {
		return 0
	}
	proto, _ := pointer.Target.(*btf.FuncProto)
	if proto == nil || len(proto.Params) == 0 {
		return 0
	}
	return uint32(len(proto.Params) - 1)
}

// mountedBit is DCACHE_MOUNTED, which differs between kernels.
func (k kernelTypes) mountedBit() uint32 {
	flags, err := named[*btf.Enum](k, "dentry_flags")
	if err == nil {
		for _, v := range flags.Values {
			if v.Name == "DCACHE_MOUNTED" {
				return uint32(v.Value)
			}
		}
	}
	return 1 << 16 // where it was no member of an enum
}

// load makes the maps and loads and attaches the programs. Slot 0 is furnished, with a
// ring of that size, while the programs are loaded: the kernel takes as long to hand its
// maps to the programs as to check these.
func (s *set) load(ring int) error {
	cache := btf.NewCache()
	types := typesOf(cache)
	object, err := s.embedded(types)
	if err != nil {
		return err
	}
	if err := s.makeMaps(object); err != nil {
		return err
	}
	furnished := make(chan error, 1)
	go func() {
		var err error
		s.first, err = s.furnish(0, ring)
		furnished <- err
	}()
	if err := errors.Join(s.loadPrograms(object, cache), <-furnished); err != nil {
		return err
	}
	_ = s.locateNames(types.mountedBit()) // without, names with ".." stay as given and are marked
	s.attach()
	return s.remember()
}

// embedded is the object for this kernel, with the constants and sizes for this host.
// Programs that this kernel has no use for go to s.failed.
func (s *set) embedded(types kernelTypes) (*ebpf.CollectionSpec, error) {
	load := bpf.LoadAssay
	word := types.word()
	if word != 0 {
		load = bpf.LoadWords
	}
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("read the embedded programs: %w", err)
	}
	s.size(spec)
	native, ia32 := sysTables()
	var seed [8]byte
	rand.Read(seed[:])
	constants := map[string]any{
		"seed":          le.Uint64(seed[:]),
		"syscalls":      append(kernelTable(native), kernelTable(ia32)...),
		"uring_ops":     uringTable(),
		"complete_args": types.tracepointArgs(tracepoints["completed"]),
	}
	if word != 0 {
		constants["word_type"] = uint32(word)
	}
	if types.spec != nil && types.tracepointArgs(tracepoints["submitted"]) == 0 {
		s.failed["submitted"] = errNoTracepoint
		delete(spec.Programs, "submitted")
	}
	for name, v := range constants {
		if err := spec.Variables[name].Set(v); err != nil {
			return nil, fmt.Errorf("set %s in the programs: %w", name, err)
		}
	}
	return spec, nil
}

// makeMaps makes the maps of the object.
func (s *set) makeMaps(object *ebpf.CollectionSpec) error {
	coll, err := ebpf.NewCollection(&ebpf.CollectionSpec{Maps: object.Maps, Variables: object.Variables})
	if err != nil {
		return err
	}
	s.maps, s.vars = coll.Maps, coll.Variables
	return nil
}

// loadPrograms loads the object's programs onto the maps. It leaves out those that the
// kernel refuses, and notes why.
func (s *set) loadPrograms(object *ebpf.CollectionSpec, cache *btf.Cache) error {
	for {
		coll, err := ebpf.NewCollectionWithOptions(object, ebpf.CollectionOptions{Cache: cache, MapReplacements: s.maps})
		if err == nil {
			maps.Copy(s.progs, coll.Programs)
			coll.Programs = nil
			coll.Close() // its copies of the maps
			return nil
		}
		name := refused(object, err)
		if name == "" || name == "sys_exit" {
			return err
		}
		s.failed[name] = err
		delete(object.Programs, name)
	}
}
