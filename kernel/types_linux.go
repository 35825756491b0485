//go:build linux && (amd64 || arm64)

package kernel

import (
	"sync"

	"github.com/cilium/ebpf/btf"
)

// kernelTypes is the running kernel's BTF, whose index takes 6 to 12 ms to
// build. It is kept only from Preload until the next Open is done with it.
var kernelTypes struct {
	mu    sync.Mutex
	cache *btf.Cache
}

// Preload begins, on a goroutine of its own, with the part of [Open] that
// depends on nothing: reading the kernel's types. Call it as early as it is
// known that a run will be observed; Open waits for it.
func Preload() {
	kernelTypes.mu.Lock()
	go func() {
		defer kernelTypes.mu.Unlock()
		if kernelTypes.cache == nil {
			kernelTypes.cache = readTypes()
		}
	}()
}

// readTypes parses the kernel's BTF. Without BTF it returns an empty cache, and
// loading will say so.
func readTypes() *btf.Cache {
	c := btf.NewCache()
	c.Kernel()
	return c
}

// withTypes calls fn with the kernel's types and drops them.
func withTypes(fn func(*btf.Cache) error) error {
	kernelTypes.mu.Lock()
	defer kernelTypes.mu.Unlock()
	if kernelTypes.cache == nil {
		kernelTypes.cache = readTypes()
	}
	defer func() { kernelTypes.cache = nil }()
	return fn(kernelTypes.cache)
}
