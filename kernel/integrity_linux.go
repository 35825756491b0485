//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// checkInterval is how often a session looks whether what it rests on is as it was.
const checkInterval = 2 * time.Second

// tampered names what is no longer as this session made or found it. Who is root
// can reach it all with bpf(2), from inside of the session or from outside.
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
	note(l.maps["numbers"].Lookup(t.cgroup, &number) != nil || number != t.number, "the entry that marks the cgroup as observed")
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

// pin is a name in a directory of bpffs. What is pinned again under a name has another
// inode. (Its time of change will not do: the kernel takes that from the last tick.)
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

// tamperedPins tells whether what later runs will find is what this one rests on.
func (l *loaded) tamperedPins() string {
	if l.lease == nil {
		return ""
	}
	// It was frozen when this one read it, so it says the same if it is the same.
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
	for name, ln := range l.attached() {
		if !stillAttached(ln, l.made.Progs[name]) && (l.own[name] == nil || !l.gone()) {
			lost = append(lost, name)
		}
	}
	return lost
}

// gone tells whether the session's cgroup was removed, as an engine does with that of a
// container that has ended. It had no process then, and can get none: the kernel has
// detached its programs and freed what they kept there.
func (l *loaded) gone() bool {
	fd, err := unix.Openat(int(l.cgroup.Fd()), "cgroup.procs", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err == unix.ENOENT || err == unix.ENODEV
}

// stillAttached asks the kernel. A link to a cgroup outlives its being detached,
// by force or because the cgroup is gone, and has none then, and it can be given
// another program than the one with that id; any other that there is is attached.
func stillAttached(ln link.Link, program uint32) bool {
	have, err := identifyLink(ln)
	if err != nil || have.program() != program {
		return false
	}
	_, cgroup := ln.(*link.RawLink)
	return !cgroup || have.Cgroup != 0
}

// serials checks that no record of a session is missing, by their numbers.
type serials struct {
	last          map[uint32]*uint32 // by stream, lane and CPU
	missing       uint64
	nets, highest uint64 // of the session's sockets, whose records may overtake each other
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
