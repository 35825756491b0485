//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

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

// passed reports whether a system call of the session passed descriptors over a unix
// socket.
func (t *slot) passed() bool { return atomic.LoadUint64(&t.set.session(t.number).Passed) != 0 }

// wakeAt is how full a ring is when the reader is woken ahead of its poll.
func (t *slot) wakeAt(lane int) uint32 { return t.rings[lane].MaxEntries() / wakeFraction }

// enroll makes a process that is in the session already known as that. It may be
// known as another's, which this one is nested in or which is nested in this one.
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
