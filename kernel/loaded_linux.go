//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/bpf"
)

// wakeFraction of a ring must be full before the reader is woken ahead of its poll.
const wakeFraction = 8

type (
	repeatSlot = bpf.AssaySlot
	counter    = bpf.AssayCounter
	owner      = bpf.AssayOwner
	request    = bpf.AssayRequest
	address    = bpf.AssayAddress
	endpoint   = bpf.AssayEndpoint
	traffic    = bpf.AssayTraffic
)

// loaded is what a session has in the kernel: a slot in a set, and links of the
// cgroup programs to its cgroup.
type loaded struct {
	*set
	slot   *slot
	cgroup *os.File             // the session's cgroup
	own    map[string]link.Link // to the session's cgroup, by program
	refuse map[string]error     // programs that did not attach to it, and why
	before map[string]uint64    // misses when the session began
	rd     *reader

	present    []Present // processes that were in the cgroup already
	usedBefore bool      // a foreign cgroup in which something ran before

	lease *lease // of a shared set; nil for a set of this run's own
	alone error  // why the set is not shared
}

// cgroupPrograms are attached to each session's cgroup.
var cgroupPrograms = map[string]ebpf.AttachType{
	"connect4": ebpf.AttachCGroupInet4Connect,
	"connect6": ebpf.AttachCGroupInet6Connect,
	"sendmsg4": ebpf.AttachCGroupUDP4Sendmsg,
	"sendmsg6": ebpf.AttachCGroupUDP6Sendmsg,
	"bind4":    ebpf.AttachCGroupInet4Bind,
	"bind6":    ebpf.AttachCGroupInet6Bind,
	"skb_in":   ebpf.AttachCGroupInetIngress,
	"skb_out":  ebpf.AttachCGroupInetEgress,
}

// load gets a slot and registers the session of cfg.
func load(cfg Config) (_ *loaded, err error) {
	if cfg.Foreign && !HostPIDs() {
		return nil, &Unavailable{Reasons: []Reason{{
			Code: CodeProcessIDs, Message: "this process is in a PID namespace, so the process ids that it sees are " +
				"not those that the kernel reports",
			Remedy: "start assay-run with the host's process ids: --pid host for docker and podman, " +
				"hostPID for Kubernetes",
		}}}
	}
	dir, id, err := openCgroup(cfg.CgroupPath)
	if err != nil {
		return nil, err
	}
	l, err := prepared(ringSize(cfg.RingBytes))
	if err != nil {
		dir.Close()
		return nil, err
	}
	l.cgroup = dir
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.lease != nil {
		l.lease.keep = cfg.Keep
	}
	if l.links["sys_exit"] == nil {
		return nil, classify(l.failed["sys_exit"])
	}
	if err := l.slot.arrived(); err != nil {
		return nil, err
	}
	if l.rd, err = newReader(l.slot.rings); err != nil {
		return nil, err
	}
	l.before = l.misses()
	l.attachCgroup(dir)
	// The programs attached to the cgroup learn by it which session they run for.
	if err := l.maps["homes"].Put(id, uint64(l.slot.number)+1); err != nil && len(l.own) > 0 {
		return nil, fmt.Errorf("tell the programs of cgroup %s: %w", cfg.CgroupPath, err)
	}
	if err := l.slot.register(id); err != nil {
		return nil, err
	}
	if l.present, err = l.enroll(cfg.CgroupPath); err != nil {
		return nil, err
	}
	l.usedBefore = cfg.Foreign && usedBefore(cfg.CgroupPath)
	return l, nil
}

// attachCgroup attaches the programs that run for the session's sockets only.
func (l *loaded) attachCgroup(dir *os.File) {
	l.own, l.refuse = map[string]link.Link{}, map[string]error{}
	for name, as := range cgroupPrograms {
		p := l.progs[name]
		if p == nil {
			continue
		}
		ln, err := link.AttachRawLink(link.RawLinkOptions{Target: int(dir.Fd()), Program: p, Attach: as})
		if err != nil {
			l.refuse[name] = err
			continue
		}
		l.own[name] = ln
	}
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

// detach ends the session. Its cgroup's programs stay attached until close, without effect: to detach each takes the
// kernel 0.1 ms.
func (l *loaded) detach() error {
	if l.slot == nil || l.slot.cgroup == 0 {
		return nil
	}
	homeless := l.maps["homes"].Put(l.slot.cgroup, uint64(0))
	err := l.slot.leave()
	if homeless != nil {
		err = errors.Join(err, l.unlink())
	}
	return err
}

// unlink detaches the programs of the session's cgroup.
func (l *loaded) unlink() error {
	var errs []error
	for name, ln := range l.own {
		if ln != nil {
			errs = append(errs, ln.Close())
			l.own[name] = nil
		}
	}
	return errors.Join(errs...)
}

func (l *loaded) close() error {
	errs := []error{l.detach(), l.unlink()}
	if l.rd != nil {
		errs = append(errs, l.rd.close())
	}
	if l.slot != nil {
		errs = append(errs, l.slot.close())
	}
	errs = append(errs, l.set.close())
	if l.cgroup != nil {
		errs = append(errs, l.cgroup.Close())
	}
	if l.lease != nil {
		l.lease.release()
	}
	return errors.Join(errs...)
}

// tampered names what is no longer as this session made or found it. Any root can change it with bpf(2), inside of
// the session or outside.
func (l *loaded) tampered() (what []string) {
	note := func(bad bool, format string, args ...any) {
		if bad {
			what = append(what, fmt.Sprintf(format, args...))
		}
	}
	t := l.slot
	for _, o := range t.all() {
		note(!t.inPlace(o), "the session's map in %s", o.outer)
	}
	e := l.session(t.number)
	note(e.Handle != t.handle || atomic.LoadUint64(&e.Cgroup) != t.cgroup, "the session's entry")
	var number uint32
	note(l.maps["numbers"].Lookup(t.cgroup, &number) != nil ||
		number != t.number, "the entry that marks the cgroup as observed")
	if len(l.own) > 0 {
		var home uint64
		lost := l.maps["homes"].Lookup(t.cgroup, &home) != nil || home != uint64(t.number)+1
		note(lost && !l.gone(), "the entry that gives the cgroup's socket programs their session")
	}
	bss, err := l.maps[".bss"].LookupBytes(uint32(0))
	note(err != nil || !bytes.Equal(bss, l.bss), "the kernel settings of the programs")
	if l.lease != nil {
		now, err := pinsIn(l.lease.dir.dir())
		note(err != nil || !slices.Equal(now, l.pins), "the pinned observer")
	}
	return what
}

// tamperedPins names what is pinned now instead of what this session uses, "" if nothing is. Later runs would use it.
func (l *loaded) tamperedPins() string {
	if l.lease == nil {
		return ""
	}
	// The manifest is frozen, so the same map has the same content.
	dir := l.lease.dir.dir()
	about, err := ebpf.LoadPinnedMap(filepath.Join(dir, "manifest"), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return fmt.Sprintf("the pinned observer: manifest: %v", err)
	}
	defer about.Close()
	if i, err := identify(about.FD()); err != nil || i.ID != l.said {
		return "the pinned observer's manifest"
	}
	for name, id := range l.made.Links {
		ln, err := link.LoadPinnedLink(filepath.Join(dir, pinName("link", name)), nil)
		if err != nil {
			return fmt.Sprintf("the pinned link of program %s: %v", name, err)
		}
		i, err := identifyLink(ln)
		ln.Close()
		if err != nil || i.ID != id {
			return "the pinned link of program " + name
		}
	}
	return ""
}

// lostLinks names the programs that were attached and no longer are.
func (l *loaded) lostLinks() []string {
	var lost []string
	all := maps.Clone(l.links)
	maps.Copy(all, l.own)
	for name, ln := range all {
		if !stillAttached(ln, l.made.Progs[name]) && (l.own[name] == nil || !l.gone()) {
			lost = append(lost, name)
		}
	}
	return lost
}

// gone reports whether the session's cgroup was removed, as an engine does when a container has ended. The kernel then
// has detached its programs and freed their maps' entries for it.
func (l *loaded) gone() bool {
	fd, err := unix.Openat(int(l.cgroup.Fd()), "cgroup.procs", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err == unix.ENOENT || err == unix.ENODEV
}

// enroll makes the processes that are in the session already its members, and returns them. Call it when forks are
// seen already.
func (l *loaded) enroll(session string) (found []Present, err error) {
	err = filepath.WalkDir(session, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		list, _ := os.ReadFile(path) // a threaded cgroup has none: its processes are in the one above
		for pid := range strings.FieldsSeq(string(list)) {
			n, err := strconv.ParseUint(pid, 10, 32)
			if err != nil || n == 0 {
				continue
			}
			if err := l.slot.enroll(uint32(n)); err != nil {
				return fmt.Errorf("enroll process %d: %w", n, err)
			}
			p := Present{PID: uint32(n)}
			var st unix.Stat_t
			if unix.Stat(filepath.Dir(path), &st) == nil {
				p.CgroupID = st.Ino
			}
			found = append(found, p)
		}
		return nil
	})
	return found, err
}

// status reports whether everything a hook needs is in place.
func (l *loaded) status(h HookID) HookStatus {
	s := HookStatus{Hook: h, Name: hooks[h].name, Required: hooks[h].required, Attached: true}
	for i, name := range hooks[h].progs {
		_, everywhere := l.links[name]
		_, here := l.own[name]
		err := errors.Join(l.failed[name], l.refuse[name])
		switch {
		case err != nil:
			s.Attached, s.Detail = false, fmt.Sprintf("program %s: %v", name, err)
		case l.progs[name] == nil || (i == 0 || h == HookIOUring) && !everywhere && !here:
			s.Attached, s.Detail = false, fmt.Sprintf("program %s is not loaded", name)
		}
	}
	return s
}

// checkInterval is how often a session checks that nobody changed its observer.
const checkInterval = 2 * time.Second

// pin is an entry of a directory in bpffs. Another object that is pinned under the name has another inode. (The time
// of change is too coarse.)
type pin struct {
	name  string
	inode uint64
}

// pinsIn lists a directory of bpffs.
func pinsIn(dir string) (list []pin, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, e.Name()), &st); err != nil {
			return nil, &os.PathError{Op: "stat", Path: filepath.Join(dir, e.Name()), Err: err}
		}
		list = append(list, pin{e.Name(), st.Ino})
	}
	return list, nil
}

// stillAttached reports whether the link is attached and runs the program with that id. A link to a cgroup exists on
// after it was detached, and has no cgroup then; any other link is attached while it exists.
func stillAttached(ln link.Link, program uint32) bool {
	have, err := identifyLink(ln)
	if err != nil || have.program() != program {
		return false
	}
	_, cgroup := ln.(*link.RawLink)
	return !cgroup || have.Cgroup != 0
}

// serials counts the missing records of a session by gaps in their numbers.
type serials struct {
	last          map[uint32]*uint32 // by stream, lane and CPU
	missing       uint64
	nets, highest uint64 // the count and the highest number of streamNet's, which can arrive out of order
}

// streamNet is ST_NET of bpf/record.h.
const streamNet = 2

func (s *serials) see(lane int, raw []byte) {
	if len(raw) < recordSize {
		return
	}
	serial, stream := le.Uint32(raw[offSerial:]), uint32(le.Uint16(raw[offStream:]))
	if stream == streamNet {
		s.nets++
		s.highest = max(s.highest, uint64(serial))
		return
	}
	key := uint32(le.Uint16(raw[offCPU:]))<<8 | stream<<4 | uint32(lane)
	last := s.last[key]
	if last == nil {
		last = new(uint32)
		s.last[key] = last
	}
	if serial != *last+1 {
		s.missing += max(1, uint64(serial-*last-1))
	}
	*last = serial
}

// lease is a session's share of a pinned set. Both files are locked while the session lasts, and the kernel releases
// the locks when the process dies. So a set that can be locked exclusively has no session, and a slot that can be
// locked is free.
type lease struct {
	dir  pinDir
	set  *os.File // shared with the others
	slot *os.File // alone
	keep time.Duration
}

// restTime is how long a slot stays unused after a session. Programs that still run for it on other CPUs end within
// an RCU grace period, some milliseconds, which nobody should have to wait for.
const restTime = time.Second

// share takes a slot in this build's pinned set, and pins the set first if there is none.
func share(ring int) (_ *loaded, err error) {
	p, err := findPinDir()
	if err != nil {
		return nil, err
	}
	if err := p.nested(); err != nil {
		return nil, err
	}
	h := &lease{dir: p}
	defer func() {
		if err != nil {
			h.release()
		}
	}()
	var s *set
	for try := 0; s == nil; try++ {
		if h.set, err = lockMade(p.lock(), unix.LOCK_SH); err != nil {
			return nil, err
		}
		s, err = p.open(ring)
		if err == nil {
			break
		}
		// An incomplete set is removed if no session uses it.
		if try == 2 || unix.Flock(int(h.set.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil, fmt.Errorf("the observer pinned in %s is incomplete: %w", p.dir(), err)
		}
		p.remove()
		h.set.Close()
		h.set = nil
	}
	l := &loaded{set: s, lease: h}
	s.sweepSlots(p)
	if l.slot, err = s.takeSlot(h, ring); err != nil {
		s.close()
		return nil, err
	}
	return l, nil
}

// release gives up the slot, and removes the set if this was its last session.
func (l *lease) release() {
	if l.slot != nil {
		l.slot.Close()
	}
	if l.set == nil {
		return
	}
	if l.keep > 0 && l.dir.keepFor(l.keep) == nil {
		l.set.Close()
		return
	}
	l.dir.removeIfLast(l.set)
	l.set.Close()
}

// preloaded is a slot for one Open.
type preloaded struct {
	*loaded
	err error
}

// ready is what has been loaded ahead for the next Open.
var ready struct {
	mu   sync.Mutex
	next chan preloaded
	ring int // its size
}

// Preload begins in the background with the part of [Open] that depends on no
// session, which is most of it. Call it as early as it is known that a run will
// be observed, with its Config.RingBytes; Open waits for it. Calling it twice does
// nothing more. Without an Open of that size the kernel keeps what was loaded,
// attached to nothing, until this process ends.
func Preload(ringBytes int) {
	ready.mu.Lock()
	defer ready.mu.Unlock()
	if ready.next != nil {
		return
	}
	next := make(chan preloaded, 1)
	ring := ringSize(ringBytes)
	ready.next, ready.ring = next, ring
	go func() {
		l, err := prepare(ring)
		next <- preloaded{l, err}
	}()
}

// guarded is the channel of WaitForGuard.
var guarded atomic.Pointer[<-chan struct{}]

// guardWait bounds the wait for it.
const guardWait = 5 * time.Second

// WaitForGuard delays the pinning of an observer by this process until made is closed: without a guard, nobody would
// remove the observer if this process were killed.
func WaitForGuard(made <-chan struct{}) { guarded.Store(&made) }

// awaitGuard is called before an observer is pinned.
func awaitGuard() {
	if made := guarded.Load(); made != nil {
		select {
		case <-*made:
		case <-time.After(guardWait):
		}
	}
}

// PreloadIfPinned is [Preload] if the host's observer is in place, which makes it cheap, and cheap to undo with
// [DiscardPreload]. Otherwise it does nothing.
func PreloadIfPinned(ringBytes int) {
	go func() {
		if inPlace() {
			Preload(ringBytes)
		}
	}()
}

// DiscardPreload waits for a Preload that no Open has used, and frees what it loaded.
func DiscardPreload() {
	ready.mu.Lock()
	next := ready.next
	ready.next = nil
	ready.mu.Unlock()
	if next == nil {
		return
	}
	if p := <-next; p.err == nil {
		p.loaded.close()
	}
}

// prepared is what Preload loaded, if its ring has that size, or else what prepare returns.
func prepared(ring int) (*loaded, error) {
	ready.mu.Lock()
	next := ready.next
	if ready.ring != ring {
		next = nil
	}
	if next != nil {
		ready.next = nil
	}
	ready.mu.Unlock()
	if next != nil {
		p := <-next
		return p.loaded, p.err
	}
	return prepare(ring)
}

// prepare gets a slot in the shared set, or, if that fails, in a set of this run's own.
func prepare(ring int) (*loaded, error) {
	l, err := share(ring)
	if err == nil {
		return l, nil
	}
	own, failed := prepareAlone(ring)
	if failed == nil {
		own.alone = err
	}
	return own, failed
}

// prepareAlone loads and attaches programs, for one session.
func prepareAlone(ring int) (_ *loaded, err error) {
	s, err := newSet(1)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := s.load(ring); err != nil {
		return nil, classify(err)
	}
	if s.made, err = s.ids(); err != nil {
		return nil, err
	}
	l := &loaded{set: s}
	if l.slot, err = s.furnish(0, ring); err != nil {
		return nil, err
	}
	return l, nil
}

// newSet is a set with nothing in the kernel yet.
func newSet(slots int) (*set, error) {
	s := &set{progs: map[string]*ebpf.Program{}, maps: map[string]*ebpf.Map{}, vars: map[string]*ebpf.Variable{},
		links: map[string]link.Link{}, failed: map[string]error{}, slots: slots}
	var err error
	if s.cpus, err = ebpf.PossibleCPU(); err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	return s, nil
}
