package cgroup

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"syscall"

	"github.com/assay-run/assay-run/cgroup/internal/dirs"
	"github.com/assay-run/assay-run/cgroup/internal/procs"
	"github.com/assay-run/assay-run/cgroup/internal/proctree"
)

// backend keeps the processes of a session together. There are two: directories
// of cgroups, and the tree of processes where no cgroup is writable.
type backend interface {
	Path() string
	NewGroup(name string) (members, error)
	CgroupParent() string
	Note(text string) error
	Apart() bool
	NoContainers()
	Containers() []string
	HadContainers() bool
	Unenforced() []string
	Usage() Usage
	Events() Events
	// Orphans reports whether orphans of the session come to this process, and
	// Reap reaps those that are dead.
	Orphans() bool
	Reap(started func(pid int) bool)
	// Ward is what a guard needs to end the session: arguments, descriptors to hold, a cgroup of
	// its own. Report sends it what it needs to know later.
	Ward() (args []string, locks []int, own dirs.GuardDir, err error)
	Report(guard io.Writer)
	// Left reports whether a cgroup of a v1 hierarchy is outside of the session's.
	Left(hierarchy int, id uint64, path string) (controllers string, limited, left bool)
	Frozen() bool
	Kill() error
	Remove() error
}

// members are the processes of a group.
type members interface {
	Path() string
	ID() uint64
	List() ([]int, error)
	Start(*exec.Cmd, procs.Starter) error
	Signal(syscall.Signal) error
	Freeze(on bool) error
	Kill() error
	Empty() bool
	Wait(context.Context) error
	Nest(name string) (*Nested, error)
}

type dirSession struct{ *dirs.Session }

func (s dirSession) NewGroup(name string) (members, error) { return s.Session.NewGroup(name) }
func (s dirSession) Report(io.Writer)                      {}

func (s dirSession) Ward() ([]string, []int, dirs.GuardDir, error) {
	own, err := s.GuardDir()
	return s.GuardArgs(own), s.Locks(), own, err
}

type treeSession struct {
	*proctree.Session
	unenforced []string
}

func (s treeSession) Path() string         { return "" }
func (s treeSession) CgroupParent() string { return "" }
func (s treeSession) Note(string) error    { return nil }
func (s treeSession) Apart() bool          { return false }
func (s treeSession) NoContainers()        {}
func (s treeSession) Containers() []string { return nil }
func (s treeSession) HadContainers() bool  { return false }
func (s treeSession) NewGroup(name string) (members, error) {
	return treeGroup{s.Session.NewGroup()}, nil
}
func (s treeSession) Unenforced() []string { return slices.Clone(s.unenforced) }
func (s treeSession) Usage() Usage         { return Usage{} }
func (s treeSession) Events() Events       { return Events{} }
func (s treeSession) Left(int, uint64, string) (string, bool, bool) {
	return "", false, false
}
func (s treeSession) Frozen() bool        { return false }
func (s treeSession) Orphans() bool       { return true }
func (s treeSession) Reap(func(int) bool) { s.Session.Reap() }

func (s treeSession) Ward() ([]string, []int, dirs.GuardDir, error) {
	args, err := s.GuardArgs()
	return args, s.Locks(), dirs.GuardDir{}, err
}

type treeGroup struct{ *proctree.Group }

// Empty reports false, because a scan of /proc can miss a process.
func (g treeGroup) Empty() bool { return false }

func (g treeGroup) Nest(string) (*Nested, error) {
	return nil, fmt.Errorf("no cgroup is writable: %w", ErrNotSupported)
}
