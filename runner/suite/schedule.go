//go:build linux

package suite

import (
	"cmp"
	"context"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
)

// choose takes so many of the attempts that are ready. Agents take turns: the next is one of which the fewest tries are
// open, and then the fewest were chosen. Of its attempts, the longest by earlier times goes first, and before these the
// ones of which no time is known.
func (c *Coordinator) choose(ready []*attempt, room int) []*attempt {
	open := map[string]int{}
	for _, t := range c.tokens {
		open[t.of.Agent]++
	}
	var chosen []*attempt
	taken := map[*attempt]bool{}
	for len(chosen) < min(room, len(ready)) {
		var next *attempt
		for _, a := range ready {
			if !taken[a] && (next == nil || c.sooner(a, next, open)) {
				next = a
			}
		}
		taken[next] = true
		open[next.Agent]++
		c.turns[next.Agent]++
		chosen = append(chosen, next)
	}
	return chosen
}

// sooner reports whether a is to be tried before b, where so many tries of each agent are open.
func (c *Coordinator) sooner(a, b *attempt, open map[string]int) bool {
	if a.Agent != b.Agent {
		if n := cmp.Or(cmp.Compare(open[a.Agent], open[b.Agent]), cmp.Compare(c.turns[a.Agent],
			c.turns[b.Agent])); n != 0 {
			return n < 0
		}
	}
	return cmp.Or(-cmp.Compare(c.expected(a), c.expected(b)), cmp.Compare(a.Attempt.Attempt, b.Attempt.Attempt)) < 0
}

// expected grows with the longest that the agent has taken at the task; infinity where that is not known. Times that
// differ by less than a fifth or so count as equal: the first attempts of all tasks go before the second ones.
func (c *Coordinator) expected(a *attempt) float64 {
	if s, ok := c.longest[cell{a.Task, a.Agent}]; ok {
		return math.Round(2 * math.Log2(max(s, 0.01)))
	}
	return math.Inf(1)
}

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
