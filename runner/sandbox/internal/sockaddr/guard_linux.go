package sockaddr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// Rules say what the processes of the cgroup may do. The zero value denies every internet address.
type Rules struct {
	// Loopback allows loopback addresses to be reached and bound.
	Loopback bool
	// BindAny allows every address to be bound.
	BindAny bool
}

// Denial is one call that was denied.
type Denial struct {
	// Bind means that the call would have bound the address, not reached it.
	Bind bool
	Addr netip.AddrPort
	// Time is CLOCK_BOOTTIME, in nanoseconds.
	Time uint64
}

// Tally counts all denials, and those that were not reported.
type Tally struct{ Denied, Lost uint64 }

// Guard holds the programs attached to one cgroup.
type Guard struct {
	collection *ebpf.Collection
	links      []link.Link
	ring       *ringbuf.Reader
	told       sync.WaitGroup
}

// hooks are the programs in the order of enum hook in sockaddr.bpf.c, with their attach types.
var hooks = []struct {
	program string
	attach  ebpf.AttachType
}{
	{programsProgConnect4, ebpf.AttachCGroupInet4Connect}, {programsProgConnect6, ebpf.AttachCGroupInet6Connect},
	{programsProgSendmsg4, ebpf.AttachCGroupUDP4Sendmsg}, {programsProgSendmsg6, ebpf.AttachCGroupUDP6Sendmsg},
	{programsProgBind4, ebpf.AttachCGroupInet4Bind}, {programsProgBind6, ebpf.AttachCGroupInet6Bind},
}

const firstBind = 4 // index in hooks

// Attach applies the rules to everything in and below the cgroup2 directory dir. It calls denied for each denial,
// from one goroutine. The error is the kernel's if it does not allow this.
func Attach(dir string, rules Rules, denied func(Denial)) (g *Guard, err error) {
	cgroup, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the cgroup: %w", err)
	}
	defer cgroup.Close()
	g = &Guard{}
	defer func() {
		if err != nil {
			g.release()
			g = nil
		}
	}()
	// Linux before 6.1 has no bpf_set_retval for these programs. There, the error of a denied call is EPERM.
	if g.collection, err = load(rules, true); err != nil && !errors.Is(err, unix.EPERM) {
		g.collection, err = load(rules, false)
	}
	if err != nil {
		return g, fmt.Errorf("load the programs: %w", err)
	}
	if g.ring, err = ringbuf.NewReader(g.collection.Maps[programsMapDenials]); err != nil {
		return g, fmt.Errorf("open the ring buffer: %w", err)
	}
	for _, h := range hooks {
		l, err := link.AttachRawLink(
			link.RawLinkOptions{Target: int(cgroup.Fd()), Program: g.collection.Programs[h.program], Attach: h.attach},
		)
		if err != nil {
			return g, fmt.Errorf("attach %s: %w", h.program, err)
		}
		g.links = append(g.links, l)
	}
	g.told.Go(func() { g.read(denied) })
	return g, nil
}

func load(rules Rules, setErrno bool) (*ebpf.Collection, error) {
	spec, err := loadPrograms()
	if err != nil {
		return nil, err
	}
	for name, set := range map[string]bool{programsVarLoopback: rules.Loopback, programsVarBindAny: rules.BindAny,
		programsVarSetErrno: setErrno} {
		if err := spec.Variables[name].Set(set); err != nil {
			return nil, err
		}
	}
	return ebpf.NewCollection(spec)
}

func (g *Guard) read(denied func(Denial)) {
	for {
		r, err := g.ring.Read()
		if err != nil {
			return // flushed or closed
		}
		if d, ok := decode(r.RawSample); ok {
			denied(d)
		}
	}
}

// decode decodes a struct denial.
func decode(b []byte) (Denial, bool) {
	var d programsDenial
	if _, err := binary.Decode(b, binary.NativeEndian, &d); err != nil || int(d.Hook) >= len(hooks) {
		return Denial{}, false
	}
	addr := netip.AddrFrom16(d.Addr)
	if d.Family == 4 {
		addr = netip.AddrFrom4([4]byte(d.Addr[:4]))
	}
	return Denial{Bind: d.Hook >= firstBind, Addr: netip.AddrPortFrom(addr, d.Port), Time: d.T}, true
}

// Close reports all denials so far, detaches the programs, and returns the counts.
func (g *Guard) Close() (Tally, error) {
	for _, l := range g.links {
		l.Close()
	}
	g.links = nil
	err := g.ring.Flush()
	if err == nil {
		g.told.Wait()
	}
	var sum Tally
	counts := g.collection.Maps[programsMapTallies]
	for at := range uint32(len(hooks)) {
		var n programsTally
		if lerr := counts.Lookup(at, &n); lerr != nil {
			err = errors.Join(err, fmt.Errorf("count denials: %w", lerr))
		}
		sum.Denied, sum.Lost = sum.Denied+n.Denied, sum.Lost+n.Lost
	}
	g.release()
	return sum, err
}

func (g *Guard) release() {
	for _, l := range slices.Backward(g.links) {
		l.Close()
	}
	if g.ring != nil {
		g.ring.Close()
	}
	if g.collection != nil {
		g.collection.Close()
	}
}
