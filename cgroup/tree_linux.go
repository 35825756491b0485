package cgroup

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// tree is a group where no cgroup is writable: what Start started, all that
// descends from it, and the orphans that the runner, as subreaper, adopted.
//
// A member is known by descent from a known member, by the marker in its
// environment, by the limit that marks the run (see limitMark), or by the
// session id of a known member. A child of the runner that is none of these
// and in a session of its own was adopted, and is taken in when this is the
// only tree.
type tree struct {
	marker []byte
	mark   uint64 // see limitMark
	runner stat   // as it was when the tree was made: it may be gone
	first  bool   // of its session: the agent's

	// All below is guarded by forest.
	started map[int]bool   // pids that belong to an exec.Cmd: never reaped here
	known   map[int]uint64 // live members: pid -> start time
	sids    map[int]bool   // sessions (setsid) of members, the runner's excluded
	foreign map[int]uint64 // looked at and found not to be members
	guard   io.Writer      // is told whom Start started; nil without a guard
}

// trees are the live trees of this process; natives its own children that are
// in none of them, such as guards.
var forest struct {
	sync.Mutex
	trees   map[*tree]bool
	natives map[int]bool
}

func newTree(runID string, first bool) *tree {
	self, ok := readStat(os.Getpid())
	if !ok {
		self = stat{pid: os.Getpid(), start: math.MaxUint64} // without /proc there is no scan either
	}
	t := bareTree(runID, self)
	t.first = first
	forest.Lock()
	defer forest.Unlock()
	if forest.trees == nil {
		forest.trees = map[*tree]bool{}
	}
	forest.trees[t] = true
	return t
}

// bareTree is a tree of this process or, in the guard, of the runner.
func bareTree(runID string, runner stat) *tree {
	return &tree{
		marker: []byte(MarkerKey + "=" + runID), mark: limitMark(runID), runner: runner,
		started: map[int]bool{}, known: map[int]uint64{}, sids: map[int]bool{}, foreign: map[int]uint64{},
	}
}

func (t *tree) forget() {
	forest.Lock()
	defer forest.Unlock()
	delete(forest.trees, t)
}

// startNative starts a child of the runner that is in no tree, whatever it shares
// with a member.
func startNative(cmd *exec.Cmd) error {
	forest.Lock()
	defer forest.Unlock()
	return forkNative(cmd)
}

// forkNative is startNative for one who holds forest already.
func forkNative(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	if forest.natives == nil {
		forest.natives = map[int]bool{}
	}
	forest.natives[cmd.Process.Pid] = true
	return nil
}

func waitNative(cmd *exec.Cmd) {
	_ = cmd.Wait()
	forest.Lock()
	defer forest.Unlock()
	delete(forest.natives, cmd.Process.Pid)
}

func becomeSubreaper() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

func (t *tree) start(cmd *exec.Cmd, spawn spawner) error {
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	before := cmd.SysProcAttr
	defer func() { cmd.SysProcAttr = before }()
	cmd.SysProcAttr = &attr
	if !attr.Setpgid {
		attr.Setsid = true
	}
	forest.Lock() // nobody looks between the fork and the entry here
	defer forest.Unlock()
	if err := withMark(t.mark, func() error { return spawn(cmd) }); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	t.started[pid] = true
	if st, ok := readStat(pid); ok {
		t.known[pid] = st.start
		if st.sid != t.runner.sid {
			t.sids[st.sid] = true
		}
		t.tell(pid)
	}
	return nil
}

// report makes the tree tell a guard of its processes.
func (t *tree) report(guard io.Writer) {
	forest.Lock()
	defer forest.Unlock()
	t.guard = guard
	for pid := range t.known {
		t.tell(pid)
	}
}

// tell is best effort: a guard that is gone is no reason not to run.
func (t *tree) tell(pid int) {
	if t.guard != nil {
		fmt.Fprintf(t.guard, "p %d %d\n", pid, t.known[pid])
	}
}

// list finds the live members now. It also reaps members that the runner
// adopted and that have died.
func (t *tree) list() []int {
	forest.Lock()
	defer forest.Unlock()
	only := len(forest.trees) == 1 && forest.trees[t]
	return t.scan(func(st stat) bool {
		return only && st.ppid == t.runner.pid && !forest.natives[st.pid]
	})
}

// scan looks through /proc. What began before the runner, or is in its
// session and nothing else, is never a member: taking a stranger for one would
// kill it. adopted decides on processes that nothing else
// tells about, of a setsid session other than the runner's.
func (t *tree) scan(adopted func(stat) bool) []int {
	all := stats()
	for pid, start := range t.known {
		if st, ok := all[pid]; !ok || st.start != start {
			delete(t.known, pid)
			delete(t.started, pid)
		}
	}
	for pid, start := range t.foreign {
		if st, ok := all[pid]; !ok || st.start != start {
			delete(t.foreign, pid)
		}
	}
	t.keepSessions(all)
	var order []stat
	for _, st := range all {
		order = append(order, st)
	}
	slices.SortFunc(order, func(a, b stat) int { return int(int64(a.start) - int64(b.start)) })
	for changed := true; changed; {
		changed = false
		for _, st := range order {
			if _, ok := t.known[st.pid]; ok || st.pid == t.runner.pid || st.pid == os.Getpid() || forest.natives[st.pid] || st.start < t.runner.start {
				continue
			}
			_, child := t.known[st.ppid]
			if child || t.sids[st.sid] || !t.belongsToAnother(st, all) && (t.marked(st) || st.sid != t.runner.sid && adopted(st)) {
				t.known[st.pid] = st.start
				if st.sid != t.runner.sid {
					t.sids[st.sid] = true
				}
				changed = true
			}
		}
	}
	var live []int
	for pid := range t.known {
		st := all[pid]
		if st.state != 'Z' && st.state != 'X' {
			if st.sid != t.runner.sid {
				t.sids[st.sid] = true
			}
			live = append(live, pid)
		} else if st.ppid == os.Getpid() && t.runner.pid == os.Getpid() && !startedByUs(pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
	slices.Sort(live)
	return live
}

// keepSessions forgets the session ids that no live member is in any more: the
// kernel may give such a number to somebody else.
func (t *tree) keepSessions(all map[int]stat) {
	held := map[int]bool{}
	for pid := range t.known {
		held[all[pid].sid] = true
	}
	for sid := range t.sids {
		if !held[sid] {
			delete(t.sids, sid)
		}
	}
}

// belongsToAnother: groups of one session have the same marks. What descends
// from another group's members, or is in a session of theirs, is theirs; the
// orphans that nothing else tells about are the agent's, the first group's.
func (t *tree) belongsToAnother(st stat, all map[int]stat) bool {
	for other := range forest.trees {
		if other == t {
			continue
		}
		if other.sids[st.sid] || other.first && !t.first && bytes.Equal(other.marker, t.marker) {
			return true
		}
		for p, ok := st, true; ok && p.pid != t.runner.pid; p, ok = all[p.ppid] {
			if start, known := other.known[p.pid]; known && start == p.start {
				return true
			}
		}
	}
	return false
}

// startedByUs: the exit status of a command is for its exec.Cmd alone.
func startedByUs(pid int) bool {
	for t := range forest.trees {
		if t.started[pid] {
			return true
		}
	}
	return false
}

// marked looks for the run's marks on a process, once.
func (t *tree) marked(st stat) bool {
	if t.foreign[st.pid] == st.start && st.start != 0 {
		return false
	}
	env, err := readFile("/proc/" + strconv.Itoa(st.pid) + "/environ")
	if err == nil {
		for e := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(e, t.marker) {
				return true
			}
		}
	}
	if hasMark(st.pid, t.mark) {
		return true
	}
	t.foreign[st.pid] = st.start
	return false
}
