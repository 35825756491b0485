//go:build linux && (amd64 || arm64)

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/bpf"
)

// create loads the programs onto the maps: as package bpf has them written down, or, where
// something about them or the kernel is not as expected, with the library.
func (s *set) create(types *rawTypes, known *knowledge) error {
	if known != nil && s.loadPrograms(types, known) == nil {
		return nil
	}
	spec, err := s.embedded(types)
	if err != nil {
		return err
	}
	return s.createFrom(spec)
}

// createFrom loads them with the library, which can leave out those that the kernel
// refuses, and says why.
func (s *set) createFrom(spec *ebpf.CollectionSpec) error {
	var err error
	cache := btf.NewCache()
	for range len(spec.Programs) {
		var coll *ebpf.Collection
		coll, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Cache: cache, MapReplacements: s.maps})
		if err == nil {
			maps.Copy(s.progs, coll.Programs)
			coll.Programs = nil
			coll.Close() // its copies of the maps
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

// makeMaps makes those that the set does not have yet.
func (s *set) makeMaps(spec *ebpf.CollectionSpec) error {
	bare := ebpf.CollectionSpec{Maps: maps.Clone(spec.Maps), Variables: maps.Clone(spec.Variables)}
	maps.DeleteFunc(bare.Maps, func(name string, _ *ebpf.MapSpec) bool { return s.maps[name] != nil })
	maps.DeleteFunc(bare.Variables, func(_ string, v *ebpf.VariableSpec) bool { return bare.Maps[v.SectionName] == nil })
	coll, err := ebpf.NewCollection(&bare)
	if err != nil {
		return err
	}
	maps.Copy(s.maps, coll.Maps)
	maps.Copy(s.vars, coll.Variables)
	coll.Maps = nil
	coll.Close()
	return nil
}

// knowledge is what loadPrograms has to know of the kernel's types.
type knowledge struct {
	object    *bpf.Object
	fields    []int
	described *btf.Handle // the types of the programs' functions
}

// learn is nil where the library has to load the programs. Close what it returns.
func (t *rawTypes) learn() *knowledge {
	if t == nil {
		return nil
	}
	object := t.object()
	described, err := btf.NewHandleFromRawBTF(object.Types())
	if err != nil {
		return nil
	}
	return &knowledge{object, t.fields(object.Fields), described}
}

func (k *knowledge) close() {
	if k != nil {
		k.described.Close()
	}
}

// loadPrograms loads all programs, the longest first, on two threads. The library would
// parse them, index all of the kernel's types for the tracepoint of one, and give the
// kernel types for each, which have the same functions in them.
func (s *set) loadPrograms(types *rawTypes, known *knowledge) error {
	list := slices.SortedFunc(slices.Values(known.object.Programs), func(a, b bpf.PlainProgram) int {
		return cmp.Compare(b.End-b.Begin, a.End-a.Begin)
	})
	queue := make(chan *bpf.PlainProgram, len(list))
	for i := range list {
		if s.failed[list[i].Name] == nil {
			queue <- &list[i]
		}
	}
	close(queue)
	var g errgroup.Group
	var loaded [2]map[string]*ebpf.Program
	for i := range loaded {
		loaded[i] = map[string]*ebpf.Program{}
		g.Go(func() error {
			for p := range queue {
				prog, err := s.loadProgram(p, types, known)
				if err != nil {
					return err
				}
				loaded[i][p.Name] = prog
			}
			return nil
		})
	}
	err := g.Wait()
	for _, progs := range loaded {
		if err == nil {
			maps.Copy(s.progs, progs)
			continue
		}
		for _, p := range progs {
			p.Close()
		}
	}
	return err
}

// loadProgram loads one.
func (s *set) loadProgram(p *bpf.PlainProgram, types *rawTypes, known *knowledge) (*ebpf.Program, error) {
	code, ok := plainCode(nil, known.object, p, known.fields)
	if !ok {
		return nil, errors.New("where a field is, is not clear")
	}
	for load := range mapLoads(code) {
		m := s.maps[p.Maps[le.Uint32(load[4:])]]
		if m == nil {
			return nil, errors.New("there is no such map")
		}
		le.PutUint32(load[4:], uint32(m.FD()))
	}
	functions := (*known.object.Code)[p.End:p.Functions]
	a := loadAttr{
		kind: p.Type, instructions: uint32(len(code) / asm.InstructionSize), code: unsafe.Pointer(unsafe.SliceData(code)),
		license: unsafe.Pointer(unsafe.StringData(p.License + "\x00")), attach: p.Attach, flags: p.Flags,
		types: uint32(known.described.FD()), functionSize: btf.FuncInfoSize, functions: unsafe.Pointer(unsafe.StringData(functions)), functionCount: uint32(len(functions)) / btf.FuncInfoSize,
	}
	copy(a.name[:len(a.name)-1], p.Name)
	if ebpf.ProgramType(p.Type) == ebpf.Tracing {
		if a.target = types.tracepoint(p.AttachTo).id; a.target == 0 {
			return nil, fmt.Errorf("there is no tracepoint %s", p.AttachTo)
		}
	}
	for range interrupted {
		fd, _, e := unix.Syscall(unix.SYS_BPF, cmdProgLoad, uintptr(unsafe.Pointer(&a)), unsafe.Sizeof(a))
		if e == 0 {
			return ebpf.NewProgramFromFD(int(fd))
		}
		if e != unix.EAGAIN {
			return nil, os.NewSyscallError("bpf", e)
		}
	}
	return nil, errors.New("the kernel was interrupted too often")
}

// interrupted is how often the kernel may give up a program because of a signal.
const interrupted = 10

// loadAttr is what BPF_PROG_LOAD is given: union bpf_attr in include/uapi/linux/bpf.h.
type loadAttr struct {
	kind, instructions  uint32
	code, license       unsafe.Pointer
	_, _                uint32 // log
	_                   uint64
	_, flags            uint32
	name                [16]byte
	_, attach           uint32
	types, functionSize uint32
	functions           unsafe.Pointer
	functionCount, _    uint32
	_                   uint64 // lines
	_, target           uint32
	_                   [2]uint32
}
