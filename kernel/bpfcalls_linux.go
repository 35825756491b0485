//go:build linux && (amd64 || arm64)

package kernel

import (
	"sync"

	"github.com/assay-run/assay-run/schema"
)

// bpfCalls watches what the session does with BPF objects. Its own are its
// business, and so is to look at others. One that changes others may have turned the
// observer blind for a while and back: which nobody can tell afterwards, not even
// from what the observer saw.
type bpfCalls struct {
	mu      sync.Mutex
	made    map[BPFObject]bool // by the session, Writable cleared
	changed uint64
	// opened: maps that it did not make are open. A program that it then loads can change them, and no call tells.
	opened bool
}

// Commands of bpf(2), include/uapi/linux/bpf.h.
const (
	cmdMapCreate     = 0
	cmdProgLoad      = 5
	cmdProgDetach    = 9
	cmdObjGet        = 7
	cmdProgGetFd     = 13
	cmdMapGetFd      = 14
	cmdRawTracepoint = 17
	cmdLinkCreate    = 28
	cmdLinkGetFd     = 30
)

// bpfObjectsAtMost bounds how many of the session's own are remembered; more pass
// for somebody else's.
const bpfObjectsAtMost = 1 << 16

// see takes in one call: of bpf(2), or one that maps a map's memory to write to it.
func (b *bpfCalls) see(e *Event) {
	// A cgroup's only program need not be named to be detached.
	unnamed := e.Kind == schema.KindBPF && e.Arg(0) == cmdProgDetach
	if e.Errno != 0 || e.BPF.Type == 0 && !unnamed {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	object := e.BPF
	object.Writable = false
	if e.Kind == schema.KindMmapShared {
		if !b.made[object] {
			b.changed++
		}
		return
	}
	switch e.Arg(0) {
	case cmdMapCreate, cmdProgLoad, cmdRawTracepoint, cmdLinkCreate:
		if e.Arg(0) == cmdProgLoad && b.opened {
			b.changed++
		}
		if len(b.made) < bpfObjectsAtMost {
			if b.made == nil {
				b.made = map[BPFObject]bool{}
			}
			b.made[object] = true
		}
	case cmdObjGet, cmdMapGetFd, cmdLinkGetFd, cmdProgGetFd: // bpftool opens what it lists
		b.opened = b.opened || object.Type == BPFMap && !b.made[object]
	default:
		if !b.made[object] {
			b.changed++
		}
	}
}

// count is how many calls there were that changed what the session did not make.
func (b *bpfCalls) count() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}
