//go:build linux && (amd64 || arm64)

package kernel

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/bpf"
)

const (
	// slotsPerCPU bounds what coalescing keeps: 128 bytes each in the kernel,
	// one record each in user space.
	slotsPerCPU = 2048
	// wakeFraction of the ring must be full before the reader is woken ahead of its poll.
	wakeFraction = 8
)

type (
	slot     = bpf.AssaySlot
	counter  = bpf.AssayCounter
	endpoint = bpf.AssayEndpoint
	traffic  = bpf.AssayTraffic
)

// loaded is what a session has in the kernel.
type loaded struct {
	coll   *ebpf.Collection
	links  map[string]link.Link // by program
	failed map[string]error     // programs that did not load or attach, and why
	cpus   int
}

// attachments are the programs and what they are attached to.
var attachments = []struct {
	prog       string
	tracepoint string          // empty: to the session's cgroup
	as         ebpf.AttachType // for a cgroup
}{
	{prog: "execed", tracepoint: "sched_process_exec"},
	{prog: "forked", tracepoint: "sched_process_fork"},
	{prog: "exited", tracepoint: "sched_process_exit"},
	{prog: "moved", tracepoint: "cgroup_attach_task"},
	{prog: "submitted", tracepoint: "io_uring_submit_req"},
	{prog: "settled", tracepoint: "inet_sock_set_state"},
	{prog: "connect4", as: ebpf.AttachCGroupInet4Connect},
	{prog: "connect6", as: ebpf.AttachCGroupInet6Connect},
	{prog: "sendmsg4", as: ebpf.AttachCGroupUDP4Sendmsg},
	{prog: "sendmsg6", as: ebpf.AttachCGroupUDP6Sendmsg},
	{prog: "bind4", as: ebpf.AttachCGroupInet4Bind},
	{prog: "bind6", as: ebpf.AttachCGroupInet6Bind},
	{prog: "skb_in", as: ebpf.AttachCGroupInetIngress},
	{prog: "skb_out", as: ebpf.AttachCGroupInetEgress},
	{prog: "sys_exit", tracepoint: "sys_exit"},
}

// attachTracepoint attaches a program as a raw tracepoint: like tp_btf, without
// the kernel's index of types, at loading, to find the tracepoint in.
func attachTracepoint(p *ebpf.Program, name string) (link.Link, error) {
	return link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: p})
}

// load gets maps and programs, and attaches them for cfg.
func load(cfg Config) (_ *loaded, err error) {
	dir, id, err := openCgroup(cfg.CgroupPath)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	l, err := prepared(ringSize(cfg.RingBytes))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if err := l.coll.Variables["session_id"].Set(id); err != nil {
		return nil, fmt.Errorf("set session_id in the programs: %w", err)
	}
	if err := l.coll.Maps["session"].Put(uint32(0), uint32(dir.Fd())); err != nil {
		return nil, fmt.Errorf("watch cgroup %s: %w", cfg.CgroupPath, err)
	}
	l.attach(dir)
	if len(l.links) == 0 {
		return nil, classify(l.failed["sys_exit"])
	}
	return l, l.enroll(cfg.CgroupPath)
}

// enroll makes the processes that are in the session already its members, so
// that their exits are told from those of threads. It is called when forks are
// being seen.
func (l *loaded) enroll(session string) error {
	return filepath.WalkDir(session, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		list, _ := os.ReadFile(path) // a threaded cgroup has none: its processes are in the one above
		for _, pid := range strings.Fields(string(list)) {
			if n, err := strconv.ParseUint(pid, 10, 32); err == nil && n > 0 {
				if err := l.coll.Maps["members"].Put(uint32(n), uint8(1)); err != nil {
					return fmt.Errorf("enroll process %d: %w", n, err)
				}
			}
		}
		return nil
	})
}

// openCgroup opens the session's directory and returns its cgroup id, which
// is its inode number (kernfs ids on 64-bit hosts).
func openCgroup(path string) (*os.File, uint64, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("open cgroup %q: %w", path, err)
	}
	var fs unix.Statfs_t
	var st unix.Stat_t
	err = errors.Join(unix.Fstatfs(int(dir.Fd()), &fs), unix.Fstat(int(dir.Fd()), &st))
	if err != nil {
		dir.Close()
		return nil, 0, fmt.Errorf("stat cgroup %q: %w", path, err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		dir.Close()
		return nil, 0, &Unavailable{Reasons: []Reason{{
			Code:    CodeNoCgroup2,
			Message: fmt.Sprintf("%s is not in a cgroup2 file system", path),
			Remedy:  "mount cgroup2, or boot without systemd.unified_cgroup_hierarchy=0",
		}}}
	}
	return dir, st.Ino, nil
}

// configure sets the constants and sizes that the programs are loaded with.
func (l *loaded) configure(spec *ebpf.CollectionSpec, ring int) error {
	native, ia32 := sysTables()
	var seed [8]byte
	rand.Read(seed[:])
	for name, v := range map[string]any{
		"slot_mask":  uint32(slotsPerCPU - 1),
		"wake_bytes": uint32(ring / wakeFraction),
		"seed":       le.Uint64(seed[:]),
		"syscalls":   kernelTable(native),
		"syscalls32": kernelTable(ia32),
	} {
		if err := spec.Variables[name].Set(v); err != nil {
			return fmt.Errorf("set %s in the programs: %w", name, err)
		}
	}
	spec.Maps["ring"].MaxEntries = uint32(ring)
	spec.Maps["counters"].MaxEntries = uint32(l.cpus * hookCells)
	spec.Maps["slots"].MaxEntries = uint32(l.cpus * slotsPerCPU)
	spec.Maps["scratches"].MaxEntries = uint32(l.cpus * 2)
	return nil
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

func (l *loaded) attach(dir *os.File) {
	for _, a := range attachments {
		p := l.coll.Programs[a.prog]
		if p == nil {
			continue
		}
		var ln link.Link
		var err error
		if a.tracepoint != "" {
			ln, err = attachTracepoint(p, a.tracepoint)
		} else {
			ln, err = link.AttachRawLink(link.RawLinkOptions{Target: int(dir.Fd()), Program: p, Attach: a.as})
		}
		if err != nil {
			l.failed[a.prog] = err
			continue
		}
		l.links[a.prog] = ln
	}
}

// lostLinks names the programs that were attached and no longer are.
func (l *loaded) lostLinks() []string {
	var lost []string
	for name, ln := range l.links {
		if !stillAttached(ln) {
			lost = append(lost, name)
		}
	}
	return lost
}

// stillAttached asks the kernel. A link to a cgroup outlives its being detached,
// by force or because the cgroup is gone, and has none then; any other that there
// is is attached.
func stillAttached(ln link.Link) bool {
	raw, cgroup := ln.(*link.RawLink)
	if !cgroup {
		_, err := ln.Info()
		return err == nil
	}
	fd, err := unix.FcntlInt(uintptr(raw.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false
	}
	typed, err := link.NewFromFD(fd) // a raw link does not tell its cgroup
	if err != nil {
		return false
	}
	defer typed.Close()
	info, err := typed.Info()
	return err == nil && info.Cgroup() != nil && info.Cgroup().CgroupId != 0
}

func (l *loaded) detach() error {
	var errs []error
	for name, ln := range l.links {
		if ln != nil {
			errs = append(errs, ln.Close())
			l.links[name] = nil
		}
	}
	return errors.Join(errs...)
}

func (l *loaded) close() error {
	err := l.detach()
	if l.coll != nil {
		l.coll.Close()
	}
	return err
}

// eachEndpoint calls fn for every remote endpoint that packets went to or came from.
func (l *loaded) eachEndpoint(fn func(*endpoint, *traffic) error) error {
	var k endpoint
	var v traffic
	it := l.coll.Maps["endpoints"].Iterate()
	for it.Next(&k, &v) {
		if err := fn(&k, &v); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read map endpoints: %w", err)
	}
	return nil
}

// readArray copies an mmapable array.
func readArray[T any](m *ebpf.Map) ([]T, error) {
	mem, err := m.Memory()
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", m, err)
	}
	out := make([]T, m.MaxEntries())
	size := len(out) * int(unsafe.Sizeof(out[0]))
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(out))), size)
	if _, err := mem.ReadAt(raw, 0); err != nil && err != io.EOF {
		return nil, fmt.Errorf("read map %s: %w", m, err)
	}
	return out, nil
}

func (l *loaded) eachSlot(fn func(i uint32, s *slot) error) error {
	slots, err := readArray[slot](l.coll.Maps["slots"])
	if err != nil {
		return err
	}
	for i := range slots {
		if s := &slots[i]; s.Id != 0 && s.Count != 0 {
			if err := fn(uint32(i), s); err != nil {
				return err
			}
		}
	}
	return nil
}
