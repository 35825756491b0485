//go:build linux

package suite

import (
	"context"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
)

// memory reserves the machine's memory for runs, by their limits.
type memory struct {
	once  sync.Once
	total int64 // in bytes
	free  *semaphore.Weighted
}

// reserve waits, in order of the calls, until the other runs leave bytes of the machine's memory free, and reserves
// them until release is called. A run that asks for more than the machine has reserves all of it, and so runs alone.
func (m *memory) reserve(ctx context.Context, bytes int64) (release func(), err error) {
	m.once.Do(func() {
		m.total = machineMemory()
		m.free = semaphore.NewWeighted(m.total)
	})
	bytes = min(bytes, m.total)
	if err := m.free.Acquire(ctx, bytes); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { m.free.Release(bytes) }, nil
}

// machineMemory is the memory of this machine, or of this container if that has less, in bytes.
func machineMemory() int64 {
	total := int64(math.MaxInt64)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		total = int64(uint64(info.Totalram) * uint64(info.Unit))
	}
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if text, err := os.ReadFile(name); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				total = min(total, n)
			}
		}
	}
	return total
}
