//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"slices"
	"sync"
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
	fresh               []own // maps that the programs do not know yet
	failed              chan error
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

// furnish finds or makes a seat's maps, with a ring of that size, and clears them.
func (s *set) furnish(number uint32, ring int) (_ *seat, err error) {
	t := &seat{set: s, number: number}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	specs := seatMaps(s.cpus)
	get := func(outer string, index uint32, spec *ebpf.MapSpec) (m *ebpf.Map) {
		if err != nil {
			return nil
		}
		if m = s.found(outer, index, spec); m != nil {
			return m
		}
		if m, err = ebpf.NewMap(spec); err != nil {
			err = fmt.Errorf("make the session's map %s: %w", spec.Name, err)
			return nil
		}
		t.fresh = append(t.fresh, own{outer, index, m})
		return m
	}
	t.counters = get("counters", number, specs["counters"])
	t.slots = get("slots", number, specs["slots"])
	t.owners = get("owners", number, specs["owners"])
	t.endpoints = get("endpoints", number, specs["endpoints"])
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
	return t, nil
}

// found is the map that a former session left there, if it is as one would be made.
func (s *set) found(outer string, index uint32, spec *ebpf.MapSpec) *ebpf.Map {
	var id uint32
	if !s.shared || s.maps[outer].Lookup(index, &id) != nil {
		return nil
	}
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if err != nil {
		return nil
	}
	if m.Type() != spec.Type || m.MaxEntries() != spec.MaxEntries || m.ValueSize() != spec.ValueSize || m.KeySize() != spec.KeySize {
		m.Close()
		return nil
	}
	return m
}

func (t *seat) remember() (err error) {
	if t.counterMem, err = mapArray(t.counters); err != nil {
		return err
	}
	t.slotMem, err = mapArray(t.slots)
	return err
}

// own is one of a seat's maps, with the map of maps and the index that it belongs at.
type own struct {
	outer string
	index uint32
	m     *ebpf.Map
}

func (t *seat) all() []own {
	return []own{
		{"counters", t.number, t.counters}, {"slots", t.number, t.slots}, {"owners", t.number, t.owners}, {"endpoints", t.number, t.endpoints},
		{"rings", t.number * lanes, t.rings[laneFiles]}, {"rings", t.number*lanes + laneUrgent, t.rings[laneUrgent]},
	}
}

// putting waits in tests for updates under way.
var putting sync.WaitGroup

// publish makes the seat's new maps known to the programs. Each update lets the
// caller go only when no program can be using what was there before, which takes
// up to 30 ms; the programs have it at once. So all go in parallel, in the
// background, and arrived tells when they are there. Nobody waits for the end of
// the updates, so they have descriptors of their own.
func (t *seat) publish() error {
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

// arrived waits until the programs have the seat's maps.
func (t *seat) arrived() error {
	for begin := time.Now(); ; {
		missing := ""
		for _, o := range t.fresh {
			if !o.inPlace(t.set) {
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

// inPlace tells whether the programs find the map.
func (o own) inPlace(s *set) bool {
	var id uint32
	info, err := o.m.Info()
	return err == nil && s.maps[o.outer].Lookup(o.index, &id) == nil && ebpf.MapID(id) == mapID(info)
}

func mapID(info *ebpf.MapInfo) ebpf.MapID {
	id, _ := info.ID()
	return id
}

// clear makes the seat as if nobody had been there.
func (t *seat) clear() error {
	clear(t.counterMem)
	clear(t.slotMem)
	return t.deleteEndpoints(func(*endpoint, *traffic) bool { return true })
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
	atomic.StoreUint64(&e.Left, bootTime())
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
	for _, o := range t.all() {
		if o.m != nil {
			errs = append(errs, o.m.Close())
		}
	}
	for _, mem := range [][]byte{t.counterMem, t.slotMem} {
		if mem != nil {
			errs = append(errs, unix.Munmap(mem))
		}
	}
	t.counterMem, t.slotMem = nil, nil
	return errors.Join(errs...)
}
