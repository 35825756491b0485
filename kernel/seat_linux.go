//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/bpf"
)

// seat is a session's place in a set: its number, and the maps that are its own.
type seat struct {
	set    *set
	number uint32
	handle uint32 // what the programs call the session: never used twice
	cgroup uint64 // that it is registered for, or 0

	rings     [lanes]*ebpf.Map
	counters  *ebpf.Map
	slots     *ebpf.Map
	owners    *ebpf.Map
	endpoints *ebpf.Map

	counterMem, slotMem []byte
	putting             chan error // what making the maps known to the programs came to
}

const (
	ownersMost    = 2048
	endpointsMost = 8192
	// urgentRing is the size of the ring for what is rare and matters, as a
	// fraction of that for files, and at least minUrgentRing.
	urgentFraction = 8
	minUrgentRing  = 256 << 10
)

// seatMaps are the specifications of a seat's maps but the rings, by the map of
// maps that they go into: as in bpf/, in the size for this host.
func seatMaps(cpus int) map[string]*ebpf.MapSpec {
	var c counter
	var s slot
	var o owner
	var e endpoint
	var t traffic
	return map[string]*ebpf.MapSpec{
		"counters": {Name: "counters", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(c)), MaxEntries: uint32(cpus * hookCells), Flags: unix.BPF_F_MMAPABLE},
		"slots":    {Name: "slots", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(s)), MaxEntries: uint32(cpus * slotsPerCPU), Flags: unix.BPF_F_MMAPABLE},
		"owners":   {Name: "owners", Type: ebpf.LRUHash, KeySize: 8, ValueSize: uint32(unsafe.Sizeof(o)), MaxEntries: ownersMost},
		"endpoints": {Name: "endpoints", Type: ebpf.Hash, KeySize: uint32(unsafe.Sizeof(e)), ValueSize: uint32(unsafe.Sizeof(t)), MaxEntries: endpointsMost,
			Flags: unix.BPF_F_NO_PREALLOC},
	}
}

func ringSpec(size int) *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: "ring", Type: ebpf.RingBuf, MaxEntries: uint32(size)}
}

// furnish makes a seat's maps, with a ring of that size.
func (s *set) furnish(number uint32, ring int) (_ *seat, err error) {
	t := &seat{set: s, number: number}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	make := func(spec *ebpf.MapSpec) *ebpf.Map {
		if err != nil {
			return nil
		}
		var m *ebpf.Map
		if m, err = ebpf.NewMap(spec); err != nil {
			err = fmt.Errorf("make the session's map %s: %w", spec.Name, err)
		}
		return m
	}
	specs := seatMaps(s.cpus)
	t.counters, t.slots = make(specs["counters"]), make(specs["slots"])
	t.owners, t.endpoints = make(specs["owners"]), make(specs["endpoints"])
	t.rings = [lanes]*ebpf.Map{make(ringSpec(ring)), make(ringSpec(max(ring/urgentFraction, min(minUrgentRing, ring))))}
	if err != nil {
		return nil, err
	}
	return t, t.remember()
}

func (t *seat) remember() (err error) {
	if t.counterMem, err = mapArray(t.counters); err != nil {
		return err
	}
	t.slotMem, err = mapArray(t.slots)
	return err
}

// own are the seat's maps by the map of maps, and where in it they are.
func (t *seat) own(fn func(outer string, index uint32, m *ebpf.Map)) {
	fn("counters", t.number, t.counters)
	fn("slots", t.number, t.slots)
	fn("owners", t.number, t.owners)
	fn("endpoints", t.number, t.endpoints)
	for lane, m := range t.rings {
		fn("rings", t.number*lanes+uint32(lane), m)
	}
}

// publish makes the seat's maps known to the programs. Each update lets the
// caller go only when no program can be using what was there before, which takes
// up to 30 ms; the programs have it at once. So all go in parallel, in the
// background, and settled tells when they are there.
// Nobody waits for the end of that, so the updates have descriptors of their own.
func (t *seat) publish() error {
	var puts []func()
	var failed error
	t.putting = make(chan error, lanes+4)
	t.own(func(outer string, index uint32, m *ebpf.Map) {
		to, err := t.set.maps[outer].Clone()
		if err != nil {
			failed = err
			return
		}
		own, err := m.Clone()
		failed = errors.Join(failed, err)
		puts = append(puts, func() {
			t.putting <- to.Put(index, own)
			to.Close()
			own.Close()
		})
	})
	if failed != nil {
		return failed
	}
	for _, put := range puts {
		go put()
	}
	return nil
}

// settled waits until the programs have the seat's maps.
func (t *seat) settled() error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		var missing string
		t.own(func(outer string, index uint32, m *ebpf.Map) {
			var id uint32
			if info, err := m.Info(); err != nil || t.set.maps[outer].Lookup(index, &id) != nil || ebpf.MapID(id) != mapID(info) {
				missing = outer
			}
		})
		if missing == "" {
			return nil
		}
		select {
		case err := <-t.putting:
			if err != nil {
				return fmt.Errorf("add the session's map to %s: %w", missing, err)
			}
		case <-time.After(50 * time.Microsecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the session's map did not arrive in %s", missing)
		}
	}
}

func mapID(info *ebpf.MapInfo) ebpf.MapID {
	id, _ := info.ID()
	return id
}

// deleteEndpoints deletes those that match.
func (t *seat) deleteEndpoints(match func(*endpoint, *traffic) bool) error {
	var old []endpoint
	err := t.eachEndpoint(func(k *endpoint, v *traffic) error {
		if match(k, v) {
			old = append(old, *k)
		}
		return nil
	})
	for i := range old {
		if e := t.endpoints.Delete(&old[i]); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// register makes the programs report what happens in the cgroup, under the
// seat's number, from now on.
func (t *seat) register(cgroup uint64) error {
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

// wakeAt is how full a ring is when the reader is woken ahead of its poll.
func (t *seat) wakeAt(lane int) uint32 { return t.rings[lane].MaxEntries() / wakeFraction }

// enroll makes a process that is in the session already known as that. It may be
// known as another's, which this one is nested in or which is nested in this one.
func (t *seat) enroll(pid uint32) error {
	var in bpf.AssayScope
	members := t.set.maps["members"]
	if err := members.Lookup(pid, &in); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	if slices.Contains(in.Handle[:in.N], t.handle) {
		return nil
	}
	if int(in.N) == len(in.Handle) {
		return fmt.Errorf("it is in %d sessions already", in.N)
	}
	in.Handle[in.N] = t.handle
	in.N++
	return members.Put(pid, &in)
}

// leave ends what register began.
func (t *seat) leave() error {
	if t.cgroup == 0 {
		return nil
	}
	err := t.set.maps["numbers"].Delete(t.cgroup)
	t.set.changed()
	e := t.set.session(t.number)
	atomic.StoreUint64(&e.Cgroup, 0)
	t.cgroup = 0
	if err != nil {
		return fmt.Errorf("take the session's cgroup from the observer: %w", err)
	}
	return nil
}

// eachEndpoint calls fn for every remote endpoint that packets went to or came from.
func (t *seat) eachEndpoint(fn func(*endpoint, *traffic) error) error {
	var k endpoint
	var v traffic
	it := t.endpoints.Iterate()
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

func (t *seat) eachSlot(fn func(i uint32, s *slot) error) error {
	for i, s := range elements[slot](t.slotMem, int(t.slots.MaxEntries())) {
		if s.Id != 0 && s.Count != 0 {
			if err := fn(uint32(i), &s); err != nil {
				return err
			}
		}
	}
	return nil
}

// cells are the seat's counters, of each CPU in turn.
func (t *seat) cells() []counter {
	return elements[counter](t.counterMem, int(t.counters.MaxEntries()))
}

func (t *seat) close() error {
	var errs []error
	t.own(func(_ string, _ uint32, m *ebpf.Map) {
		if m != nil {
			errs = append(errs, m.Close())
		}
	})
	for _, mem := range [][]byte{t.counterMem, t.slotMem} {
		if mem != nil {
			errs = append(errs, unix.Munmap(mem))
		}
	}
	t.counterMem, t.slotMem = nil, nil
	return errors.Join(errs...)
}
