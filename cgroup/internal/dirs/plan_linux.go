package dirs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

// place is where a session goes on one hierarchy.
type place struct {
	h      *hierarchy
	base   string
	enable []string // controllers to switch on in base first
	move   bool     // the runner has to leave base first
	limits []string // the limits that are set here
}

// primaries are the v1 controllers whose hierarchies are used without cgroup2. The first
// that there is has the primary one, which holds every process: it kills.
var primaries = []string{"freezer", "pids", "cpuacct"}

// primary is the hierarchy that a session's first directory is on, nil if there is none.
func (h *Host) primary() *hierarchy {
	if h.v2 != nil {
		return h.v2
	}
	for _, k := range primaries {
		if l := h.onV1(k); l != nil {
			return l
		}
	}
	return nil
}

// Refused names the limits that are not enforced where no cgroup is writable, or
// returns a *LimitError.
func (h *Host) Refused(l Limits) (unenforced []string, err error) {
	s := &Session{host: h}
	_, err = s.plan(l)
	return s.unenforced, err
}

// plan decides where the session goes and what limits it there.
func (s *Session) plan(l Limits) ([]place, error) {
	h := s.host
	want := map[string]int64{"memory": l.MemoryBytes, "pids": l.Pids, "cpu": l.CPUMilli}
	var v2 *place
	if h.v2 != nil {
		v2 = &place{h: h.v2, base: h.v2.own}
		if filepath.Base(v2.base) == runnerLeaf {
			v2.base = filepath.Dir(v2.base)
		}
		if l.Slice {
			v2.base = h.v2.mount
		}
	}
	var v1 []*place
	on := func(on *hierarchy) *place {
		for _, p := range v1 {
			if p.h == on {
				return p
			}
		}
		v1 = append(v1, &place{h: on, base: on.own})
		return v1[len(v1)-1]
	}
	if h.v2 == nil {
		for _, k := range primaries {
			if v1 := h.onV1(k); v1 != nil {
				on(v1)
			}
		}
	}
	for _, kind := range kinds {
		value := want[kind]
		if value < 0 {
			return nil, fmt.Errorf("the %s limit is negative: %d", kind, value)
		}
		c := h.controllers[slices.Index(kinds, kind)]
		switch {
		case value == 0 && c.Hierarchy == "v1" && kind != "cpu":
			on(h.onV1(kind)) // to count
		case value == 0:
		case l.Slice && slices.Contains(words(filepath.Join(h.v2.mount, "cgroup.controllers")), kind): // systemd hands it out
			v2.limits = append(v2.limits, kind)
		case !c.Available:
			if !l.BestEffort {
				return nil, &LimitError{Limit: kind, Controller: kind, Reason: c.Reason, Remedy: c.Remedy}
			}
			s.unenforced = append(s.unenforced, kind)
		case c.Hierarchy == "v1":
			p := on(h.onV1(kind))
			p.limits = append(p.limits, kind)
			s.viaShim = s.viaShim || kind == "pids"
		default:
			how, err := h.v2.source(kind)
			if err != nil {
				return nil, &LimitError{Limit: kind, Controller: kind, Reason: err.Error(), Remedy: c.Remedy}
			}
			if how.base != v2.base && len(v2.limits) > 0 { // found further up: that must do for all
				for _, k := range v2.limits {
					if !h.v2.hands(how.base, k) {
						return nil, &LimitError{Limit: k, Controller: k, Reason: "no single cgroup hands out all controllers needed", Remedy: c.Remedy}
					}
				}
			}
			v2.base, v2.move = how.base, v2.move || how.claim
			v2.limits = append(v2.limits, kind)
			if how.enable {
				v2.enable = append(v2.enable, kind)
			}
		}
	}
	var places []place
	if v2 != nil {
		places = append(places, *v2)
	}
	for _, p := range v1 {
		places = append(places, *p)
	}
	return places, nil
}

// limit writes the limits to a session directory.
func (p place) limit(path string, l Limits) error {
	set := func(file string, n int64) error {
		return write(filepath.Join(path, file), strconv.FormatInt(n, 10))
	}
	for _, kind := range p.limits {
		var err error
		switch {
		case kind == "pids":
			err = set("pids.max", l.Pids)
		case kind == "memory" && p.h.v2:
			if err = set("memory.max", l.MemoryBytes); err == nil && exists(filepath.Join(path, "memory.swap.max")) {
				err = set("memory.swap.max", 0)
			}
		case kind == "memory":
			if err = set("memory.limit_in_bytes", l.MemoryBytes); err == nil && exists(filepath.Join(path, "memory.memsw.limit_in_bytes")) {
				err = set("memory.memsw.limit_in_bytes", l.MemoryBytes)
			}
		case kind == "cpu" && p.h.v2:
			err = write(filepath.Join(path, "cpu.max"), fmt.Sprintf("%d %d", quota(l.CPUMilli), period))
		case kind == "cpu":
			if err = set("cpu.cfs_period_us", period); err == nil {
				err = set("cpu.cfs_quota_us", quota(l.CPUMilli))
			}
		}
		if err != nil {
			return fmt.Errorf("set the %s limit: %w", kind, err)
		}
	}
	return nil
}

const period = 100_000 // µs, the kernel's default

// quota is in µs per period; the kernel takes no less than 1 ms.
func quota(milli int64) int64 { return max(milli*period/1000, 1000) }

// prepare makes the bases hand out what the session needs. What it did is
// undone when the last of this host's sessions is removed.
func (h *Host) prepare(places []place) (undo func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range places {
		if len(p.enable) == 0 {
			continue
		}
		u, err := claim(p.base, p.move, p.enable)
		if err != nil {
			return nil, err
		}
		h.undo = append(h.undo, u)
	}
	h.sessions++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.sessions--; h.sessions == 0 {
			for _, u := range slices.Backward(h.undo) {
				u()
			}
			h.undo = nil
		}
	}, nil
}
