//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/bpf"
)

// slot is a session's place in a set: its number, and the maps that are its own.
type slot struct {
	set    *set
	number uint32
	handle uint32 // what the programs call the session: never used twice
	cgroup uint64 // that it is registered for, or 0

	rings [lanes]*ebpf.Map
	maps  map[string]*ebpf.Map // the others, by the map of maps that each is in
	ids   map[*ebpf.Map]uint32 // of all of them

	counterMem, repeatMem []byte
	fresh                 []own // maps that the programs do not know yet
	failed                chan error
}

// register makes the programs report what happens in the cgroup, under the
// slot's number, from now on.
func (t *slot) register(cgroup uint64) error {
	e := t.set.session(t.number)
	t.handle = (e.Handle>>sessionBits+1)<<sessionBits | t.number
	*e = bpf.AssaySession{Handle: t.handle, Wake: [lanes]uint32{t.wakeAt(laneFiles), t.wakeAt(laneUrgent)}}
	atomic.StoreUint64(&e.Cgroup, cgroup)
	t.cgroup = cgroup
	if err := t.set.maps["numbers"].Put(cgroup, t.number); err != nil {
		return fmt.Errorf("register the session's cgroup: %w", err)
	}
	t.set.changed()
	return nil
}

// sleep makes the next record wake the reader.
func (t *slot) sleep() { atomic.StoreUint64(&t.set.session(t.number).Asleep, 1) }

// Ways of enum passed in bpf/record.h.
const (
	cameFromOutside = 4
	wentOutside     = 8
	cameUnseen      = 16
)

// passed is how processes of the session passed descriptors, to each other and to others: the constants above.
func (t *slot) passed() (ways uint64) {
	return atomic.LoadUint64(&t.set.session(t.number).Passed)
}

// own says which socket is assay-run's own, by its cookie (SO_COOKIE).
func (t *slot) own(cookie uint64) { atomic.StoreUint64(&t.set.session(t.number).Control, cookie) }

// wakeAt is how full a ring is when the reader is woken ahead of its poll.
func (t *slot) wakeAt(lane int) uint32 { return t.rings[lane].MaxEntries() / wakeFraction }

// enroll makes a process that is in the session already its member. The process may be a member of other sessions
// too: of those around this one and in it.
func (t *slot) enroll(pid uint32) error {
	var member bpf.AssayMember
	in := &member.In
	members := t.set.maps["members"]
	if err := members.Lookup(pid, &member); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	if slices.Contains(in.Handle[:in.N], t.handle) {
		return nil
	}
	if int(in.N) == len(in.Handle) {
		return fmt.Errorf("it is in %d sessions already", in.N)
	}
	// What its threads did before is not known.
	if tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)); err != nil || len(tasks) > 1 {
		member.Shared = 1
	}
	in.Handle[in.N] = t.handle
	in.N++
	return members.Put(pid, &member)
}

// leave ends what register began.
func (t *slot) leave() error {
	if t.cgroup == 0 {
		return nil
	}
	err := t.set.maps["numbers"].Delete(t.cgroup)
	t.set.changed()
	e := t.set.session(t.number)
	atomic.StoreUint64(&e.Left, bootTime())
	atomic.StoreUint64(&e.Cgroup, 0)
	t.cgroup = 0
	if err != nil {
		return fmt.Errorf("take the session's cgroup from the observer: %w", err)
	}
	return nil
}

// eachEndpoint calls fn for every remote endpoint that packets went to or came from.
func (t *slot) eachEndpoint(fn func(*endpoint, *traffic) error) error {
	var k endpoint
	var v traffic
	it := t.maps["endpoints"].Iterate()
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

func (t *slot) eachRepeat(fn func(i uint32, s *repeatSlot) error) error {
	for i, s := range elements[repeatSlot](t.repeatMem, int(t.maps["slots"].MaxEntries())) {
		if s.Id != 0 && s.Count != 0 {
			if err := fn(uint32(i), &s); err != nil {
				return err
			}
		}
	}
	return nil
}

// cells are the slot's counters, of each CPU in turn.
func (t *slot) cells() []counter {
	return elements[counter](t.counterMem, int(t.maps["counters"].MaxEntries()))
}

func (t *slot) close() error {
	var errs []error
	for _, o := range t.all() {
		if o.m != nil {
			errs = append(errs, o.m.Close())
		}
	}
	for _, mem := range [][]byte{t.counterMem, t.repeatMem} {
		if mem != nil {
			errs = append(errs, unix.Munmap(mem))
		}
	}
	t.counterMem, t.repeatMem = nil, nil
	return errors.Join(errs...)
}

func (t *slot) remember() (err error) {
	if t.counterMem, err = mapArray(t.maps["counters"]); err != nil {
		return err
	}
	t.repeatMem, err = mapArray(t.maps["slots"])
	return err
}

func (t *slot) all() (out []own) {
	for name, m := range t.maps {
		out = append(out, own{name, t.number, m})
	}
	for lane, m := range t.rings {
		out = append(out, own{"rings", t.number*lanes + uint32(lane), m})
	}
	return out
}

// publish gives the slot's new maps to the programs. The programs have a map at once, but the update returns only
// when no program uses the old one, up to 30 ms later. So all updates run in the background, on descriptors of their
// own, and nobody waits for their end: arrived waits for the maps.
func (t *slot) publish() error {
	t.failed = make(chan error, len(t.fresh))
	for _, f := range t.fresh {
		to, err := t.set.maps[f.outer].Clone()
		if err != nil {
			return err
		}
		m, err := f.m.Clone()
		if err != nil {
			to.Close()
			return err
		}
		putting.Go(func() {
			if err := to.Put(f.index, m); err != nil {
				t.failed <- fmt.Errorf("add the session's map to %s: %w", f.outer, err)
			}
			to.Close()
			m.Close()
		})
	}
	return nil
}

// arrived waits until the programs have the slot's maps.
func (t *slot) arrived() error {
	for begin := time.Now(); ; {
		missing := ""
		for _, o := range t.fresh {
			if !t.inPlace(o) {
				missing = o.outer
			}
		}
		if missing == "" {
			return nil
		}
		select {
		case err := <-t.failed:
			return err
		case <-time.After(50 * time.Microsecond):
		}
		if time.Since(begin) > 5*time.Second {
			return fmt.Errorf("the session's map did not arrive in %s", missing)
		}
	}
}

// inPlace reports whether the programs find the map.
func (t *slot) inPlace(o own) bool {
	var id uint32
	return t.set.maps[o.outer].Lookup(o.index, &id) == nil && id == t.ids[o.m]
}

// clear removes what an earlier session left in the slot's maps.
func (t *slot) clear() error {
	for name, m := range t.maps {
		if slices.ContainsFunc(t.fresh, func(o own) bool { return o.m == m }) {
			continue
		}
		switch {
		case name == "counters":
			clear(t.counterMem)
		case name == "slots":
			clear(t.repeatMem)
		default:
			if err := deleteFrom(m, func([]byte) bool { return true }); err != nil {
				return fmt.Errorf("clear the session's map %s: %w", name, err)
			}
		}
	}
	return nil
}

const (
	// The ring for urgent kinds has 1/urgentFraction of the size of the ring for files, but minUrgentRing at least.
	urgentFraction = 8
	minUrgentRing  = 256 << 10

	// requestsMost bounds the io_uring requests of a session that are under way,
	// acceptsMost the accepts among them.
	requestsMost = 16384
	acceptsMost  = 4096
)

// slotMaps are the specifications of a slot's maps but the rings, by the map of
// maps that they go into: as in bpf/, in the size for this host.
func slotMaps(cpus int) map[string]*ebpf.MapSpec {
	hash := func(kind ebpf.MapType, key, value uintptr, most, flags uint32) *ebpf.MapSpec {
		return &ebpf.MapSpec{Type: kind, KeySize: uint32(key), ValueSize: uint32(value), MaxEntries: most, Flags: flags}
	}
	const id = unsafe.Sizeof(uint64(0))
	out := map[string]*ebpf.MapSpec{
		"counters": hash(ebpf.Array, 4, unsafe.Sizeof(counter{}), uint32(cpus*hookCells), unix.BPF_F_MMAPABLE),
		"slots": hash(ebpf.Array, 4, unsafe.Sizeof(repeatSlot{}), uint32(cpus*slotsPerCPU),
			unix.BPF_F_MMAPABLE),
		"owners": hash(ebpf.LRUHash, id, unsafe.Sizeof(owner{}), 2048, 0),
		"endpoints": hash(ebpf.Hash, unsafe.Sizeof(endpoint{}), unsafe.Sizeof(traffic{}), 8192,
			unix.BPF_F_NO_PREALLOC),
		"requests":        hash(ebpf.Hash, id, unsafe.Sizeof(request{}), requestsMost, unix.BPF_F_NO_PREALLOC),
		"quiet_requests":  hash(ebpf.LRUHash, id, unsafe.Sizeof(request{}), 1024, 0),
		"accepts":         hash(ebpf.Hash, id, unsafe.Sizeof(request{}), acceptsMost, unix.BPF_F_NO_PREALLOC),
		"met":             hash(ebpf.LRUHash, id, id, 4096, 0),
		"uring_addresses": hash(ebpf.Hash, id, unsafe.Sizeof(address{}), 4096, unix.BPF_F_NO_PREALLOC),
	}
	for name, spec := range out {
		spec.Name = name
	}
	return out
}

func ringSpec(size int) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: "ring", Type: ebpf.RingBuf, MaxEntries: uint32(size)}
}

// own is one of a slot's maps, with the map of maps and the index that it belongs at.
type own struct {
	outer string
	index uint32
	m     *ebpf.Map
}

// putting waits in tests for updates under way.
var putting sync.WaitGroup

// deleteFrom deletes the elements of a map whose values match.
func deleteFrom(m *ebpf.Map, match func(value []byte) bool) error {
	var key, value []byte
	var old [][]byte
	it := m.Iterate()
	for it.Next(&key, &value) {
		if match(value) {
			old = append(old, bytes.Clone(key))
		}
	}
	err := it.Err()
	for _, k := range old {
		if e := m.Delete(k); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
