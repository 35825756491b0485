//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// A pinned set says itself what it is made of, and root can write that too. So who
// finds one makes sure that its programs are what this build's object gives on this
// kernel, run on the set's maps, with this build's constants. It is begun with the
// preparation of the session, done when no other has use for the CPU, and waited for at
// the session's end. What plain says takes a tenth of what the loader takes to say the
// same, so the loader is asked only when plain does not say yes.

// suspect is what is compared of a set.
type suspect struct {
	tags      map[string]string   // by program
	maps      map[string][]uint32 // the ids of those that a program uses, in its order
	ids       map[string]uint32   // by map
	constants []byte

	thread atomic.Int64 // of who compares
	hurry  atomic.Bool  // somebody waits for it
	found  chan error
}

// examine begins to compare the set with this build, unless this process made it.
func (l *loaded) examine() error {
	if !l.foundPinned {
		return nil
	}
	x := &suspect{tags: l.made.Tags, ids: l.made.Maps, maps: l.uses, found: make(chan error, 1)}
	var err error
	if x.constants, err = l.maps[".rodata"].LookupBytes(uint32(0)); err != nil {
		return fmt.Errorf("read the constants: %w", err)
	}
	l.suspect = x
	go func() {
		runtime.LockOSThread() // which ends with this
		x.thread.Store(int64(unix.Gettid()))
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, idleNice)
		if x.hurry.Load() {
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
		}
		if x.plain() {
			x.found <- nil
		} else {
			x.found <- x.compare()
		}
	}()
	return nil
}

// idleNice gives way to everything else.
const idleNice = 19

// genuine waits for what examine found. It is to be called once.
func (l *loaded) genuine() error {
	if l.suspect == nil {
		return nil
	}
	l.suspect.hurry.Store(true)
	if t := l.suspect.thread.Load(); t != 0 {
		_ = unix.Setpriority(unix.PRIO_PROCESS, int(t), 0)
	}
	return <-l.suspect.found
}

// compare returns what is not this build's.
func (x *suspect) compare() error {
	s, err := newSet(maxSeats)
	if err != nil {
		return err
	}
	types, err := readKernelTypes()
	if err != nil {
		return fmt.Errorf("it cannot be compared with this build: %w", err)
	}
	defer types.close()
	spec, err := s.embedded(types)
	if err != nil {
		return err
	}
	needed, err := types.needed(spec)
	if err != nil {
		return fmt.Errorf("it cannot be compared with this build: %w", err)
	}
	for _, v := range spec.Variables {
		end := int(v.Offset) + len(v.Value)
		if v.SectionName == ".rodata" && v.Name != "seed" && (end > len(x.constants) || !bytes.Equal(x.constants[v.Offset:end], v.Value)) {
			return fmt.Errorf("its constant %s is not this build's", v.Name)
		}
	}
	var code bytes.Buffer
	for name, tag := range x.tags {
		p := spec.Programs[name]
		if p == nil {
			return fmt.Errorf("this build has no program %s", name)
		}
		code.Reset()
		code.Grow(2 * asm.InstructionSize * len(p.Instructions))
		if err := encode(&code, p.Instructions, p.ByteOrder, needed); err != nil {
			return fmt.Errorf("program %s cannot be compared with this build's: %w", name, err)
		}
		if !digested(withoutMaps(code.Bytes()), tag) {
			return fmt.Errorf("its program %s is not this build's", name)
		}
		if !slices.EqualFunc(mapsOf(p), x.maps[name], x.called) {
			return fmt.Errorf("its program %s uses other maps", name)
		}
	}
	return nil
}

// called tells whether the set's map of that name has that id.
func (x *suspect) called(name string, id uint32) bool { return x.ids[name] == id }

// mapsOf are the names of the maps that a program uses, in the order of their first use.
func mapsOf(p *ebpf.ProgramSpec) (names []string) {
	for i := range p.Instructions {
		ins := &p.Instructions[i]
		if ins.IsLoadFromMap() && !slices.Contains(names, ins.Reference()) {
			names = append(names, ins.Reference())
		}
	}
	return names
}

// encode writes a program as it is given to the kernel, and relocates the instructions.
func encode(out *bytes.Buffer, code asm.Instructions, order binary.ByteOrder, types *btf.Spec) error {
	var relocations []*btf.CORERelocation
	var at []*asm.Instruction
	for i := range code {
		if r := btf.CORERelocationMetadata(&code[i]); r != nil {
			relocations, at = append(relocations, r), append(at, &code[i])
		}
	}
	if len(relocations) > 0 {
		// Types of the program's own would have other ids when it is loaded: it has none.
		noTypes := func(btf.Type) (btf.TypeID, error) { return 0, errors.New("a reference to a type of its own") }
		fixups, err := btf.CORERelocate(relocations, []*btf.Spec{types}, order, noTypes)
		if err != nil {
			return err
		}
		for i, f := range fixups {
			if err := f.Apply(at[i]); err != nil {
				return err
			}
		}
	}
	return code.Marshal(out, order)
}

// withoutMaps clears what refers to maps, as the kernel does for a tag.
func withoutMaps(code []byte) []byte {
	for load := range mapLoads(code) {
		clear(load[4:asm.InstructionSize])
		clear(load[asm.InstructionSize+4:])
	}
	return code
}

// mapLoads are the instructions that refer to maps, which are of twice the size.
func mapLoads(code []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		const size, load = asm.InstructionSize, 0x18
		for i := 0; i+2*size <= len(code); i += size {
			source := asm.Register(code[i+1] >> 4)
			if code[i] == load && (source == asm.PseudoMapFD || source == asm.PseudoMapValue) && !yield(code[i:i+2*size]) {
				return
			}
		}
	}
}

// digested tells whether the kernel gives instructions that tag, which is their digest:
// SHA-256 since Linux 6.18 and SHA-1 before (bpf_prog_calc_tag in kernel/bpf/core.c).
func digested(code []byte, tag string) bool {
	if now := sha256.Sum256(code); hex.EncodeToString(now[:8]) == tag {
		return true
	}
	before := sha1.Sum(code)
	return hex.EncodeToString(before[:8]) == tag
}
