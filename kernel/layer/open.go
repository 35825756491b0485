package layer

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// keptOpen bounds the calls and operations that are told apart. The rest are counted in one that opens every claim.
const keptOpen = 256

// restOpen is the call of that one.
const restOpen = "further calls"

// openCalls keeps what no line tells of: the calls after which a claim is open.
type openCalls struct {
	calls map[[2]string]*schema.OpenCall // by call and operation
	fifos fifos
	peers peers
}

func newOpenCalls() openCalls {
	return openCalls{calls: make(map[[2]string]*schema.OpenCall), fifos: make(fifos),
		peers: peers{named: make(map[netip.AddrPort]struct{})}}
}

// note notes what claims are open after an event. p is the process that did it; nil: it is not known.
func (a *openCalls) note(ev *kernel.Event, p *process) {
	o, ok := ev.Opens()
	if !ok {
		o, ok = a.fifos.opens(ev)
	}
	if !ok {
		return
	}
	key := [2]string{o.Call, o.Operation}
	if len(a.calls) >= keptOpen && a.calls[key] == nil {
		key = [2]string{restOpen}
		o = kernel.Opening{Call: restOpen, Claims: schema.Subjects, Why: "there were too many to name them"}
	}
	c := a.calls[key]
	if c == nil {
		c = &schema.OpenCall{Call: o.Call, Operation: o.Operation, Claims: o.Claims, Why: o.Why,
			Unusual: o.Unusual()}
		if p != nil {
			c.Program = p.exe
		}
		a.calls[key] = c
	}
	c.Count += max(ev.Count, 1)
}

// list is what was noted, in the order of the calls' names.
func (a *openCalls) list() (list []schema.OpenCall) {
	for _, o := range a.peers.strays() {
		list = append(list, once(&o))
	}
	for _, c := range slices.SortedFunc(maps.Values(a.calls), func(x, y *schema.OpenCall) int {
		return strings.Compare(x.Call+" "+x.Operation, y.Call+" "+y.Operation)
	}) {
		list = append(list, *c)
	}
	return list
}

// once is what was done once, by a process that is not known.
func once(o *kernel.Opening) schema.OpenCall {
	return schema.OpenCall{Call: o.Call, Operation: o.Operation, Count: 1, Claims: o.Claims, Why: o.Why,
		Unusual: o.Unusual()}
}

// keptFIFOs bounds the FIFOs of the run that are remembered.
const keptFIFOs = 1024

// fifos are the FIFOs that the run has made, by their names, as long as nothing else can have these names.
type fifos map[string]struct{}

// opens returns what is open after the run has opened a FIFO to write that it is not known to have made: who reads it
// may be outside of the run. Pipes without a name are their makers' to give away.
func (f fifos) opens(ev *kernel.Event) (o kernel.Opening, ok bool) {
	const typeMask, fifo = 0o170000, 0o010000
	switch {
	case ev.Errno != 0 || ev.Attempted:
	case ev.Kind == schema.KindRename || ev.Kind == schema.KindLink || ev.Kind == schema.KindUnlink:
		f.forget(ev.Value, ev.Target)
	case ev.Kind == schema.KindMount:
		clear(f)
	case ev.Kind == schema.KindMknod && ev.Mode&typeMask == fifo && len(f) < keptFIFOs:
		f[strings.Clone(ev.Value)] = struct{}{}
	case ev.Kind == schema.KindOpen && ev.FileMode&typeMask == fifo && ev.Writes() &&
		ev.Marks&schema.MarkUnreachable == 0:
		if _, made := f[ev.Value]; made {
			return o, false
		}
		return kernel.Opening{Call: "open", Operation: ev.Value, Claims: schema.Subjects,
			Why: "it is a FIFO that the run did not make, and who reads it may do what it says"}, true
	}
	return o, false
}

// forget forgets the names that are these or below them: another FIFO may have them now.
func (f fifos) forget(names ...string) {
	for at := range f {
		if slices.ContainsFunc(names, func(name string) bool {
			return name != "" && schema.Below(at, name)
		}) {
			delete(f, at)
		}
	}
}

// Most peers and flows that are remembered, and flows without a peer that are named.
const (
	keptPeers = 1 << 15
	keptFlows = 8192 // as many as the programs count
	mostFlows = 16
)

// peers compares where bytes went with whom the run is known to have contacted.
type peers struct {
	named map[netip.AddrPort]struct{}
	flows []netip.AddrPort // to which bytes went
	more  bool             // there were others, which are not kept
}

// add notes the peer of a network event. The loopback address from which the run connected is its own, too: the server
// at the other end sends to it, and may be of the run.
func (p *peers) add(ev *kernel.Event) {
	if !ev.Peer.IsValid() {
		return
	}
	at := kernel.Unmapped(ev.Peer)
	switch {
	case ev.Kind != schema.KindFlow && len(p.named) < keptPeers:
		p.named[at] = struct{}{}
		if own := kernel.Unmapped(ev.Own); ev.Kind == schema.KindConnectResult && own.Addr().IsLoopback() {
			p.named[own] = struct{}{}
		}
	case ev.Kind != schema.KindFlow:
		_, known := p.named[at]
		p.more = p.more || !known
	case ev.BytesOut > 0 && len(p.flows) < keptFlows:
		p.flows = append(p.flows, at)
	case ev.BytesOut > 0:
		p.more = true
	}
}

// strays are the flows to peers that no other line names. Flows come last, in no order. What was not remembered is
// one more.
func (p *peers) strays() (list []kernel.Opening) {
	stray := func(to, why string) kernel.Opening {
		return kernel.Opening{Call: "flow", Operation: to, Claims: []string{schema.SubjectHosts}, Why: why}
	}
	var at []netip.AddrPort
	for _, f := range p.flows {
		if _, ok := p.named[f]; !ok && len(at) < mostFlows && !slices.Contains(at, f) {
			at = append(at, f)
		}
	}
	slices.SortFunc(at, netip.AddrPort.Compare)
	for _, f := range at {
		list = append(list, stray(kernel.Endpoint(f), "bytes went there, and no line tells who contacted that host"))
	}
	if p.more {
		list = append(list, stray("further hosts",
			"there were too many to compare with the hosts that the run contacted"))
	}
	return list
}
