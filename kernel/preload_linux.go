//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// preloaded is what Open needs and that depends on no session: the programs
// and maps, in the kernel. It serves one Open.
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

// guarded is what pinning waits for.
var guarded atomic.Pointer[<-chan struct{}]

// guardWait bounds that, should nobody come.
const guardWait = 5 * time.Second

// WaitForGuard makes an observer of this process wait for made to be closed before it is
// pinned: until then nobody would free it, should this process be killed.
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

// PreloadIfPinned is [Preload] where the host's observer is already in place, so that little has
// to be done, or undone by [DiscardPreload]. Elsewhere it does nothing.
func PreloadIfPinned(ringBytes int) {
	go func() {
		if inPlace() {
			Preload(ringBytes)
		}
	}()
}

// DiscardPreload frees what was preloaded and no Open has used. It waits until it is loaded.
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

// prepared is what Preload loaded, if that is of the right size, or what is
// loaded now.
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

// prepare gets a slot: in the set that all runs of this build share, or, where that
// cannot be had, in one of its own.
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

// newSet is a set that has nothing in the kernel yet.
func newSet(slots int) (*set, error) {
	s := &set{progs: map[string]*ebpf.Program{}, maps: map[string]*ebpf.Map{}, vars: map[string]*ebpf.Variable{}, links: map[string]link.Link{}, failed: map[string]error{}, slots: slots}
	var err error
	if s.cpus, err = ebpf.PossibleCPU(); err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	return s, nil
}
