package kernel

import (
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// Tally counts events by what they are. The zero value has counted none.
type Tally struct {
	// Kinds counts the events by Kind. Threads are the forks of threads, Errors the events with an Errno, QUICPeers the
	// remote endpoints of UDP port 443.
	Kinds                      [kindCount]uint64
	Threads, Errors, QUICPeers uint64
	// SharedFiles are the forks that left parent and child one table of descriptors, threads included; Claimed
	// the events
	// whose names or addresses were read from memory that another could change; Replaced the opens whose descriptor
	// another could have put another file on; MemoryOpened the opens for writing of a process's memory in /proc.
	SharedFiles, Claimed, Replaced, MemoryOpened uint64
	// NamedDatagrams are the unix datagram sockets that were given a name: nothing tells who sends to one.
	NamedDatagrams uint64
	// UserNamed are the events whose path was read from the caller's memory.
	UserNamed uint64
	// Undecoded are the calls that the table lacks.
	Undecoded uint64
}

const sockDatagram = 2 // SOCK_DGRAM

// Count adds an event.
func (t *Tally) Count(e *Event) {
	switch e.Kind {
	case schema.KindFork:
		if e.Thread {
			t.Threads++
		}
		if e.SharesFiles {
			t.SharedFiles++
		}
	case schema.KindOpen:
		if e.PlaceProcess != 0 && e.Writes() && strings.HasSuffix(e.Place, "/mem") {
			t.MemoryOpened++
		}
	case schema.KindWrite: // through a descriptor that somebody else had opened
		if strings.HasPrefix(e.Place, "/proc/") && strings.HasSuffix(e.Place, "/mem") {
			t.MemoryOpened++
		}
	case schema.KindBind:
		if e.Protocol == "unix" && e.SockType == sockDatagram && e.Errno == 0 {
			t.NamedDatagrams++
		}
	case schema.KindFlow:
		if e.Protocol == "udp" && e.Peer.Port() == 443 {
			t.QUICPeers++
		}
	}
	if e.Kind == KindUnmodelled && e.opening.Undecoded {
		t.Undecoded += e.Count
	}
	if e.Claimed && e.Kind == schema.KindOpen && e.KernelObject() {
		t.Replaced++
	}
	if e.Claimed && (e.Kind != schema.KindOpen || !e.KernelObject() || e.Syscall == "openat2") {
		t.Claimed++
	}
	if e.UserMemory && e.Kind != schema.KindMemfd {
		t.UserNamed++
	}
	if e.Errno != 0 {
		t.Errors++
	}
	t.Kinds[e.Kind]++
}

// Without returns the tally of the events that are not in o, which are some of those in t.
func (t Tally) Without(o *Tally) Tally {
	for k := range t.Kinds {
		t.Kinds[k] -= o.Kinds[k]
	}
	t.Threads -= o.Threads
	t.Errors -= o.Errors
	t.QUICPeers -= o.QUICPeers
	t.SharedFiles -= o.SharedFiles
	t.Claimed -= o.Claimed
	t.Replaced -= o.Replaced
	t.MemoryOpened -= o.MemoryOpened
	t.NamedDatagrams -= o.NamedDatagrams
	t.UserNamed -= o.UserNamed
	t.Undecoded -= o.Undecoded
	return t
}
