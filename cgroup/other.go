//go:build !linux

package cgroup

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// Host is what this machine allows: on this operating system, nothing.
type Host struct{}

// Session cannot be had on this operating system.
type Session struct{}

// Group cannot be had on this operating system.
type Group struct{}

// Guard cannot be had on this operating system.
type Guard struct{}

var errNotLinux = errors.Join(ErrNotSupported, errors.New("cgroups and process trees need Linux"))

func Probe() *Host           { return &Host{} }
func ProbeForSession() *Host { return &Host{} }

func (h *Host) Tidy() {}

func (h *Host) Mode() Mode { return None }

// Usable tells that no session can be had.
func (h *Host) Usable() error { return errNotLinux }

func (h *Host) Reasons() []Reason {
	return []Reason{{Code: "not_linux", Message: "this operating system has no cgroups", Remedy: "run on Linux"}}
}

func (h *Host) Controllers() []Controller {
	var cs []Controller
	for _, k := range []string{"memory", "pids", "cpu", "io"} {
		cs = append(cs, Controller{Name: k, Reason: "this operating system has no cgroups", Remedy: "run on Linux"})
	}
	return cs
}

func (h *Host) Slices() bool                                   { return false }
func (h *Host) NewSession(string, Limits) (*Session, error)    { return nil, errNotLinux }
func (h *Host) Sweep(func(string, string)) ([]Swept, error)    { return nil, nil }
func (h *Host) SweepAll(func(string, string)) ([]Swept, error) { return nil, nil }

func (s *Session) Agent() *Group                   { return &Group{} }
func (s *Session) RunID() string                   { return "" }
func (s *Session) Path() string                    { return "" }
func (s *Session) CgroupParent() string            { return "" }
func (s *Session) Note(string) error               { return nil }
func (s *Session) Apart() bool                     { return false }
func (s *Session) NoContainers()                   {}
func (s *Session) AllowContainers()                {}
func (s *Session) Containers() []string            { return nil }
func (s *Session) HadContainers() bool             { return false }
func (s *Session) Unenforced() []string            { return nil }
func (s *Session) NewGroup(string) (*Group, error) { return nil, errNotLinux }
func (s *Session) Usage() Usage                    { return Usage{} }
func (s *Session) Events() Events                  { return Events{} }
func (s *Session) Guard(*os.File) (*Guard, error)  { return nil, errNotLinux }
func (s *Session) Remove() error                   { return nil }

func (g *Group) Name() string                { return "" }
func (g *Group) Path() string                { return "" }
func (g *Group) ID() uint64                  { return 0 }
func (g *Group) Start(*exec.Cmd) error       { return errNotLinux }
func (g *Group) Procs() ([]Proc, error)      { return nil, errNotLinux }
func (g *Group) Signal(syscall.Signal) error { return errNotLinux }
func (g *Group) Freeze() error               { return errNotLinux }
func (g *Group) Thaw() error                 { return errNotLinux }
func (g *Group) Kill() error                 { return errNotLinux }
func (g *Group) Empty() bool                 { return false }
func (g *Group) Wait(context.Context) error  { return errNotLinux }
func (g *Group) Move(*Group, int, int) error { return errNotLinux }
func (g *Group) TakeContainers(*Group)       {}

// Nested cannot be had on this operating system.
type Nested struct{}

func (g *Group) Nest(string) (*Nested, error) { return nil, errNotLinux }
func (n *Nested) ID() uint64                  { return 0 }
func (n *Nested) Adopt(pid, pidfd int) error  { return errNotLinux }
func (n *Nested) Remove() error               { return nil }

func (g *Guard) PID() int       { return 0 }
func (g *Guard) Release() error { return nil }

// LiftLimits does nothing.
func LiftLimits() {}

// KeepsSignals is false: commands get the signals that Go gives them.
func KeepsSignals() bool { return false }
