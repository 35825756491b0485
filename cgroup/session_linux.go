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

// CgroupParent is where container engines on this host can put containers so that
// they are in the session: a path below the root of each hierarchy, "" in mode None.
// They belong to the agent's group.
func (s *Session) CgroupParent() string { return s.backend.CgroupParent() }

// Note keeps a text with the session, for the Sweep that finds it without a runner and a
// guard. There is one text.
func (s *Session) Note(text string) error { return s.backend.Note(text) }

// Apart reports whether containers there are outside of a cgroup v1 hierarchy's part
// of the session, which then neither limits nor counts them: the runner is in
// different cgroups on different hierarchies, and an engine takes one path for all.
func (s *Session) Apart() bool { return s.backend.Apart() }

// NoContainers makes the kernel refuse containers that are not there yet, on
// cgroup2, so that an engine does not start again what is ended.
func (s *Session) NoContainers() { s.backend.NoContainers() }

// Containers are the cgroups that engines made, as paths below CgroupParent.
func (s *Session) Containers() []string { return s.backend.Containers() }

// HadContainers reports whether engines have made any, which may have gone since.
func (s *Session) HadContainers() bool { return s.backend.HadContainers() }

// Unenforced names the limits (memory, pids, cpu) that are not enforced, which
// only Limits.BestEffort allows.
func (s *Session) Unenforced() []string { return s.backend.Unenforced() }

// Usage tells what the session consumed so far; read it before Remove.
func (s *Session) Usage() Usage { return s.backend.Usage() }

// Events tells how often limits struck so far; read it before Remove.
func (s *Session) Events() Events { return s.backend.Events() }

// Left reports whether a process that is moved to a cgroup of a v1 hierarchy leaves what the
// session limits or counts. It gets the hierarchy's number, the cgroup's id (its inode number) and
// its path as the kernel has it. It names the controllers, and reports whether the session has a
// limit of one of them. It is safe for concurrent use.
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

// Guard starts the session's guard: a process in a session of its own, in the
// runner's cgroup or one of its own, with /dev/null for stdio, that
// holds nothing of the runner's but the read end of a pipe, a terminal, if that is not
// nil, and the session's locks: until it is done, the run id is in use. When the
// pipe closes because the runner is gone, it restores the terminal (see
// TerminalChanged), kills the session, waits until it is empty and removes it. Start it
// before the command: once Guard returns, the session cannot outlive the runner.
//
// The guard is not dumpable by the time that Start starts a command: one of the same
// user can kill it, but not look into it or change it.
//
// SIGINT, SIGTERM, SIGHUP and the terminal's other signals do not touch it. Without a
// terminal, and where there is cgroup.kill, Go starts in it only when the runner is gone. The
// error may wrap ErrNoHelper.
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

// concealed waits until the guard, if there is one, is out of a command's reach.
func (s *Session) concealed() {
	s.mu.Lock()
	g := s.guard
	s.mu.Unlock()
	if g != nil {
		g.Concealed()
	}
}

// Frozen reports whether somebody froze the session's cgroup or one above. A command that is started there
// then does not run, and Start does not return.
func (s *Session) Frozen() bool { return s.backend.Frozen() }

// Kill ends every process of the session with SIGKILL, in whatever group and state. It does not wait
// until they are gone.
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

// Start starts a command inside the group: it is a member before its first
// instruction. Everything in cmd means what it means to exec.Cmd.Start, and
// the errors are the same, or wrap ErrNoHelper; cmd.Wait is the caller's. Only, in
// mode None, the command gets a session of its own unless cmd.SysProcAttr asks for
// Setsid or Setpgid itself.
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
	start := func() error { return g.members.Start(cmd, by) }
	if r := g.session.reaper; r != nil {
		return r.Start(cmd, start)
	}
	return start()
}

// Procs lists the live processes of the group, also those in cgroups that they
// made themselves. Zombies are not live, nor are exiting processes.
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

// Signal sends a signal to every member, also to those forked meanwhile, once
// each. A group without members is no error.
func (g *Group) Signal(sig syscall.Signal) error {
	if sig == unix.SIGKILL {
		return g.Kill()
	}
	if err := g.members.Signal(sig); err != nil {
		return fmt.Errorf("group %s: %w", g.name, err)
	}
	return nil
}

// Freeze stops every member where it is, Thaw lets them go on. With cgroup2 or
// a v1 freezer the members cannot tell; in mode None it is SIGSTOP and
// SIGCONT, which their parents see. Freeze does not wait until all stand.
func (g *Group) Freeze() error { return g.members.Freeze(true) }

// Thaw undoes Freeze.
func (g *Group) Thaw() error { return g.members.Freeze(false) }

// Kill ends every member with SIGKILL, whatever state it is in. It does not
// wait until they are gone (Wait does), but none of them can fork any more.
func (g *Group) Kill() error {
	if err := g.members.Kill(); err != nil {
		return fmt.Errorf("kill group %s: %w", g.name, err)
	}
	return nil
}

// Empty reports whether the group has no live member, so that Wait would return at once. Where one
// look cannot show that, as in mode None, it is false.
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

// ErrLeaderGone is returned by Job.Wait when the leader was killed: how the
// command fares cannot be told any more.
var ErrLeaderGone = helper.ErrLeaderGone

// StartJob starts a command as Start does, as the foreground job of a new
// session on the terminal that is cmd.Stdin. cmd.SysProcAttr is the caller's to
// leave alone, and cmd.Process is set, but is no child of ours: Job.Wait tells
// how it fares, not cmd.Wait. Close the job when nothing of the run is left.
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
// WUNTRACED and WCONTINUED; the last one tells how it ended. The error is
// ErrLeaderGone. One goroutine at a time may wait.
func (j *Job) Wait() (unix.WaitStatus, error) { return j.leader.Wait() }

// Close lets the leader go, which hangs up the terminal on whatever of the
// session is left, and waits for it. Later calls do nothing.
func (j *Job) Close() { j.leader.Close() }

// Nested is a cgroup2 below a group's, which only tells its processes from the
// others of the group: they stay members of the group, under the same limits.
// It goes with its session, or before that with Remove.
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

// Guard is the runner's handle of a session's guard process.
type Guard struct {
	helper *helper.Guard
}

// PID is the guard's process id, 0 where this process is process 1 and no cgroup
// is writable: nothing outlives it then, and there is no guard.
func (g *Guard) PID() int { return g.helper.PID() }

// Release tells the guard to go, after Remove. It waits for it only where the
// guard has a cgroup of its own, which goes after it.
func (g *Guard) Release() error { return g.helper.Release() }

// Leave lets the guard do what it does when the runner vanishes: it ends what is
// alive in the session, however long that takes. It is for when Remove failed.
func (g *Guard) Leave() { g.helper.Leave() }

// Exposed reports whether the guard was not concealed in time when a command was
// started: it was stopped, or the host was very busy. Processes of the same user
// could then look into it, or change it, until it was.
func (g *Guard) Exposed() bool { return g.helper.Exposed() }

// TerminalChanged tells the guard that the terminal it was started with is about
// to get settings that are not its own, and which are: should the runner vanish,
// the guard puts own back, unless somebody else has changed them by then. With
// nil for both the terminal has its own settings again. Best effort: a guard
// that is gone is no reason not to run.
func (g *Guard) TerminalChanged(set, own *unix.Termios) { g.helper.TerminalChanged(set, own) }

// Inherit names a directory that the guard removes with all that is in it if the runner vanishes,
// and then the directory above if that is empty. Best effort, as [Guard.TerminalChanged] is.
func (g *Guard) Inherit(dir string) { g.helper.Inherit(dir) }

// Then tells the guard what to become, of this program, once it has ended what a
// vanished runner left: somebody else's role with more to clear up.
func (g *Guard) Then(argv ...string) { g.helper.Then(argv...) }

// Last tells the guard what to run, of this program, should the runner vanish: when
// every process of the session has ended and before the session is removed. The
// guard waits for it.
func (g *Guard) Last(argv ...string) { g.helper.Last(argv...) }

// IsShim reports whether argv is that of the program by which [Group.Start] puts
// a command into a cgroup where clone cannot, and which then becomes the command.
// It does not tell whose program it is: compare the executable.
func IsShim(argv []string) bool { return role.Join.Is(argv) }

// Conceal makes this process not dumpable from here on: its memory, descriptors
// and environment are then out of reach for other processes of the same user,
// unless they have CAP_SYS_PTRACE. What it executes is dumpable again. Core dumps and
// debuggers are ruled out too. The error wraps what prctl(2) says.
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
