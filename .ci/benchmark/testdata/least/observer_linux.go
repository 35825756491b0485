package main

import (
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	seat        = 1023 // the last, which no run comes to
	sessionSize = 128
	sessionBits = 10
	lanes       = 2
)

// The session's maps by the maps of maps that they are in, the programs for its cgroup with
// what they are attached as, and the links that all sessions share.
var (
	seatMaps = []string{"counters", "slots", "owners", "endpoints", "requests", "quiet_requests", "accepts", "uring_addresses"}
	programs = []struct {
		name string
		as   uint32
	}{
		{"connect4", unix.BPF_CGROUP_INET4_CONNECT}, {"connect6", unix.BPF_CGROUP_INET6_CONNECT},
		{"sendmsg4", unix.BPF_CGROUP_UDP4_SENDMSG}, {"sendmsg6", unix.BPF_CGROUP_UDP6_SENDMSG},
		{"bind4", unix.BPF_CGROUP_INET4_BIND}, {"bind6", unix.BPF_CGROUP_INET6_BIND},
		{"skb_in", unix.BPF_CGROUP_INET_INGRESS}, {"skb_out", unix.BPF_CGROUP_INET_EGRESS},
	}
	shared = []string{"completed", "execed", "exited", "forked", "moved", "settled", "signalled", "submitted", "sys_exit"}
)

type observer struct {
	pinned  string
	numbers int // cgroup to seat
	session []byte
	epoch   []byte
	rings   [lanes]ring
	links   []int // of the session's cgroup
	shared  []int
	cgroup  uint64
}

func observe(pinned string, g *groups) *observer {
	o := &observer{pinned: pinned}
	for _, name := range shared {
		o.shared = append(o.shared, o.get("link_"+name))
	}
	o.whole()
	o.numbers = o.get("map_numbers")
	o.session = mmap(o.get("map_sessions"), seat*sessionSize&^4095, 4096, unix.PROT_READ|unix.PROT_WRITE)[seat*sessionSize&4095:]
	o.epoch = mmap(o.get("map_epochs"), 0, 4096, unix.PROT_READ|unix.PROT_WRITE)
	maps := map[string]int{}
	for _, name := range seatMaps {
		maps[name] = o.own(name, seat, 0)
	}
	for lane := range lanes {
		o.rings[lane] = mapRing(o.own("rings", uint32(seat*lanes+lane), uint32(lane)))
	}
	for _, name := range seatMaps[:2] {
		i := info(maps[name])
		mmap(maps[name], 0, int((i[3]+7)&^7*i[4]+4095)&^4095, unix.PROT_READ|unix.PROT_WRITE)
	}
	dir := open(g.run, unix.O_DIRECTORY)
	var st unix.Stat_t
	call("stat", unix.SYS_FSTAT, uintptr(dir), at(&st))
	o.cgroup = st.Ino
	for _, p := range programs {
		attr := [4]uint32{uint32(o.get("prog_" + p.name)), uint32(dir), p.as}
		o.links = append(o.links, bpf("attach link "+p.name, unix.BPF_LINK_CREATE, at(&attr), 16))
	}
	o.register()
	selfTest(g)
	if o.read() == 0 {
		check("self-test", syscall.ENOMSG)
	}
	return o
}

// register makes the programs report what happens in the cgroup.
func (o *observer) register() {
	handle := (*uint32)(unsafe.Pointer(&o.session[8]))
	*handle = (*handle>>sessionBits+1)<<sessionBits | seat
	for lane, r := range o.rings {
		*(*uint32)(unsafe.Pointer(&o.session[12+4*lane])) = uint32(r.size / 8)
	}
	o.set(o.cgroup)
	number := uint32(seat)
	attr := [4]uint64{uint64(o.numbers), uint64(at(&o.cgroup)), uint64(at(&number))}
	bpf("insert session", unix.BPF_MAP_UPDATE_ELEM, at(&attr), 32)
	o.changed()
}

func (o *observer) set(cgroup uint64) {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&o.session[0])), cgroup)
}
func (o *observer) changed() { atomic.AddUint64((*uint64)(unsafe.Pointer(&o.epoch[0])), 1) }

// end takes the session out again.
func (o *observer) end() {
	o.whole()
	for i, fd := range o.links {
		call("close link "+programs[i].name, unix.SYS_CLOSE, uintptr(fd))
	}
	attr := [2]uint64{uint64(o.numbers), uint64(at(&o.cgroup))}
	bpf("delete session", unix.BPF_MAP_DELETE_ELEM, at(&attr), 16)
	o.changed()
	o.set(0)
	if o.read() == 0 {
		check("command", syscall.ENOMSG)
	}
}

// whole asks for the links that all sessions share, which have to be there.
func (o *observer) whole() {
	for _, fd := range o.shared {
		info(fd)
	}
}

// own is one of the session's maps. Where there is none yet, it is made as the first
// session's is; runs after that find it.
func (o *observer) own(outer string, index, first uint32) int {
	m := o.get("map_" + outer)
	if id, ok := lookup(m, index); ok {
		return byID(id)
	}
	id, ok := lookup(m, first)
	if !ok {
		check(outer, syscall.ENOENT)
	}
	i := info(byID(id))
	spec := [5]uint32{i[0], i[2], i[3], i[4], i[5] &^ unix.BPF_F_RDONLY}
	fd := bpf("create "+outer, unix.BPF_MAP_CREATE, at(&spec), 20)
	value := uint32(fd)
	attr := [4]uint64{uint64(m), uint64(at(&index)), uint64(at(&value))}
	bpf("add to "+outer, unix.BPF_MAP_UPDATE_ELEM, at(&attr), 32)
	return fd
}

func lookup(m int, index uint32) (id uint32, ok bool) {
	attr := [4]uint64{uint64(m), uint64(at(&index)), uint64(at(&id))}
	_, _, errno := unix.RawSyscall(unix.SYS_BPF, unix.BPF_MAP_LOOKUP_ELEM, at(&attr), 32)
	return id, errno == 0
}

func byID(id uint32) int {
	attr := [3]uint32{id}
	return bpf("map by id", unix.BPF_MAP_GET_FD_BY_ID, at(&attr), 12)
}

// get opens what is pinned.
func (o *observer) get(name string) int {
	attr := [2]uint64{uint64(text(o.pinned + "/" + name))}
	return bpf("open pinned", unix.BPF_OBJ_GET, at(&attr), 16)
}

// info is what the kernel tells of an object: the start of a struct bpf_map_info or bpf_link_info.
func info(fd int) (out [32]uint32) {
	attr := [2]uint64{uint64(fd) | 128<<32, uint64(at(&out))}
	bpf("info", unix.BPF_OBJ_GET_INFO_BY_FD, at(&attr), 16)
	return out
}

func bpf(kind string, command uintptr, attr, size uintptr) int {
	return call(kind, unix.SYS_BPF, command, attr, size)
}

// ring is a ring buffer: see kernel/bpf/ringbuf.c.
type ring struct {
	consumed, produced *uint64
	data               []byte
	size               uint64
}

func mapRing(fd int) ring {
	size := int(info(fd)[4])
	own := mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE)
	theirs := mmap(fd, 4096, 4096+2*size, unix.PROT_READ)
	return ring{(*uint64)(unsafe.Pointer(&own[0])), (*uint64)(unsafe.Pointer(&theirs[0])), theirs[4096:], uint64(size)}
}

// read goes over the records and counts them.
func (o *observer) read() (records int) {
	for _, r := range o.rings {
		at, end := *r.consumed, atomic.LoadUint64(r.produced)
		for at < end {
			n := atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.data[at&(r.size-1)])))
			at += uint64(n&^(3<<30)+8+7) &^ 7
			records++
		}
		atomic.StoreUint64(r.consumed, at)
	}
	return records
}

func mmap(fd, offset, size, protection int) []byte {
	at := call("mmap", unix.SYS_MMAP, 0, uintptr(size), uintptr(protection), unix.MAP_SHARED, uintptr(fd), uintptr(offset))
	p := uintptr(at)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), size)
}
