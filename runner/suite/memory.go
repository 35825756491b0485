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

// memory bounds what the limits of the runs of this process add up to.
type memory struct {
	once  sync.Once
	total int64
	free  *semaphore.Weighted
}

// take waits until so many bytes of the machine's memory are promised to nobody, in turn, and returns what gives them
// back. More than there is is all there is: such a run is alone.
func (m *memory) take(ctx context.Context, bytes int64) (give func(), err error) {
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

// machineMemory is the memory that this machine or container has, in bytes.
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
