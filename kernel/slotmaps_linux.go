//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const (
	// urgentFraction of the size of the ring for files is that of the ring for what
	// is rare and matters, but minUrgentRing at least.
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
		"counters":        hash(ebpf.Array, 4, unsafe.Sizeof(counter{}), uint32(cpus*hookCells), unix.BPF_F_MMAPABLE),
		"slots":           hash(ebpf.Array, 4, unsafe.Sizeof(repeatSlot{}), uint32(cpus*slotsPerCPU), unix.BPF_F_MMAPABLE),
		"owners":          hash(ebpf.LRUHash, id, unsafe.Sizeof(owner{}), 2048, 0),
		"endpoints":       hash(ebpf.Hash, unsafe.Sizeof(endpoint{}), unsafe.Sizeof(traffic{}), 8192, unix.BPF_F_NO_PREALLOC),
		"requests":        hash(ebpf.Hash, id, unsafe.Sizeof(request{}), requestsMost, unix.BPF_F_NO_PREALLOC),
		"quiet_requests":  hash(ebpf.LRUHash, id, unsafe.Sizeof(request{}), 1024, 0),
		"accepts":         hash(ebpf.Hash, id, unsafe.Sizeof(request{}), acceptsMost, unix.BPF_F_NO_PREALLOC),
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

// furnish finds or makes a slot's maps, with a ring of that size, and clears them.
// Those that it makes are on their way to the programs.
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

// found is the map that a former session left there, and its id, if it is as one would be made.
func (s *set) found(outer string, index uint32, spec *ebpf.MapSpec) (m *ebpf.Map, id uint32) {
	if !s.shared || s.maps[outer].Lookup(index, &id) != nil {
		return nil, 0
	}
	m, err := ebpf.NewMapFromID(ebpf.MapID(id))
	if err != nil {
		return nil, 0
	}
	if m.Type() != spec.Type || m.MaxEntries() != spec.MaxEntries || m.ValueSize() != spec.ValueSize || m.KeySize() != spec.KeySize {
		m.Close()
		return nil, 0
	}
	return m, id
}

func (t *slot) remember() (err error) {
	if t.counterMem, err = mapArray(t.maps["counters"]); err != nil {
		return err
	}
	t.repeatMem, err = mapArray(t.maps["slots"])
	return err
}

// own is one of a slot's maps, with the map of maps and the index that it belongs at.
type own struct {
	outer string
	index uint32
	m     *ebpf.Map
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

// putting waits in tests for updates under way.
var putting sync.WaitGroup

// publish makes the slot's new maps known to the programs. Each update lets the
// caller go only when no program can be using what was there before, which takes
// up to 30 ms; the programs have it at once. So all go in parallel, in the
// background, and arrived tells when they are there. Nobody waits for the end of
// the updates, so they have descriptors of their own.
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

// inPlace tells whether the programs find the map.
func (t *slot) inPlace(o own) bool {
	var id uint32
	return t.set.maps[o.outer].Lookup(o.index, &id) == nil && id == t.ids[o.m]
}

// clear makes the slot as if nobody had been there.
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
