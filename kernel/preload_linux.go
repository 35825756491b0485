//go:build linux && (amd64 || arm64)

package kernel

import (
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/assay-run/assay-run/bpf"
)

// preloaded is what Open needs and that depends on nothing: the running
// kernel's BTF, whose index takes 6 to 12 ms to build, and the embedded
// programs. Each serves one Open, which changes the programs and lets the BTF
// go.
type preloaded struct {
	types chan *btf.Cache
	spec  chan parsed
}

type parsed struct {
	*ebpf.CollectionSpec
	err error
}

// ready is what has been read ahead for the next Open.
var ready struct {
	mu   sync.Mutex
	next *preloaded
}

// Preload begins, on goroutines of its own, with the part of [Open] that
// depends on nothing. Call it as early as it is known that a run will be
// observed; Open waits for it. Calling it twice does nothing more.
func Preload() {
	ready.mu.Lock()
	defer ready.mu.Unlock()
	if ready.next == nil {
		ready.next = preload()
	}
}

func preload() *preloaded {
	p := &preloaded{types: make(chan *btf.Cache, 1), spec: make(chan parsed, 1)}
	go func() {
		types := btf.NewCache()
		types.Kernel() // without BTF the cache is empty, and loading will say so
		p.types <- types
	}()
	go func() {
		spec, err := bpf.LoadAssay()
		p.spec <- parsed{spec, err}
	}()
	return p
}

// takePreloaded is what Preload read, or begins to read it now.
func takePreloaded() *preloaded {
	ready.mu.Lock()
	defer ready.mu.Unlock()
	p := ready.next
	if p == nil {
		return preload()
	}
	ready.next = nil
	return p
}
