package dirs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Host is what this machine allows. What it offers does not change after
// Probe.
type Host struct {
	mode        Mode
	v2          *hierarchy   // nil unless writable
	v1          []*hierarchy // the writable ones that carry something of use
	mounts      []mount      // of every hierarchy
	reasons     []Reason
	controllers []Controller
	clone       error // why CLONE_INTO_CGROUP cannot be used; nil: it can

	mu       sync.Mutex
	sessions int
	made     map[string]int // how many of them are in a directory
	spare    []string       // directories of sessions that the probe made
	undo     []func()       // what ends with the last session
}

// controllers in the order that Controllers lists them.
var kinds = []string{"memory", "pids", "cpu", "io"}

// Probe finds out what this host allows by trying: it makes and removes an
// empty cgroup on every hierarchy. It never fails: a host that allows nothing
// is of mode None.
func Probe() *Host {
	h := ProbeForSession()
	h.Tidy()
	return h
}

// ProbeForSession is Probe, but keeps the cgroups that it makes until NewSession or Tidy. Most
// often the session is made in them. A process that is killed in between leaves them empty, and
// the next Sweep or session removes them.
func ProbeForSession() *Host {
	v2, v1, all, err := hierarchies()
	h := &Host{mode: None, mounts: all}
	switch {
	case err != nil:
		h.because("cgroup_unreadable", "cannot tell which cgroup this process is in: "+err.Error(), "mount /proc")
		v2, v1 = nil, nil
	case v2 == nil && len(v1) == 0:
		h.because("cgroup_not_mounted", "no cgroup hierarchy is mounted here", "mount -t cgroup2 none /sys/fs/cgroup")
	}
	if v2 != nil {
		if err := h.writable(v2); err != nil {
			h.refused(err, "cgroup2_not_writable", remedyDelegate)
		} else {
			h.v2 = v2
		}
	}
	for _, l := range v1 {
		if !l.useful(h.v2 != nil) {
			continue
		}
		if err := h.writable(l); err == nil {
			h.v1 = append(h.v1, l)
		} else if v2 == nil || len(v2.controllers) == 0 {
			h.refused(err, "cgroup_v1_not_writable", "run as root")
		}
	}
	switch {
	case h.v2 != nil && len(h.v1) == 0 && cgroups.Mode() != cgroups.Hybrid:
		h.mode = Unified
	case h.v2 != nil:
		h.mode = Hybrid
	case slices.ContainsFunc(h.v1, func(l *hierarchy) bool { return l.has("freezer") || l.has("pids") }):
		h.mode = Legacy
	default:
		h.v1 = nil // nothing that could hold all of a session's processes
	}
	if h.v2 != nil {
		if h.clone = cloneIntoCgroup(); h.clone != nil {
			h.because("clone_into_cgroup_unavailable", fmt.Sprintf("clone3 with CLONE_INTO_CGROUP fails: %v; commands are started by way of a re-exec", h.clone),
				"use kernel 5.7 or later and a seccomp profile that allows clone3")
		}
	}
	for _, k := range kinds {
		h.controllers = append(h.controllers, h.controller(k))
	}
	return h
}

const remedyDelegate = "run as root, or in a delegated cgroup: systemd-run --user --scope -p Delegate=yes assay-run ..."

func (h *Host) because(code, message, remedy string) {
	h.reasons = append(h.reasons, Reason{code, message, remedy})
}

// refused notes why a hierarchy cannot be used: for want of rights, or because it is full.
func (h *Host) refused(err error, code, remedy string) {
	var full *procs.FullError
	if errors.As(err, &full) {
		code, remedy = procs.CodeFull, full.Remedy
	}
	h.because(code, err.Error(), remedy)
}

// Mode says what holds a session together here.
func (h *Host) Mode() Mode { return h.mode }

// Reasons say why Mode is not better than it is, and what else falls short.
// Empty when nothing does.
func (h *Host) Reasons() []Reason { return slices.Clone(h.reasons) }

// Controllers tells for memory, pids, cpu and io, in this order, what can be
// limited and counted.
func (h *Host) Controllers() []Controller { return slices.Clone(h.controllers) }

func (h *Host) controller(kind string) Controller {
	c := Controller{Name: kind}
	if h.mode == None {
		c.Reason, c.Remedy = "no cgroup is writable", remedyDelegate
		return c
	}
	if h.v2.has(kind) {
		how, err := h.v2.source(kind)
		if err != nil {
			c.Reason, c.Remedy = err.Error(), remedyUnit
			return c
		}
		c.Available, c.Hierarchy, c.Reason = true, "v2", how.note()
		if why := h.v2.oomStops(how.base); kind == "memory" && why != "" {
			c.Reason, c.Remedy = why, remedyUnit+"; or set OOMPolicy=continue for the unit"
		}
		return c
	}
	if l := h.onV1(kind); l != nil {
		return Controller{Name: kind, Available: true, Hierarchy: "v1"}
	}
	c.Reason = "no writable hierarchy carries it"
	c.Remedy = "run as root; for an ordinary user: systemctl edit user@.service, [Service] Delegate=cpu cpuset io memory pids"
	if os.Geteuid() == 0 {
		c.Remedy = "enable it in cgroup.subtree_control of the cgroups above this container or service; if the host has it on cgroup v1, boot the host with systemd.unified_cgroup_hierarchy=1"
	}
	if h.v2 != nil && len(h.v1) == 0 {
		c.Reason = fmt.Sprintf("%s does not list it in cgroup.controllers", h.v2.own)
		if h.v2.delegable(kind) {
			c.Remedy = remedyUnit
		}
	}
	return c
}

// onV1 returns the writable v1 hierarchy of a controller, by its v2 name.
func (h *Host) onV1(kind string) *hierarchy {
	name := kind
	if kind == "io" {
		name = "blkio"
	}
	for _, l := range h.v1 {
		if l.has(name) {
			return l
		}
	}
	return nil
}

// useful tells whether a v1 hierarchy limits or counts something, or, without cgroup2,
// can hold all of a session's processes.
func (l *hierarchy) useful(beside2 bool) bool {
	of := []string{"memory", "pids", "cpu", "blkio"}
	if !beside2 {
		of = append(of, "cpuacct", "freezer")
	}
	return slices.ContainsFunc(l.controllers, func(c string) bool { return slices.Contains(of, c) })
}

// writable tries to make the cgroup in the runner's own in which the sessions are, and
// whether processes may be put there: that needs write access to the own cgroup.procs,
// the common ancestor's (cgroup-v2.rst, "Delegation Containment").
func (h *Host) writable(l *hierarchy) error {
	dir := filepath.Join(l.own, parentName)
	err := makeDir(dir)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err == nil {
		h.spare = append(h.spare, dir)
	}
	for _, d := range []string{l.own, dir} {
		err := unix.Faccessat(unix.AT_FDCWD, filepath.Join(d, "cgroup.procs"), unix.W_OK, unix.AT_EACCESS)
		if err == unix.ENOENT && d == dir { // another run ended and took it along: it could be made
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot put processes into cgroup %s: %w", d, err)
		}
	}
	if l.v2 {
		// A threaded or invalid domain takes no processes of another one.
		if t := words(filepath.Join(dir, "cgroup.type")); len(t) > 0 && t[0] != "domain" {
			return fmt.Errorf("cannot put processes into cgroup %s: its type is %q", dir, strings.Join(t, " "))
		}
	}
	return nil
}

// Tidy removes what the probe made and no session is in.
func (h *Host) Tidy() {
	h.mu.Lock()
	spare := h.spare
	h.spare = nil
	h.mu.Unlock()
	for _, dir := range spare {
		if h.ours(dir) == 0 {
			_ = unix.Rmdir(dir) // fails if another run has a session there
		}
	}
}

// cloneIntoCgroup tells whether clone3 takes a cgroup, without ever creating
// a process.
var cloneIntoCgroup = sync.OnceValue(tryClone3)
