package proctree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Group is the processes of one group.
//
// A member is known by descent from a known member, by the marker in its
// environment, by the limit that marks the run (see limitMark), or by the
// session id of a known member. A child of the runner that is none of these
// and in a session of its own was adopted: see heir.
type Group struct {
	marker []byte
	mark   uint64     // see limitMark
	runner procs.Stat // as it was when the group was made; it may have ended since
	order  int        // among the groups of its session: the agent's is the first

	// All below is guarded by forest.
	open      bool           // something was started in it, and it was not seen to be empty since
	condemned map[int]uint64 // once it was killed: those that were, pid -> start time
	started   map[int]bool   // pids that belong to an exec.Cmd: never reaped here
	known     map[int]uint64 // live members: pid -> start time
	sids      map[int]bool   // sessions (setsid) of members, the runner's excluded
	foreign   map[int]uint64 // looked at and found not to be members
	guard     io.Writer      // gets the processes that Start started; nil without a guard
}

// forest is the live groups of this process.
var forest struct {
	sync.Mutex
	groups map[*Group]bool
}

// heir reports whether orphans of unknown origin belong to the group: it is the first group of its session that has
// members, and no other session has any.
func (g *Group) heir() bool {
	for other := range forest.groups {
		if other != g && other.open && (other.order < g.order || !bytes.Equal(other.marker, g.marker)) {
			return false
		}
	}
	return true
}

// newGroup is a group of this process or, in the guard, of the runner.
func newGroup(marker string, runner procs.Stat) *Group {
	return &Group{
		marker: []byte(marker), mark: limitMark(marker), runner: runner,
		started: map[int]bool{}, known: map[int]uint64{}, sids: map[int]bool{}, foreign: map[int]uint64{},
	}
}

// this is the calling process.
func this() procs.Stat {
	self, ok := procs.Read(os.Getpid())
	if !ok {
		self = procs.Stat{PID: os.Getpid(), Start: math.MaxUint64} // without /proc there is no scan either
	}
	return self
}

// Path is empty: there is no directory.
func (g *Group) Path() string { return "" }

// ID is 0: there is no cgroup.
func (g *Group) ID() uint64 { return 0 }

// List returns the pids of the live members.
func (g *Group) List() ([]int, error) { return g.list(), nil }

// Signal sends a signal to every member, also to those forked meanwhile.
func (g *Group) Signal(sig unix.Signal) error { return procs.Signal(g.list, sig) }

// Freeze stops or continues every member, which their parents can see.
func (g *Group) Freeze(on bool) error {
	if on {
		return g.Signal(unix.SIGSTOP)
	}
	return g.Signal(unix.SIGCONT)
}

// Start starts a command in the group. The command gets a session of its own
// unless it asks for one, or for a process group, itself.
func (g *Group) Start(cmd *exec.Cmd, by procs.Starter) error {
	attr, restore := procs.Attributes(cmd)
	defer restore()
	if !attr.Setpgid {
		attr.Setsid = true
	}
	forest.Lock() // nobody looks between the fork and the entry here
	defer forest.Unlock()
	if err := withMark(g.mark, func() error { return by.Fork(cmd) }); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	g.started[pid], g.open, g.condemned = true, true, nil
	if st, ok := procs.Read(pid); ok {
		g.known[pid] = st.Start
		if st.SID != g.runner.SID {
			g.sids[st.SID] = true
		}
		g.tell(pid)
	}
	return nil
}

// report makes the group tell a guard of its processes.
func (g *Group) report(guard io.Writer) {
	forest.Lock()
	defer forest.Unlock()
	g.guard = guard
	for pid := range g.known {
		g.tell(pid)
	}
}

// tell ignores errors: a run goes on without its guard.
func (g *Group) tell(pid int) {
	if g.guard != nil {
		fmt.Fprintf(g.guard, "p %d %d\n", pid, g.known[pid])
	}
}

// occupied reports whether something was started in the group, and the group was not seen empty since.
func (g *Group) occupied() bool {
	forest.Lock()
	defer forest.Unlock()
	return g.open
}

// forget ends the group's part in telling whose a process is.
func (g *Group) forget() {
	forest.Lock()
	defer forest.Unlock()
	delete(forest.groups, g)
}

// children asks the kernel whether this process has any child, by waitid(2), which changes nothing.
// Unlike a scan of /proc, it misses no process that forks meanwhile. dead is a child that has ended,
// or 0.
func children() (dead int, any bool) {
	var info struct {
		signo, errno, code int32
		child              struct {
			_   [0]uintptr
			pid int32
		}
		_ [128]byte
	}
	for {
		err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)),
			unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			return int(info.child.pid), !errors.Is(err, unix.ECHILD)
		}
	}
}

// ours reports whether a child of this process belongs or belonged to a session: it is not a helper, not a command of
// another group, and not a process that this program started by itself, which is in this program's own session.
func (g *Group) ours(st procs.Stat) bool {
	if st.PPID != os.Getpid() || helpers.pids[st.PID] {
		return false
	}
	_, known := g.known[st.PID]
	return known || st.SID != g.runner.SID
}

// reap reaps a dead child unless its exit status is for somebody else, and reports whether it did.
func (g *Group) reap(pid int) bool {
	st, ok := procs.Read(pid)
	if !ok || !g.ours(st) || startedByUs(pid) {
		return false
	}
	got, _ := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return got == pid
}

// settled reports whether nothing of the group is alive, after a scan has found nobody. Every live
// member is a child of this process, its subreaper, or descends from one, so without children there is
// certainly no member. If this process has other children, such as a job's leader, the scan of /proc
// decides.
func (g *Group) settled() bool {
	forest.Lock()
	defer forest.Unlock()
	if !g.heir() {
		return true // another part of the program waits for a child of unknown origin
	}
	for range maxReaped {
		dead, any := children()
		if !any {
			return true
		}
		helpers.Lock()
		reaped := dead != 0 && g.reap(dead)
		helpers.Unlock()
		if !reaped {
			return g.others()
		}
	}
	return false
}

const maxReaped = 10_000

// others reports whether this process has children, and none of them is the group's.
func (g *Group) others() bool {
	helpers.Lock()
	defer helpers.Unlock()
	found := false
	for _, st := range procs.All() {
		if st.PPID != os.Getpid() {
			continue
		}
		if found = true; g.ours(st) && !startedByUs(st.PID) {
			return false
		}
	}
	return found
}

// Elsewhere runs f, which starts a process and waits for it, so that what that process leaves behind
// does not become a child of this one; otherwise this process would always have children. It returns
// false if this process has other sessions, whose orphans would be lost, or if orphans have no other
// subreaper.
func Elsewhere(f func(*exec.Cmd) error, cmd *exec.Cmd) (bool, error) {
	forest.Lock()
	defer forest.Unlock()
	if os.Getpid() == 1 {
		return false, nil
	}
	for g := range forest.groups {
		if g.open {
			return false, nil
		}
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }()
	return true, f(cmd)
}

const (
	// killTime bounds how long Kill goes after what forks faster than it is found.
	killTime = time.Second
	// ahead is how many process ids after that of a dead one are looked at.
	ahead = 16
)

// huntTime is how long each round of Wait does so after a Kill. Tests change it.
var huntTime = 100 * time.Millisecond

// Kill ends every member that it finds, for at most a second. Wait ends those that it did not find.
func (g *Group) Kill() error {
	forest.Lock()
	g.condemned = map[int]uint64{}
	forest.Unlock()
	g.hunt(killTime)
	return nil
}

// Wait returns when the group has no live member, or with ctx's error.
func (g *Group) Wait(ctx context.Context) error {
	err := procs.Wait(ctx, g.remaining)
	if err == nil {
		forest.Lock()
		g.open, g.condemned = false, nil
		forest.Unlock()
	}
	return err
}

// nobodyKnown stands for members that exist but were not found.
const nobodyKnown = -1

// remaining lists the live members. It is empty only if there is certainly none. After a Kill, it lists only what was
// killed: a member that came since the hunt does not end by itself, so the next round has to look again at once.
func (g *Group) remaining() []int {
	forest.Lock()
	condemned := g.condemned != nil
	forest.Unlock()
	if condemned {
		g.hunt(huntTime)
	}
	if live := g.list(); len(live) > 0 {
		if condemned && !g.struck(live) {
			return []int{nobodyKnown}
		}
		return live
	}
	if !g.settled() {
		return []int{nobodyKnown}
	}
	return nil
}

// struck reports whether each of these members was killed.
func (g *Group) struck(pids []int) bool {
	forest.Lock()
	defer forest.Unlock()
	for _, pid := range pids {
		if start, ok := g.condemned[pid]; !ok || start != g.known[pid] {
			return false
		}
	}
	return true
}

// hunt kills until two scans in a row find no process that was not killed yet, or until the time
// limit. A process that forks and exits at once is gone before a scan of /proc reaches its child.
// But this process learns of its end at once, and finds the child, which is now its own child,
// under one of the next process ids.
func (g *Group) hunt(limit time.Duration) {
	end := time.Now().Add(limit)
	for quiet := 0; quiet < 2 && time.Now().Before(end); {
		forest.Lock()
		found, any := g.strike()
		forest.Unlock()
		switch {
		case !any:
			return
		case found:
			quiet = 0
		default:
			quiet++
		}
	}
}

// strike kills the members that it finds. found reports whether one of them was new, or whether a process has died; any
// is false if no member is left.
func (g *Group) strike() (found, any bool) {
	if g.runner.PID == os.Getpid() {
		dead, any := children()
		if !any {
			return false, false
		}
		if dead != 0 && g.follow(dead) {
			return true, true
		}
	}
	for _, pid := range g.look() {
		if st, ok := procs.Read(pid); ok && g.known[pid] == st.Start {
			found = g.execute(st) || found
		}
	}
	return found, true
}

// follow kills those children of ours that began just after one that has died, and reaps the dead
// one. It reports whether that was ours to reap.
func (g *Group) follow(dead int) bool {
	helpers.Lock()
	defer helpers.Unlock()
	for pid := dead + 1; pid <= dead+ahead && g.heir(); pid++ {
		if st, ok := procs.Read(pid); ok && g.ours(st) && !g.anothers(st) && leads(pid) {
			g.execute(st)
		}
	}
	return g.reap(dead)
}

// execute kills a process, once, and reports whether this was the first time. The descriptor makes sure that
// it is still the one that was looked at.
func (g *Group) execute(st procs.Stat) (first bool) {
	if g.condemned[st.PID] == st.Start || st.Dead() {
		return false
	}
	switch fd, err := unix.PidfdOpen(st.PID, 0); {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // an old kernel, a filter
		_ = unix.Kill(st.PID, unix.SIGKILL)
	case err != nil:
		return false
	default:
		defer unix.Close(fd)
		if now, ok := procs.Read(st.PID); !ok || now.Start != st.Start ||
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) != nil {
			return false
		}
	}
	g.condemned[st.PID] = st.Start
	return true
}

// anothers reports whether another group knows a process.
func (g *Group) anothers(st procs.Stat) bool {
	for other := range forest.groups {
		if start, known := other.known[st.PID]; other != g && (known && start == st.Start || other.sids[st.SID]) {
			return true
		}
	}
	return false
}

// leads reports whether pid is a process and not one of its threads, which /proc
// shows by their numbers as well, without listing them.
func leads(pid int) bool {
	b, err := procs.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err == nil && bytes.Contains(b, []byte("\nTgid:\t"+strconv.Itoa(pid)+"\n"))
}

// list finds the live members now. It also reaps members that the runner
// adopted and that have died.
func (g *Group) list() []int {
	forest.Lock()
	defer forest.Unlock()
	return g.look()
}

func (g *Group) look() []int {
	heir := g.heir()
	return g.scan(func(st procs.Stat) bool {
		return heir && st.PPID == g.runner.PID && !helpers.pids[st.PID]
	})
}

// scan looks through /proc. A process that began before the runner, or that is in the runner's session and has no other
// sign of a member, is never a member: a stranger that is taken for one would be killed. adopted decides about
// processes without any sign that are in another session (setsid) than the runner.
func (g *Group) scan(adopted func(procs.Stat) bool) []int {
	helpers.Lock()
	defer helpers.Unlock()
	all := procs.All()
	for pid, start := range g.known {
		if st, ok := all[pid]; !ok || st.Start != start {
			delete(g.known, pid)
			delete(g.started, pid)
		}
	}
	for pid, start := range g.foreign {
		if st, ok := all[pid]; !ok || st.Start != start {
			delete(g.foreign, pid)
		}
	}
	g.keepSessions(all)
	var order []procs.Stat
	for _, st := range all {
		order = append(order, st)
	}
	slices.SortFunc(order, func(a, b procs.Stat) int { return int(int64(a.Start) - int64(b.Start)) })
	for changed := true; changed; {
		changed = false
		for _, st := range order {
			if _, ok := g.known[st.PID]; ok || st.PID == g.runner.PID || st.PID == os.Getpid() ||
				helpers.pids[st.PID] || st.Start < g.runner.Start {
				continue
			}
			_, child := g.known[st.PPID]
			if child || g.sids[st.SID] || !g.belongsToAnother(st, all) &&
				(g.marked(st) || st.SID != g.runner.SID && adopted(st)) {
				g.known[st.PID] = st.Start
				if st.SID != g.runner.SID {
					g.sids[st.SID] = true
				}
				changed = true
			}
		}
	}
	var live []int
	for pid := range g.known {
		st := all[pid]
		if !st.Dead() {
			if st.SID != g.runner.SID {
				g.sids[st.SID] = true
			}
			live = append(live, pid)
		} else if st.PPID == os.Getpid() && g.runner.PID == os.Getpid() && !startedByUs(pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
	slices.Sort(live)
	return live
}

// keepSessions forgets the session ids that no live member is in any more: the
// kernel may give such a number to somebody else.
func (g *Group) keepSessions(all map[int]procs.Stat) {
	held := map[int]bool{}
	for pid := range g.known {
		held[all[pid].SID] = true
	}
	for sid := range g.sids {
		if !held[sid] {
			delete(g.sids, sid)
		}
	}
}

// belongsToAnother reports whether a process belongs to another group. Groups of one session have the same marks. A
// process that descends from another group's members, or is in a session of theirs, belongs to that group. Orphans of
// unknown origin belong to the heir.
func (g *Group) belongsToAnother(st procs.Stat, all map[int]procs.Stat) bool {
	for other := range forest.groups {
		if other == g {
			continue
		}
		if other.sids[st.SID] || other.open && other.order < g.order && bytes.Equal(other.marker, g.marker) {
			return true
		}
		for p, ok := st, true; ok && p.PID != g.runner.PID; p, ok = all[p.PPID] {
			if start, known := other.known[p.PID]; known && start == p.Start {
				return true
			}
		}
	}
	return false
}

// startedByUs reports whether a group started the process: the exit status of a command is for its exec.Cmd
// alone.
func startedByUs(pid int) bool {
	for g := range forest.groups {
		if g.started[pid] {
			return true
		}
	}
	return false
}

// marked reports whether a process has the run's marks. It checks a process only once.
func (g *Group) marked(st procs.Stat) bool {
	if g.foreign[st.PID] == st.Start && st.Start != 0 {
		return false
	}
	env, err := procs.ReadFile("/proc/" + strconv.Itoa(st.PID) + "/environ")
	if err == nil {
		for e := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(e, g.marker) {
				return true
			}
		}
	}
	if hasMark(st.PID, g.mark) {
		return true
	}
	g.foreign[st.PID] = st.Start
	return false
}
