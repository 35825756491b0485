package layer

import (
	"sync"

	"github.com/assay-run/assay-run/schema"
)

// Checks knows which cgroups belong to the checks of an outcome contract, so
// that what those do is not taken for the agent's. A process is a check's when
// it was started into the check's cgroup, by nobody whom the layer knows and
// before the check was over, or when its parent is one: an agent that moves
// into such a cgroup stays the agent. So is a process that an engine moved into a container of the run while the check
// ran: nothing of the agent runs then. The zero value is ready, nil has no checks, and both are safe for concurrent
// use.
type Checks struct {
	mu   sync.Mutex
	byID map[uint64]*Check
	all  []uint64 // the ids in byID, as the checks began
}

// Check is one evaluation of one check.
type Check struct {
	Name string
	// Baseline: it ran before the agent.
	Baseline bool

	since uint64 // when it began
	until uint64 // when it was over; 0 while it runs
}

// write makes a line one of the check's; nil changes nothing.
func (c *Check) write(e *schema.KernelEvent) {
	if c == nil {
		return
	}
	e.Class = schema.ClassCheck
	switch e.Kind {
	case schema.KindFork, schema.KindExec, schema.KindJoin:
		e.Check, e.Baseline = c.Name, c.Baseline
	}
}

// Begin is called before anything runs in the cgroup with this id (its
// directory's inode number). An id of 0 is not noted. now is CLOCK_BOOTTIME in nanoseconds.
func (c *Checks) Begin(cgroupID uint64, check Check, now uint64) {
	if cgroupID == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = make(map[uint64]*Check)
	}
	check.since = now
	c.byID[cgroupID] = &check
	c.all = append(c.all, cgroupID)
}

// End is called when nothing runs in the cgroup any more; now is CLOCK_BOOTTIME
// in nanoseconds.
func (c *Checks) End(cgroupID, now uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if check := c.byID[cgroupID]; check != nil {
		over := *check
		over.until = now
		c.byID[cgroupID] = &over // a builder may hold the other
	}
}

// of returns the check that a process belongs to which began in a cgroup at
// time t, nil for none; with t 0 the time does not count.
func (c *Checks) of(cgroupID, t uint64) *Check {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	check := c.byID[cgroupID]
	if check == nil || check.until != 0 && t > check.until {
		return nil
	}
	return check
}

// during returns the check that ran at time t; nil for none.
func (c *Checks) during(t uint64) *Check {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.all {
		if check := c.byID[id]; check.since <= t && (check.until == 0 || t <= check.until) {
			return check
		}
	}
	return nil
}
