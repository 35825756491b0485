//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/go-json-experiment/json"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/bpf"
)

// set is an observer in the kernel: its programs, the maps that all its sessions share, and its links to
// tracepoints. It observes nobody until a session takes a slot.
type set struct {
	progs  map[string]*ebpf.Program
	maps   map[string]*ebpf.Map
	vars   map[string]*ebpf.Variable
	links  map[string]link.Link // to tracepoints, by program
	failed map[string]error     // programs that did not load or attach, and why
	cpus   int
	slots  int // sessions that fit in

	sessions, epochs []byte // their maps' memory

	first *slot // slot 0, while nobody has taken it since the set was made

	shared      bool      // pinned
	foundPinned bool      // by another process
	made        *manifest // the ids and tags of its objects
	said        uint32    // the id of the pinned manifest's map
	pins        []pin     // the entries of the directory that it is pinned in
	bss         []byte    // the programs' settings when it was loaded or opened
}

const (
	// maxSlots is what SESSION_BITS in bpf/record.h has room for.
	maxSlots = 1 << sessionBits

	sessionBits  = 10
	fileSlots    = 2048 // as in bpf/record.h
	urgentSlots  = 512
	signalSlots  = 64
	slotsPerCPU  = fileSlots + urgentSlots + signalSlots
	scopesPerCPU = 256

	scratchesPerCPU = 3 // as in bpf/state.h

	// membersAlone bounds the processes at once of a set for one session.
	membersAlone = 1 << 16
	// membersMost bounds those of all sessions: 16 bytes of kernel memory each.
	membersMost = 1 << 20
)

// tracepoints are where the programs attach that watch the whole host. Most attach to raw tracepoints, which load
// faster than tp_btf. sys_exit is tp_btf: its arguments are typed, which saves a helper call for every system call
// on the host.
var tracepoints = map[string]string{
	"execed":    "sched_process_exec",
	"forked":    "sched_process_fork",
	"exited":    "sched_process_exit",
	"moved":     "cgroup_attach_task",
	"submitted": "io_uring_submit_req",
	"completed": "io_uring_complete",
	"settled":   "inet_sock_set_state",
	"signalled": "signal_generate",
	"freed":     "kmem_cache_free",
	"consumed":  "consume_skb",
	"rooted":    "cgroup_setup_root",
	"remounted": "cgroup_remount",
	"sys_exit":  "sys_exit",
}

// size sets the sizes of the maps.
func (s *set) size(spec *ebpf.CollectionSpec) {
	most := uint32(membersAlone)
	if s.slots > 1 {
		most = tasksAtOnce()
	}
	for name, n := range map[string]uint32{
		"scratches": uint32(s.cpus * scratchesPerCPU), "scopes": uint32(s.cpus * scopesPerCPU),
		"sessions": uint32(s.slots), "numbers": uint32(s.slots), "members": most, "pendings": most,
		"rings": uint32(s.slots * lanes),
	} {
		spec.Maps[name].MaxEntries = n
	}
	for name, inner := range slotMaps(s.cpus) {
		spec.Maps[name].MaxEntries, spec.Maps[name].InnerMap = uint32(s.slots), inner
	}
	spec.Maps["rings"].InnerMap = ringSpec(os.Getpagesize())
}

// tasksAtOnce bounds how many processes this host can have.
func tasksAtOnce() uint32 {
	most := uint64(membersMost)
	for _, name := range []string{"threads-max", "pid_max"} {
		b, err := os.ReadFile("/proc/sys/kernel/" + name)
		if n, bad := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32); err == nil && bad == nil && n > 0 {
			most = min(most, n)
		}
	}
	return uint32(most)
}

func laneTable() []uint8 {
	out := make([]uint8, kindCount)
	for _, k := range urgent {
		out[k] = laneUrgent
	}
	return out
}

func uringTable() []bpf.AssayUringOp {
	out := make([]bpf.AssayUringOp, 256)
	for i, op := range uringOps {
		out[i] = bpf.AssayUringOp{How: op.how, Kind: uint8(op.kind)}
	}
	return out
}

func kernelTable(t *sysTable) []bpf.AssaySyscall {
	out := make([]bpf.AssaySyscall, len(t))
	for i, c := range t {
		if c != nil {
			out[i] = bpf.AssaySyscall{
				Prog: c.prog, Kind: c.kind, Hook: c.hook, Fd: c.fd, Dfd: c.dfd, Path: c.path,
				Dfd2: c.dfd2, Path2: c.path2, Name: c.str, Keys: c.key, Flags: c.flagsArg, Mode: c.modeArg,
				Follow: c.follow, Recorded: c.recorded, Account: uint8(c.account), Table: c.table,
			}
		}
	}
	return out
}

// kernelOperations is the programs' table of operations.
func kernelOperations() []bpf.AssayOperation {
	out := make([]bpf.AssayOperation, operationsMost)
	for i, r := range operationRows() {
		out[i] = bpf.AssayOperation{Key: r.key, Account: uint8(r.account)}
	}
	for i := range out {
		if out[i].Key == 0 {
			out[i].Key = math.MaxInt64
		}
	}
	return out
}

// attachTracepoint attaches a program to the tracepoint of that name.
func attachTracepoint(p *ebpf.Program, name string) (link.Link, error) {
	if p.Type() == ebpf.Tracing {
		return link.AttachTracing(link.TracingOptions{Program: p})
	}
	return link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: p})
}

// attach makes the programs see the host.
func (s *set) attach() {
	for prog, name := range tracepoints {
		if p := s.progs[prog]; p != nil {
			ln, err := attachTracepoint(p, name)
			if err != nil {
				s.failed[prog] = err
				continue
			}
			s.links[prog] = ln
		}
	}
}

// remember maps the memory that user space shares with the programs.
func (s *set) remember() (err error) {
	if s.sessions, err = mapArray(s.maps["sessions"]); err != nil {
		return err
	}
	if s.epochs, err = mapArray(s.maps["epochs"]); err != nil {
		return err
	}
	s.bss, err = s.maps[".bss"].LookupBytes(uint32(0))
	return err
}

// session is the entry of a slot in the programs' table.
func (s *set) session(number uint32) *bpf.AssaySession {
	var e bpf.AssaySession
	return (*bpf.AssaySession)(unsafe.Pointer(&s.sessions[uintptr(number)*unsafe.Sizeof(e)]))
}

// changed makes the programs look up again which session a cgroup belongs to.
func (s *set) changed() { atomic.AddUint64((*uint64)(unsafe.Pointer(&s.epochs[0])), 1) }

// misses counts, by the first program of each hook, how often the kernel skipped it.
func (s *set) misses() map[string]uint64 {
	out := map[string]uint64{}
	for h := range hooks {
		name := hooks[h].progs[0]
		if _, known := out[name]; known || s.progs[name] == nil {
			continue
		}
		if st, err := s.progs[name].Stats(); err == nil {
			out[name] = st.RecursionMisses
		}
	}
	return out
}

func (s *set) close() error {
	var errs []error
	if s.first != nil {
		errs = append(errs, s.first.close())
		s.first = nil
	}
	for _, ln := range s.links {
		errs = append(errs, ln.Close())
	}
	for _, p := range s.progs {
		errs = append(errs, p.Close())
	}
	for _, m := range s.maps {
		errs = append(errs, m.Close())
	}
	for _, mem := range [][]byte{s.sessions, s.epochs} {
		if mem != nil {
			errs = append(errs, unix.Munmap(mem))
		}
	}
	s.links, s.progs, s.maps, s.sessions, s.epochs = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}

// mapArray maps an array's memory, for reading and writing.
func mapArray(m *ebpf.Map) ([]byte, error) {
	page := os.Getpagesize()
	size := (int(m.MaxEntries())*int(m.ValueSize()) + page - 1) &^ (page - 1)
	mem, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", m, err)
	}
	return mem, nil
}

// elements are an array's, in its mapped memory.
func elements[T any](mem []byte, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}

// genuine returns an error if a pinned set is not what this build would load on this kernel. Root could have forged
// the manifest too, so genuine loads the embedded object, without attaching it, and compares the programs' tags, the
// maps that they use, and their constants.
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
		if v.SectionName == ".rodata" && v.Name != "seed" &&
			(end > len(constants) || !bytes.Equal(constants[v.Offset:end], v.Value)) {
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

// mapsOf are the names of the maps that a program uses, in the order of their first use: "" for a map that is not of
// the set.
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

// taken counts the sessions of a set.
func (s *set) taken() (n int) {
	for i := range uint32(s.slots) {
		if atomic.LoadUint64(&s.session(i).Cgroup) != 0 {
			n++
		}
	}
	return n
}

// takeSlot takes a slot that no session uses.
func (s *set) takeSlot(l *lease, ring int) (*slot, error) {
	free := func(n uint32) bool {
		e := s.session(n)
		return atomic.LoadUint64(&e.Cgroup) == 0 && (e.Left == 0 || bootTime()-e.Left > uint64(restTime))
	}
	for n := range uint32(s.slots) {
		if !free(n) {
			continue
		}
		f, err := l.dir.lockSlot(n)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !free(n) {
			f.Close()
			continue
		}
		l.slot = f
		return s.furnish(n, ring)
	}
	return nil, fmt.Errorf("all %d sessions of the observer are in use", s.slots)
}

// locateNames finds the kernel's cache of names and tells the programs where it is: see bpf/resolve.h. mounted is
// DCACHE_MOUNTED.
func (s *set) locateNames(mounted uint32) error {
	prog := s.progs["locate"]
	if prog == nil {
		return errors.New("program locate is not loaded")
	}
	ask := func(path string) (p place, err error) {
		f, err := os.Open(path)
		if err != nil {
			return p, err
		}
		defer f.Close()
		p.Fd = uint32(f.Fd())
		ret, err := prog.Run(&ebpf.RunOptions{Context: &p, ContextOut: &p})
		if err == nil && ret != 0 {
			err = fmt.Errorf("%s has no entry", path)
		}
		return p, err
	}
	var seen []place
	for _, name := range fresh {
		if p, err := ask("/proc/thread-self/" + name); err == nil {
			seen = append(seen, p)
		}
	}
	at, shift := whereAt(seen)
	if shift == 0 {
		return fmt.Errorf("cannot locate the kernel's cache of names from %d entries", len(seen))
	}
	for name, v := range map[string]any{"cache_at": at, "cache_shift": shift, "mounted_bit": mounted} {
		if err := s.vars[name].Set(v); err != nil {
			return fmt.Errorf("set %s in the programs: %w", name, err)
		}
	}
	return nil
}

// load makes the maps, and loads and attaches the programs. Meanwhile it makes slot 0, with a ring of that size: to
// publish a slot's maps takes the kernel as long as to check the programs.
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
	for _, err := range s.failed {
		if scarce(err) {
			return err
		}
	}
	_ = s.learnCopies() // without, names are read from the caller's memory and are marked
	return s.remember()
}

// embedded is the object for this kernel, with the constants and sizes for this host. Programs that this kernel lacks
// a tracepoint for go to s.failed.
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
		"seed":           le.Uint64(seed[:]),
		"syscalls":       append(kernelTable(native), kernelTable(ia32)...),
		"uring_ops":      uringTable(),
		"operations":     kernelOperations(),
		"own_operations": ownOperations(),
		"lanes":          laneTable(),
		"complete_args":  types.tracepointArgs(tracepoints["completed"]),
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

// loadPrograms loads the object's programs onto the maps. It leaves out those that the kernel refuses, and notes
// why. Most of the time goes to the kernel's checks of the programs, so two are loaded at once, the longest first.
func (s *set) loadPrograms(object *ebpf.CollectionSpec, cache *btf.Cache) error {
	longest := slices.SortedFunc(maps.Keys(object.Programs), func(a, b string) int {
		return len(object.Programs[b].Instructions) - len(object.Programs[a].Instructions)
	})
	waiting := make(chan string, len(longest))
	for _, name := range longest {
		waiting <- name
	}
	close(waiting)
	var loading sync.WaitGroup
	var mu sync.Mutex // over s.progs, s.failed and fatal
	var fatal error
	for range 2 {
		loading.Go(func() {
			for name := range waiting {
				part := *object
				part.Programs = map[string]*ebpf.ProgramSpec{name: object.Programs[name]}
				coll, err := ebpf.NewCollectionWithOptions(&part,
					ebpf.CollectionOptions{Cache: cache, MapReplacements: s.maps})
				mu.Lock()
				switch {
				case err == nil:
					s.progs[name] = coll.DetachProgram(name)
					coll.Close() // its copies of the maps
				case name == "sys_exit" || scarce(err):
					fatal = cmp.Or(fatal, err)
				default:
					s.failed[name] = err
				}
				mu.Unlock()
			}
		})
	}
	loading.Wait()
	return fatal
}

// ids lists what the set is made of.
func (s *set) ids() (*manifest, error) {
	m := &manifest{Progs: map[string]uint32{}, Maps: map[string]uint32{}, Links: map[string]uint32{},
		Tags: map[string]string{}, Failed: map[string]string{}}
	for name, p := range s.progs {
		i, err := identify(p.FD())
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
		m.Progs[name], m.Tags[name] = i.ID, i.tag()
	}
	for name, x := range s.maps {
		i, err := identify(x.FD())
		if err != nil {
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
		m.Maps[name] = i.ID
	}
	for name, ln := range s.links {
		i, err := identifyLink(ln)
		if err != nil {
			return nil, fmt.Errorf("link of program %s: %w", name, err)
		}
		if i.program() != m.Progs[name] {
			return nil, fmt.Errorf("the link of %s runs another program", name)
		}
		m.Links[name] = i.ID
	}
	for name, err := range s.failed {
		m.Failed[name] = firstLine(err.Error())
	}
	return m, nil
}

// pin pins the set in a directory that does not exist yet.
func (s *set) pin(dir string) (err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if s.made, err = s.ids(); err != nil {
		return err
	}
	if s.made.Build, err = buildName(); err != nil {
		return err
	}
	about, err := writeManifest(s.made)
	if err != nil {
		return err
	}
	defer about.Close()
	if err := about.Pin(filepath.Join(dir, "manifest")); err != nil {
		return err
	}
	i, err := identify(about.FD())
	if err != nil {
		return err
	}
	s.said = i.ID
	for name, p := range s.progs {
		if err := p.Pin(filepath.Join(dir, pinName("prog", name))); err != nil {
			return err
		}
	}
	for name, x := range s.maps {
		if err := x.Pin(filepath.Join(dir, pinName("map", name))); err != nil {
			return err
		}
	}
	for name, ln := range s.links {
		if err := ln.Pin(filepath.Join(dir, pinName("link", name))); err != nil {
			return err
		}
	}
	return nil
}

// furnish finds or makes a slot's maps, with a ring of that size, and clears them. It does not wait until the
// programs have the new ones: see slot.arrived.
func (s *set) furnish(number uint32, ring int) (_ *slot, err error) {
	if t := s.first; t != nil && number == 0 {
		s.first = nil
		return t, nil
	}
	t := &slot{set: s, number: number, maps: map[string]*ebpf.Map{}, ids: map[*ebpf.Map]uint32{}}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	get := func(outer string, index uint32, spec *ebpf.MapSpec) (m *ebpf.Map) {
		if err != nil {
			return nil
		}
		var id uint32
		if m, id = s.found(outer, index, spec); m != nil {
			t.ids[m] = id
			return m
		}
		if m, err = ebpf.NewMap(spec); err != nil {
			err = fmt.Errorf("make the session's map %s: %w", spec.Name, err)
			return nil
		}
		var i identity
		i, err = identify(m.FD())
		t.ids[m] = i.ID
		t.fresh = append(t.fresh, own{outer, index, m})
		return m
	}
	for name, spec := range slotMaps(s.cpus) {
		t.maps[name] = get(name, number, spec)
	}
	for lane, size := range [lanes]int{ring, max(ring/urgentFraction, min(minUrgentRing, ring))} {
		t.rings[lane] = get("rings", number*lanes+uint32(lane), ringSpec(size))
	}
	if err != nil {
		return nil, err
	}
	if err := t.remember(); err != nil {
		return nil, err
	}
	if err := t.clear(); err != nil {
		return nil, err
	}
	if err := t.publish(); err != nil {
		return nil, err
	}
	return t, nil
}

// found is the map that an earlier session left in outer, and its id, if type and sizes are those of spec.
func (s *set) found(outer string, index uint32, spec *ebpf.MapSpec) (m *ebpf.Map, id uint32) {
	if !s.shared || s.maps[outer].Lookup(index, &id) != nil {
		return nil, 0
	}
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if err != nil {
		return nil, 0
	}
	if m.Type() != spec.Type || m.MaxEntries() != spec.MaxEntries || m.ValueSize() != spec.ValueSize ||
		m.KeySize() != spec.KeySize {
		m.Close()
		return nil, 0
	}
	return m, id
}

// sweepSlots frees the slots of runs that died.
func (s *set) sweepSlots(p pinDir) (freed int) {
	for n := range uint32(s.slots) {
		e := s.session(n)
		if atomic.LoadUint64(&e.Cgroup) == 0 {
			continue
		}
		f, err := p.lockSlot(n)
		if err != nil {
			continue
		}
		if cgroup := atomic.LoadUint64(&e.Cgroup); cgroup != 0 {
			_ = s.maps["numbers"].Delete(cgroup)
			s.changed()
			atomic.StoreUint64(&e.Left, bootTime())
			atomic.StoreUint64(&e.Cgroup, 0)
			freed++
		}
		f.Close()
	}
	return freed
}

// learnCopies finds the kernel's cache of its copies of names, and the places in its code that free them, and tells
// the program that reads them. A thread makes calls with unique names, which the program recognizes. Names that are
// freed in any other place are read from the caller's memory, and marked.
func (s *set) learnCopies() error {
	prog := s.progs["learn"]
	if prog == nil || s.links["freed"] == nil {
		return errors.New("program freed is not attached")
	}
	home, release, err := lessonDir()
	if err != nil {
		return err
	}
	defer release()
	learned := make(chan error)
	go func() {
		// The thread has a working directory of its own, and ends with this.
		runtime.LockOSThread()
		err := os.NewSyscallError("unshare", unix.Unshare(unix.CLONE_FS))
		if err == nil {
			err = giveLesson(prog, home)
		}
		learned <- err
	}()
	if err := <-learned; err != nil {
		return fmt.Errorf("learn where names are kept: %w", err)
	}
	var found uint64
	if err := s.vars["name_cache_found"].Get(&found); err != nil {
		return err
	}
	if err := s.vars["name_cache"].Set(found); err != nil {
		return err
	}
	if found == 0 {
		return errors.New("no name was seen to be freed")
	}
	return nil
}

// manifest lists the objects of a pinned set by id. The kernel never reuses an id, so the same id is the same object.
// It is pinned beside the set, as the value of a frozen map.
type manifest struct {
	Build              string // of the program that pinned it, as in its directory's name
	Progs, Maps, Links map[string]uint32
	Tags               map[string]string
	Failed             map[string]string // programs that this kernel refused
}

// manifestSize bounds it, in bytes of JSON.
const manifestSize = 16 << 10

// pinName is the name of an object's pin. bpffs takes no dots.
func pinName(kind, name string) string { return kind + "_" + strings.ReplaceAll(name, ".", "_") }

// differs names the first thing that is not the same in two sets, or "".
func (m *manifest) differs(o *manifest) string {
	for _, c := range []struct {
		kind string
		a, b map[string]uint32
	}{{"program", m.Progs, o.Progs}, {"map", m.Maps, o.Maps}, {"link of program", m.Links, o.Links}} {
		for name, id := range c.a {
			if c.b[name] != id {
				return c.kind + " " + name
			}
		}
		for name := range c.b {
			if c.a[name] == 0 {
				return c.kind + " " + name
			}
		}
	}
	for name, tag := range m.Tags {
		if o.Tags[name] != tag {
			return "program " + name
		}
	}
	return ""
}

// writeManifest makes the frozen map that holds a manifest.
func writeManifest(m *manifest) (_ *ebpf.Map, err error) {
	b, err := json.Marshal(m, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	if len(b) > manifestSize {
		return nil, fmt.Errorf("a manifest of %d bytes", len(b))
	}
	about, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "manifest", Type: ebpf.Array, KeySize: 4, ValueSize: manifestSize, MaxEntries: 1,
		Flags: unix.BPF_F_RDONLY_PROG,
	})
	if err != nil {
		return nil, fmt.Errorf("make the manifest: %w", err)
	}
	if err := errors.Join(about.Put(uint32(0), append(b, make([]byte, manifestSize-len(b))...)),
		about.Freeze()); err != nil {
		about.Close()
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	return about, nil
}

// openSet opens this build's pinned set. It returns an error unless the directory is root's alone, the manifest names
// this build, and every object is the one that was pinned. It does not compare the programs with this build's: a root
// who could forge them could as well replace this program. See genuine.
func openSet(dir string) (_ *set, err error) {
	if err := ownedByRoot(dir); err != nil {
		return nil, err
	}
	s, err := newSet(maxSlots)
	if err != nil {
		return nil, err
	}
	s.shared, s.foundPinned = true, true
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.pins, err = pinsIn(dir); err != nil {
		return nil, err
	}
	said, id, err := readManifest(dir)
	if err != nil {
		return nil, err
	}
	s.said = id
	if build, err := buildName(); err != nil || said.Build != build {
		return nil, errors.Join(errors.New("its manifest is another build's"), err)
	}
	for name := range said.Maps {
		if s.maps[name], err = ebpf.LoadPinnedMap(filepath.Join(dir, pinName("map", name)), nil); err != nil {
			delete(s.maps, name)
			return nil, fmt.Errorf("map %s: %w", name, err)
		}
	}
	for name := range said.Progs {
		if s.progs[name], err = ebpf.LoadPinnedProgram(filepath.Join(dir, pinName("prog", name)), nil); err != nil {
			delete(s.progs, name)
			return nil, fmt.Errorf("program %s: %w", name, err)
		}
	}
	for name := range said.Links {
		if s.links[name], err = link.LoadPinnedLink(filepath.Join(dir, pinName("link", name)), nil); err != nil {
			delete(s.links, name)
			return nil, fmt.Errorf("link of program %s: %w", name, err)
		}
	}
	for name, why := range said.Failed {
		s.failed[name] = errors.New(why)
	}
	if s.made, err = s.ids(); err != nil {
		return nil, err
	}
	if what := said.differs(s.made); what != "" {
		return nil, fmt.Errorf("%s is not the one that was pinned", what)
	}
	return s, s.remember()
}

// readManifest reads the manifest of what is pinned there. id is that of its map.
func readManifest(dir string) (m *manifest, id uint32, err error) {
	about, err := ebpf.LoadPinnedMap(filepath.Join(dir, "manifest"), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, fmt.Errorf("manifest: %w", err)
	}
	defer about.Close()
	info, err := about.Info()
	if err != nil || !info.Frozen() || about.ValueSize() != manifestSize {
		return nil, 0, errors.Join(errors.New("manifest: it was changed"), err)
	}
	number, _ := info.ID()
	b := make([]byte, manifestSize)
	if err := about.Lookup(uint32(0), &b); err != nil {
		return nil, 0, fmt.Errorf("manifest: %w", err)
	}
	m = &manifest{}
	if err := json.Unmarshal(bytes.TrimRight(b, "\x00"), m); err != nil {
		return nil, 0, fmt.Errorf("manifest: %w", err)
	}
	return m, uint32(number), nil
}

// identity is the beginning of bpf_prog_info, bpf_map_info and bpf_link_info in include/uapi/linux/bpf.h: the id, and
// a program's tag or a link's program and cgroup. The library's Info also copies the program's code, which takes a
// hundred times as long.
type identity struct {
	Type, ID uint32
	Tag      [8]byte // of a program; of a link, the first four bytes are its program's id
	Cgroup   uint64  // of a link to a cgroup
}

func (i identity) tag() string { return hex.EncodeToString(i.Tag[:]) }

// program is the id of a link's program.
func (i identity) program() uint32 { return le.Uint32(i.Tag[:]) }

// identify asks for the object behind a descriptor.
func identify(fd int) (i identity, err error) {
	attr := struct {
		fd, size uint32
		info     unsafe.Pointer
	}{uint32(fd), uint32(unsafe.Sizeof(i)), unsafe.Pointer(&i)}
	const getInfo = 15 // BPF_OBJ_GET_INFO_BY_FD
	if _, _, e := unix.Syscall(unix.SYS_BPF, getInfo, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)); e != 0 {
		return i, fmt.Errorf("ask for a BPF object: %w", os.NewSyscallError("bpf", e))
	}
	return i, nil
}

func identifyLink(ln link.Link) (identity, error) {
	l, ok := ln.(interface{ FD() int })
	if !ok {
		return identity{}, errors.New("a link without a descriptor")
	}
	return identify(l.FD())
}

// place is what the program locate returns about a descriptor's entry in the kernel's cache of names.
type place = bpf.AssayPlaceOf

// fresh are files of /proc that get new entries for every thread. A new entry is the first of its hash chain, so it
// shows where the chain begins, unless another entry came in between: hence so many files.
var fresh = []string{"stat", "status", "statm", "comm", "cmdline", "environ", "auxv", "maps", "smaps", "mounts",
	"mountinfo", "limits", "io",
	"sched", "schedstat", "wchan", "syscall", "personality", "oom_score", "oom_adj", "cgroup", "cpuset", "numa_maps"}

// whereAt computes the address of a hash table of the kernel from entries that are the first of their chains: the
// head for hash h is at + 8 * (h >> shift). Most entries must agree.
func whereAt(entries []place) (at uint64, shift uint32) {
	most := len(entries) / 2
	for s := uint32(6); s < 32; s++ {
		votes := map[uint64]int{}
		for _, e := range entries {
			if e.HangsOn != 0 {
				votes[e.HangsOn-8*uint64(e.Hash>>s)]++
			}
		}
		for a, n := range votes {
			if n > most && n >= 4 {
				at, shift, most = a, s, n
			}
		}
	}
	return at, shift
}

// errNoTracepoint: it came with Linux 6.4.
var errNoTracepoint = errors.New("this kernel does not report io_uring requests")

// kernelTypes are the running kernel's, as far as the programs' constants depend on them.
type kernelTypes struct {
	spec     *btf.Spec // nil when they cannot be read
	castless bool      // in tests, as before Linux 6.2
}

// Where the kernel has castFunction, the programs read a word of its memory with one instruction: see bpf/word.h.
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
