//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/bpf"
)

// set is the observer as such: the programs, the maps that all its sessions
// share, and the tracepoints they hang on. It observes nobody before a slot in it
// is taken.
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
	made        *manifest // what it is made of
	said        uint32    // the id of the map that a pinned one says it in
	pins        []pin     // what is in the directory that it is pinned in
	bss         []byte    // what the programs were told when it was made
}

const (
	// maxSlots is what SESSION_BITS in bpf/record.h has room for.
	maxSlots = 1 << sessionBits

	sessionBits  = 10
	fileSlots    = 2048 // as in bpf/record.h
	urgentSlots  = 512
	slotsPerCPU  = fileSlots + urgentSlots
	scopesPerCPU = 256

	// membersAlone bounds the processes at once of a set for one session.
	membersAlone = 1 << 16
	// membersMost bounds those of all sessions: 16 bytes of kernel memory each.
	membersMost = 1 << 20
)

// tracepoints are the programs that watch the whole host, and where. Most are raw
// tracepoints: like tp_btf, without the kernel's index of types, at loading, to
// find the tracepoint in. For sys_exit that index is worth it, since its
// arguments are typed then: a call to find the registers less, for every system
// call on the host.
var tracepoints = map[string]string{
	"execed":    "sched_process_exec",
	"forked":    "sched_process_fork",
	"exited":    "sched_process_exit",
	"moved":     "cgroup_attach_task",
	"submitted": "io_uring_submit_req",
	"completed": "io_uring_complete",
	"settled":   "inet_sock_set_state",
	"signalled": "signal_generate",
	"sys_exit":  "sys_exit",
}

// size sets the sizes of the maps.
func (s *set) size(spec *ebpf.CollectionSpec) {
	most := uint32(membersAlone)
	if s.slots > 1 {
		most = tasksAtOnce()
	}
	for name, n := range map[string]uint32{
		"scratches": uint32(s.cpus * 2), "scopes": uint32(s.cpus * scopesPerCPU),
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
			}
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

// changed tells the programs that what they know of cgroups is outdated.
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
