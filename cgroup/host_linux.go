package cgroup

import (
	"errors"
	"fmt"
	"strings"

	"github.com/assay-run/assay-run/cgroup/internal/dirs"
	"github.com/assay-run/assay-run/cgroup/internal/helper"
	"github.com/assay-run/assay-run/cgroup/internal/proctree"
)

// Host is what this machine allows. What it offers does not change after
// Probe.
type Host struct {
	dirs *dirs.Host
}

// Probe finds out what this host allows by trying: it makes and removes an
// empty cgroup on every hierarchy. It never fails: a host that allows nothing
// is of mode None.
func Probe() *Host { return &Host{dirs: dirs.Probe()} }

// ProbeForSession is Probe, but keeps the cgroups that it makes, so that NewSession need not
// make most of them again. Call NewSession or Tidy afterwards.
func ProbeForSession() *Host { return &Host{dirs: dirs.ProbeForSession()} }

// Tidy removes what ProbeForSession left.
func (h *Host) Tidy() { h.dirs.Tidy() }

// Mode says what holds a session together here.
func (h *Host) Mode() Mode { return h.dirs.Mode() }

// Usable returns nil, or why no session is possible on this host. If no cgroup is writable, a session needs a /proc of
// this process's own pid namespace.
func (h *Host) Usable() error {
	if h.Mode() != None {
		return nil
	}
	return proctree.Usable()
}

// Reasons say why Mode is not Unified, and which other features are missing. It is empty if none is.
func (h *Host) Reasons() []Reason { return h.dirs.Reasons() }

// Controllers says for memory, pids, cpu and io, in this order, what can be limited and counted.
func (h *Host) Controllers() []Controller { return h.dirs.Controllers() }

// Slices reports whether Limits.Slice can be used: the host has cgroup v2 alone and
// systemd, and this process is root.
func (h *Host) Slices() bool { return h.dirs.Slices() }

// Sweep kills and removes the sessions that dead runners left in the runner's own cgroup and those above it. A live
// runner or guard holds locks on the directories of its session, on every hierarchy, so that Sweep never touches that.
// Sweep continues guards that somebody has stopped, which then end their sessions; in mode None it finds nothing else.
// It finds the guards of this network namespace, in less than a millisecond; SweepAll finds all.
//
// When a session with a Note is empty, Sweep calls last with the session's CgroupParent and the note before it removes
// the session. last may be nil.
func (h *Host) Sweep(last func(parent, note string)) ([]Swept, error) { return h.sweep(false, last) }

// SweepAll is Sweep, but looks for stopped guards among all processes.
func (h *Host) SweepAll(last func(parent, note string)) ([]Swept, error) { return h.sweep(true, last) }

func (h *Host) sweep(everywhere bool, last func(parent, note string)) ([]Swept, error) {
	if last == nil {
		last = func(string, string) {}
	}
	var swept []Swept
	for _, id := range helper.WakeGuards(everywhere) {
		swept = append(swept, Swept{RunID: id, Stopped: true})
	}
	found, err := h.dirs.Sweep(last)
	return append(swept, found...), err
}

// NewSession creates a session with its agent group. The errors to tell apart
// are *LimitError and ErrInUse. The run id becomes a directory name; the
// caller has validated it.
func (h *Host) NewSession(runID string, l Limits) (*Session, error) {
	defer h.Tidy()
	if runID == "" || runID == "." || runID == ".." || strings.ContainsAny(runID, "/\x00\n") {
		return nil, fmt.Errorf("create session: invalid run id %q", runID)
	}
	b, err := h.open(runID, l)
	var limit *LimitError
	if errors.As(err, &limit) {
		return nil, limit
	} else if err != nil {
		return nil, fmt.Errorf("create session %s: %w", runID, err)
	}
	return newSession(runID, b)
}

// open chooses the backend.
func (h *Host) open(runID string, l Limits) (backend, error) {
	if err := h.Usable(); err != nil {
		return nil, err
	}
	if h.Mode() != None {
		s, err := h.dirs.NewSession(runID, l)
		return dirSession{s}, err
	}
	unenforced, err := h.dirs.Refused(l)
	if err != nil {
		return nil, err
	}
	s, err := proctree.NewSession(runID, MarkerKey)
	return treeSession{s, unenforced}, err
}
