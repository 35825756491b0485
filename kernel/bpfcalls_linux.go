//go:build linux && (amd64 || arm64)

package kernel

import (
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/assay-run/assay-run/schema"
)

// bpfCalls watches what the session does with BPF objects. It may change its own and read others. A session that
// changed others may have blinded the observer for a while, and nothing shows that afterwards.
type bpfCalls struct {
	mu      sync.Mutex
	made    map[BPFObject]bool // by the session, Writable cleared
	changed uint64
	// opened: maps that it did not make are open. A program that it then loads can change them, and no call tells.
	opened bool
	// doubtful: it then loaded a program that had gone before it could be looked at.
	doubtful bool
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

// bpfObjectsAtMost bounds how many of the session's own objects are remembered; further ones count as foreign.
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
			foreign, known := b.usesForeignMaps(object.ID)
			if foreign {
				b.changed++
			}
			b.doubtful = b.doubtful || !known
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

// usesForeignMaps reports whether a program uses a map that the session did not make. known is false if the program has
// gone already.
func (b *bpfCalls) usesForeignMaps(program uint32) (foreign, known bool) {
	p, err := ebpf.NewProgramFromID(ebpf.ProgramID(program))
	if err != nil {
		return false, false
	}
	defer p.Close()
	info, err := p.Info()
	if err != nil {
		return false, false
	}
	maps, known := info.MapIDs()
	return slices.ContainsFunc(maps, func(id ebpf.MapID) bool {
		return !b.made[BPFObject{Type: BPFMap, ID: uint32(id)}]
	}), known
}

// doubt reports whether it may have changed such an object by a program that has gone.
func (b *bpfCalls) doubt() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.doubtful
}

// count is how many calls there were that changed what the session did not make.
func (b *bpfCalls) count() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}
