package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/dirs"
	"github.com/assay-run/assay-run/cgroup/internal/helper"
	"github.com/assay-run/assay-run/cgroup/internal/procs"
	"github.com/assay-run/assay-run/cgroup/internal/proctree"
	"github.com/assay-run/assay-run/cgroup/role"
	"github.com/assay-run/assay-run/cgroup/steps"
)

// Session is one run's processes.
type Session struct {
	runID   string
	backend backend
	agent   *Group
	reaper  *helper.Reaper // nil where orphans go elsewhere

	mu      sync.Mutex
	guard   *helper.Guard // nil until Guard
	removed bool
}

func newSession(runID string, b backend) (_ *Session, err error) {
	s := &Session{runID: runID, backend: b}
	if s.agent, err = s.NewGroup("agent"); err != nil {
		_ = s.Remove()
		return nil, err
	}
	if b.Orphans() {
		s.reaper = helper.NewReaper(b.Reap)
	}
	return s, nil
}

// Agent is the group of the command of the run.
func (s *Session) Agent() *Group { return s.agent }

// RunID is the id that the session was created with.
func (s *Session) RunID() string { return s.runID }

// Path is the session's directory on the primary hierarchy, "" in mode None.
func (s *Session) Path() string { return s.backend.Path() }

// CgroupParent is the cgroup in which container engines on this host can put containers so that they are in the
// session: a path below the root of each hierarchy, "" in mode None. The containers belong to the agent's group.
func (s *Session) CgroupParent() string { return s.backend.CgroupParent() }

// Note stores a text with the session, for the Sweep that finds the session after runner and guard have died. It
// replaces an earlier text.
func (s *Session) Note(text string) error { return s.backend.Note(text) }

// Apart reports whether containers in CgroupParent are outside of the session on a v1 hierarchy, which then neither
// limits nor counts them. This happens if the runner is in different cgroups on different hierarchies, because an
// engine uses one path for all.
func (s *Session) Apart() bool { return s.backend.Apart() }

// NoContainers makes the kernel refuse new containers in the session, so that an engine does not restart those that
// are being ended. It needs cgroup2.
func (s *Session) NoContainers() { s.backend.NoContainers() }

// AllowContainers undoes NoContainers.
func (s *Session) AllowContainers() { s.backend.AllowContainers() }

// Containers are the cgroups that engines made, as paths below CgroupParent.
func (s *Session) Containers() []string { return s.backend.Containers() }

// HadContainers reports whether engines have made any, even if they are gone.
func (s *Session) HadContainers() bool { return s.backend.HadContainers() }

// Unenforced names the limits (memory, pids, cpu) that are not enforced, which
// only Limits.BestEffort allows.
func (s *Session) Unenforced() []string { return s.backend.Unenforced() }

// Usage returns what the session consumed so far. Call it before Remove.
func (s *Session) Usage() Usage { return s.backend.Usage() }

// Events returns how often limits were hit so far. Call it before Remove.
func (s *Session) Events() Events { return s.backend.Events() }

// Left reports whether a process that moves to this cgroup of a v1 hierarchy leaves the session there, so that it is no
// longer limited or counted. The arguments are the hierarchy's number, the cgroup's id (its inode number) and its path
// as the kernel reports it. controllers names the hierarchy's controllers; limited reports whether the session has a
// limit that needs one of them. Left is safe for concurrent use.
func (s *Session) Left(hierarchy int, id uint64, path string) (controllers string, limited, left bool) {
	return s.backend.Left(hierarchy, id, path)
}

// NewGroup adds a group beside the agent's, under the same limits. The name
// becomes a directory name.
func (s *Session) NewGroup(name string) (*Group, error) {
	if !validName(name) {
		return nil, fmt.Errorf("create group: invalid name %q", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return nil, fmt.Errorf("create group %s: session %s is removed", name, s.runID)
	}
	m, err := s.backend.NewGroup(name)
	if err != nil {
		return nil, fmt.Errorf("create group %s: %w", name, err)
	}
	return &Group{session: s, name: name, members: m}, nil
}

// validName reports whether a group may have the name, which becomes a directory's.
func validName(name string) bool {
	return name != "" && name[0] != '.' && !strings.ContainsAny(name, "/\x00\n")
}

// Guard starts the session's guard. Start it before the command: once Guard returns, the session cannot outlive the
// runner. The error may wrap ErrNoHelper.
//
// The guard is a process in a session (setsid) of its own, in the runner's cgroup or one of its own, with /dev/null for
// stdio. It holds the read end of a pipe from the runner, the terminal if that is not nil, and the session's locks, so
// that the run id is in use until the guard has finished. When the pipe closes because the runner is gone, the guard
// restores the terminal (see TerminalChanged), kills the session, waits until it is empty and removes it.
//
// The guard is not dumpable when Start starts a command: a process of the same user can kill it, but cannot read or
// change its memory. It ignores SIGINT, SIGTERM, SIGHUP and the terminal's other signals. Without a terminal, and if
// the kernel has cgroup.kill, its Go runtime starts only when the runner is gone.
func (s *Session) Guard(terminal *os.File) (*Guard, error) {
	args, locks, own, err := s.backend.Ward()
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	g, err := helper.StartGuard(s.runID, args, terminal, locks, own)
	if err != nil {
		return nil, fmt.Errorf("start guard: %w", err)
	}
	s.backend.Report(g)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard = g
	return &Guard{g}, nil
}

// concealed waits until a command cannot look into the guard any more, if there is one.
func (s *Session) concealed() {
	s.mu.Lock()
	g := s.guard
	s.mu.Unlock()
	if g != nil {
		g.Concealed()
	}
}

// Frozen reports whether the session's cgroup or one above it is frozen. A command that is started there does not run,
// and Start does not return.
func (s *Session) Frozen() bool { return s.backend.Frozen() }

// Kill kills every process of the session in all groups. It does not wait until they are gone.
func (s *Session) Kill() error { return s.backend.Kill() }

// Remove kills what is left in the session and removes it from every
// hierarchy, with all cgroups that were made inside. It returns when they are
// gone. Removing twice is no error.
func (s *Session) Remove() error {
	if s.reaper != nil {
		s.reaper.Stop()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed {
		return nil
	}
	if err := s.backend.Remove(); err != nil {
		return fmt.Errorf("remove session %s: %w", s.runID, err)
	}
	s.removed = true
	return nil
}

// Group is one set of processes of a session.
type Group struct {
	session *Session
	name    string
	members members
}

// Name is the name that the group was created with.
func (g *Group) Name() string { return g.name }

// Path is the group's directory on the primary hierarchy, "" in mode None.
func (g *Group) Path() string { return g.members.Path() }

// ID is the group's cgroup2 id as BPF programs see it, which is the inode
// number of its directory; 0 without cgroup2.
func (g *Group) ID() uint64 { return g.members.ID() }

// Start starts a command inside the group: it is a member before its first instruction. The caller calls cmd.Wait.
// The fields of cmd mean what they mean to exec.Cmd.Start, except that in mode None the command gets a session of its
// own unless cmd.SysProcAttr has Setsid or Setpgid. The errors are those of exec.Cmd.Start, or wrap ErrNoHelper.
func (g *Group) Start(cmd *exec.Cmd) error {
	fork := (*exec.Cmd).Start
	return g.start(cmd, procs.Starter{
		Fork: fork,
		Join: func(cmd *exec.Cmd, files []string) error { return helper.Join(cmd, files, fork) },
	})
}

func (g *Group) start(cmd *exec.Cmd, by procs.Starter) error {
	if cmd.Process != nil {
		return errors.New("exec: already started")
	}
	g.session.concealed()
	start := func() error {
		return helper.AsCaller(cmd, func() error { return g.members.Start(cmd, by) })
	}
	if r := g.session.reaper; r != nil {
		return r.Start(cmd, start)
	}
	return start()
}

// Procs lists the live processes of the group, including those in cgroups that they made themselves. Zombies and
// exiting processes are not live.
func (g *Group) Procs() ([]Proc, error) {
	pids, err := g.members.List()
	if err != nil {
		return nil, err
	}
	ps := []Proc{}
	for _, pid := range pids {
		if st, ok := procs.Read(pid); ok && st.Ending() {
			continue
		}
		comm, _ := procs.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
		ps = append(ps, Proc{PID: pid, Name: string(bytes.TrimSuffix(comm, []byte("\n")))})
	}
	return ps, nil
}

// Signal sends a signal to every member once, including those that are forked meanwhile. It is no error if the group
// has no members.
func (g *Group) Signal(sig syscall.Signal) error {
	if sig == unix.SIGKILL {
		return g.Kill()
	}
	if err := g.members.Signal(sig); err != nil {
		return fmt.Errorf("group %s: %w", g.name, err)
	}
	return nil
}

// Freeze stops every member; Thaw continues them. With cgroup2 or a v1 freezer, the members cannot notice it. In mode
// None, Freeze sends SIGSTOP and Thaw SIGCONT, which the members' parents can see. Freeze does not wait until all
// members have stopped.
func (g *Group) Freeze() error { return g.members.Freeze(true) }

// Thaw undoes Freeze.
func (g *Group) Thaw() error { return g.members.Freeze(false) }

// Kill kills every member. It does not wait until they are gone (Wait does), but none of them can fork any more.
func (g *Group) Kill() error {
	if err := g.members.Kill(); err != nil {
		return fmt.Errorf("kill group %s: %w", g.name, err)
	}
	return nil
}

// Empty reports whether the group has no live member, so that Wait would return at once. It is false if that needs more
// than one look, as in mode None.
func (g *Group) Empty() bool { return g.members.Empty() }

// Wait returns when the group has no live member, or with ctx's error. It
// sleeps on the members' exits and does not poll.
func (g *Group) Wait(ctx context.Context) error { return g.members.Wait(ctx) }

// Job is a command that runs the way a shell runs one: in a process group of
// its own, in the foreground of its terminal, with a parent in the same session.
//
// The parent is a re-exec of this binary, the leader. It leads the terminal's
// session in place of a shell, and is in none of the run's cgroups. POSIX needs
// it: a group whose members all have their parents in another session is
// orphaned, and the kernel then ignores SIGTSTP, SIGTTIN and SIGTTOU in it
// (is_current_pgrp_orphaned, kernel/exit.c), so that no program could suspend.
type Job struct {
	leader *helper.Leader
}

// ErrLeaderGone is returned by Job.Wait when the leader was killed: the command's state is then unknown.
var ErrLeaderGone = helper.ErrLeaderGone

// StartJob starts a command as Start does, as the foreground job of a new session on the terminal that is cmd.Stdin.
// The caller must not set cmd.SysProcAttr. cmd.Process is set, but is not a child of this process: use Job.Wait, not
// cmd.Wait. Close the job when nothing of the run is left.
func (g *Group) StartJob(cmd *exec.Cmd) (*Job, error) {
	j := &Job{&helper.Leader{}}
	fork := func(cmd *exec.Cmd) error { return j.leader.Fork(cmd, nil, nil) }
	err := g.start(cmd, procs.Starter{
		Fork:   fork,
		Join:   func(cmd *exec.Cmd, files []string) error { return helper.Join(cmd, files, fork) },
		Thread: j.leader.Fork,
	})
	if err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

// Wait returns the next change of the command's state, as wait4(2) with
// WUNTRACED and WCONTINUED; the last change is how it ended. The error is
// ErrLeaderGone. Only one goroutine may wait at a time.
func (j *Job) Wait() (unix.WaitStatus, error) { return j.leader.Wait() }

// Close ends the leader and waits for it. This hangs up the terminal for the processes that are left in its session.
// Later calls do nothing.
func (j *Job) Close() { j.leader.Close() }

// Nested is a cgroup2 directory below a group's, which distinguishes its processes from the others of the group. They
// stay members of the group, under the same limits. Remove removes it, or its session's Remove does.
type Nested = dirs.Nested

// Nest makes a cgroup below the group's. The error wraps ErrNotSupported where
// the session has no cgroup2 directory of its own. The name becomes a
// directory name.
func (g *Group) Nest(name string) (*Nested, error) {
	if !validName(name) {
		return nil, fmt.Errorf("create nested group: invalid name %q", name)
	}
	n, err := g.members.Nest(name)
	if err != nil {
		return nil, fmt.Errorf("create nested group %s: %w", name, err)
	}
	return n, nil
}

// Move moves the process of pidfd, whose id here is pid, to another group of the session. The error wraps
// ErrNotSupported where no cgroup is writable, and ErrNotMember if the process is not in the group or ends meanwhile.
func (g *Group) Move(to *Group, pid, pidfd int) error {
	if err := g.members.Move(to.members, pid, pidfd); err != nil {
		return fmt.Errorf("move a process to group %s: %w", to.name, err)
	}
	return nil
}

// TakeContainers makes the processes of containers, where their engine has put them, members of this group, and no more
// of the agent's. The agent's group is the first of the session.
func (g *Group) TakeContainers(agent *Group) { g.members.TakeContainers(agent.members) }

// Guard is the runner's handle of a session's guard process.
type Guard struct {
	helper *helper.Guard
}

// PID is the guard's process id. It is 0 if this process is process 1 and no cgroup is writable: no process outlives
// this one then, so there is no guard.
func (g *Guard) PID() int { return g.helper.PID() }

// Release ends the guard; call it after Remove. It waits for the guard only if that has a cgroup of its own, and then
// removes the cgroup.
func (g *Guard) Release() error { return g.helper.Release() }

// Leave makes the guard do what it does if the runner dies: it ends what is alive in the session, however long that
// takes. Call it if Remove failed.
func (g *Guard) Leave() { g.helper.Leave() }

// Exposed reports whether the guard was still dumpable when a command was started, because it was stopped or the host
// was very busy. Until it was not, processes of the same user could read or change its memory.
func (g *Guard) Exposed() bool { return g.helper.Exposed() }

// TerminalChanged tells the guard that its terminal is about to get the settings set instead of its own settings, own.
// If the runner dies, the guard restores own, unless somebody has changed the settings since. Nil for both means that
// the terminal has its own settings again. Errors are ignored: a run goes on without its guard.
func (g *Guard) TerminalChanged(set, own *unix.Termios) { g.helper.TerminalChanged(set, own) }

// Inherit names a directory that the guard removes with its contents if the runner dies. The guard then removes the
// directory above, if that is empty. Errors are ignored, as in [Guard.TerminalChanged].
func (g *Guard) Inherit(dir string) { g.helper.Inherit(dir) }

// Then gives the guard an argument vector with which it executes this program, after a dead runner's session has ended:
// another role with more to clean up.
func (g *Guard) Then(argv ...string) { g.helper.Then(argv...) }

// Last gives the guard an argument vector with which it runs this program if the runner dies: when every process of the
// session has ended, and before the session is removed. The guard waits for it.
func (g *Guard) Last(argv ...string) { g.helper.Last(argv...) }

// IsShim reports whether argv is that of a helper with which [Group.Start] puts a command into a cgroup if clone
// cannot, or gives it what this process got from its caller, and which then becomes the command. Any program can
// have such an argv: also compare the executable.
func IsShim(argv []string) bool { return role.Join.Is(argv) || helper.IsAsCaller(argv) }

// AsCaller calls start to start a command outside of any group, with the ignored and blocked signals that this process
// got from its caller, as [Group.Start] starts one.
func AsCaller(cmd *exec.Cmd, start func() error) error { return helper.AsCaller(cmd, start) }

// KeepsSignals reports whether commands get the ignored and blocked signals of this process's caller: the program was
// linked with the entry point of package steps.
func KeepsSignals() bool { _, _, known := steps.AtStart(); return known }

// LiftLimits raises this process's own soft limits of file sizes and CPU time to the hard ones, so that the kernel does
// not signal a runner for what its caller meant for the command. Commands that [Group.Start] starts still get the
// former limits, unless this process cannot start helpers.
func LiftLimits() { helper.LiftLimits() }

// RemoveTree is os.RemoveAll for a tree with directories that their owner may not enter or change, such as Go's module
// cache. It is how a guard removes what it inherits.
func RemoveTree(dir string) error { return helper.RemoveTree(dir) }

// Conceal makes this process not dumpable. Other processes of the same user then cannot read or change its memory,
// descriptors and environment, unless they have CAP_SYS_PTRACE. There are no core dumps, and debuggers cannot attach. A
// program that it executes is dumpable again. The error wraps that of prctl(2).
func Conceal() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make this process not dumpable: %w", err)
	}
	return nil
}

// backend keeps the processes of a session together. There are two: directories
// of cgroups, and the tree of processes where no cgroup is writable.
type backend interface {
	Path() string
	NewGroup(name string) (members, error)
	CgroupParent() string
	Note(text string) error
	Apart() bool
	NoContainers()
	AllowContainers()
	Containers() []string
	HadContainers() bool
	Unenforced() []string
	Usage() Usage
	Events() Events
	// Orphans reports whether orphans of the session become children of this process. Reap reaps the dead ones.
	Orphans() bool
	Reap(started func(pid int) bool)
	// Ward returns what a guard needs to end the session: arguments, descriptors to hold, and a cgroup of its own.
	// Report makes the backend send the guard what it needs to know later.
	Ward() (args []string, locks []int, own dirs.GuardDir, err error)
	Report(guard io.Writer)
	// Left is Session.Left.
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
	// Move is Group.Move, and TakeContainers is Group.TakeContainers.
	Move(to members, pid, pidfd int) error
	TakeContainers(agent members)
}

type dirSession struct{ *dirs.Session }

func (s dirSession) Report(io.Writer) {}

func (s dirSession) NewGroup(name string) (members, error) {
	g, err := s.Session.NewGroup(name)
	return dirGroup{g}, err
}

type dirGroup struct{ *dirs.Group }

func (g dirGroup) Move(to members, pid, pidfd int) error {
	return g.Group.Move(to.(dirGroup).Group, pid, pidfd)
}

func (g dirGroup) TakeContainers(agent members) { g.Group.TakeContainers(agent.(dirGroup).Group) }

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
func (s treeSession) AllowContainers()     {}
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

var errNoCgroup = fmt.Errorf("no cgroup is writable: %w", ErrNotSupported)

func (g treeGroup) Nest(string) (*Nested, error) { return nil, errNoCgroup }
func (g treeGroup) Move(members, int, int) error { return errNoCgroup }
func (g treeGroup) TakeContainers(members)       {}
