//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
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
)

// create loads the programs onto the maps: as they are, or, where something about them
// or the kernel is not as expected, with the library, which can leave out those that
// the kernel refuses, and says why.
func (s *set) create(o *object) error {
	if o.types != nil && s.loadPrograms(o) == nil {
		return nil
	}
	var err error
	cache := btf.NewCache()
	for range len(o.spec.Programs) {
		var coll *ebpf.Collection
		coll, err = ebpf.NewCollectionWithOptions(o.spec, ebpf.CollectionOptions{Cache: cache, MapReplacements: s.maps})
		if err == nil {
			maps.Copy(s.progs, coll.Programs)
			coll.Programs = nil
			coll.Close() // its copies of the maps
			return nil
		}
		name := refused(o.spec, err)
		if name == "" || name == "sys_exit" {
			return err
		}
		s.failed[name] = err
		delete(o.spec.Programs, name)
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

// loadPrograms loads all programs, on two threads. The library would index all of the
// kernel's types for the tracepoint of one, and give the kernel types for each, which
// have the same functions in them.
func (s *set) loadPrograms(o *object) error {
	var types btf.Builder
	functions := map[string][]byte{}
	for name, p := range o.spec.Programs {
		var err error
		if functions[name], _, err = btf.MarshalExtInfos(p.Instructions, &types); err != nil {
			return err
		}
	}
	described, err := btf.NewHandle(&types)
	if err != nil {
		return err
	}
	defer described.Close()
	list := slices.SortedFunc(maps.Values(o.spec.Programs), func(a, b *ebpf.ProgramSpec) int {
		return cmp.Compare(len(b.Instructions), len(a.Instructions))
	})
	queue := make(chan *ebpf.ProgramSpec, len(list))
	for _, p := range list {
		queue <- p
	}
	close(queue)
	var g errgroup.Group
	var loaded [2]map[string]*ebpf.Program
	for i := range loaded {
		loaded[i] = map[string]*ebpf.Program{}
		g.Go(func() error {
			for p := range queue {
				prog, err := s.loadProgram(o, p, described.FD(), functions[p.Name])
				if err != nil {
					return err
				}
				loaded[i][p.Name] = prog
			}
			return nil
		})
	}
	err = g.Wait()
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

// loadProgram loads one. functions says which of the described types its functions have.
func (s *set) loadProgram(o *object, p *ebpf.ProgramSpec, described int, functions []byte) (*ebpf.Program, error) {
	code := slices.Clone(p.Instructions) // the library would find the fields in place already
	for i := range code {
		if ins := &code[i]; ins.IsLoadFromMap() {
			m := s.maps[ins.Reference()]
			if m == nil {
				return nil, fmt.Errorf("there is no map %s", ins.Reference())
			}
			if err := ins.AssociateMap(m); err != nil {
				return nil, err
			}
		}
	}
	var out bytes.Buffer
	out.Grow(2 * asm.InstructionSize * len(code))
	if err := encode(&out, code, p.ByteOrder, o.types); err != nil {
		return nil, err
	}
	a := loadAttr{
		kind: uint32(p.Type), instructions: uint32(out.Len() / asm.InstructionSize), code: unsafe.Pointer(unsafe.SliceData(out.Bytes())),
		license: unsafe.Pointer(unsafe.StringData(p.License + "\x00")), attach: uint32(p.AttachType), flags: p.Flags,
		types: uint32(described), functionSize: btf.FuncInfoSize, functions: unsafe.Pointer(unsafe.SliceData(functions)), functionCount: uint32(len(functions)) / btf.FuncInfoSize,
	}
	copy(a.name[:len(a.name)-1], p.Name)
	if p.Type == ebpf.Tracing {
		if a.target = o.targets[p.AttachTo]; a.target == 0 {
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
