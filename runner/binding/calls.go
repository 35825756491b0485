package binding

// MaxCalls limits how many calls are distinguished.
const MaxCalls = 10_000

// calls are the tool calls of a run, by what names them.
type calls struct {
	byID    map[string]*call
	order   []*call
	cgroups map[uint64]*call
	spans   map[string]*call
	lost    uint64 // calls beyond MaxCalls
}

func newCalls() *calls {
	return &calls{byID: map[string]*call{}, cgroups: map[uint64]*call{}, spans: map[string]*call{}}
}

// call returns the call with an id, and creates it if needed; nil if there are too many.
func (c *calls) call(id string) *call {
	if k := c.byID[id]; k != nil {
		return k
	}
	if len(c.byID) >= MaxCalls {
		c.lost++
		return nil
	}
	k := &call{id: id}
	c.byID[id] = k
	c.order = append(c.order, k)
	return k
}

// attach makes a cgroup the call's. It reports false if there are too many calls.
func (c *calls) attach(id string, cgroup uint64) bool {
	k := c.call(id)
	if k == nil || len(c.cgroups) >= 2*MaxCalls {
		return false
	}
	k.attached, k.cgroupID = true, cgroup
	c.cgroups[cgroup] = k
	return true
}

// in returns the call whose cgroup it is, or nil.
func (c *calls) in(cgroup uint64) *call {
	if cgroup == 0 {
		return nil
	}
	return c.cgroups[cgroup]
}
