package proctree

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

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

// scan looks through /proc. What began before the runner, or is in its
// session and nothing else, is never a member: taking a stranger for one would
// kill it. adopted decides on processes that nothing else
// tells about, of a setsid session other than the runner's.
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
			if _, ok := g.known[st.PID]; ok || st.PID == g.runner.PID || st.PID == os.Getpid() || helpers.pids[st.PID] || st.Start < g.runner.Start {
				continue
			}
			_, child := g.known[st.PPID]
			if child || g.sids[st.SID] || !g.belongsToAnother(st, all) && (g.marked(st) || st.SID != g.runner.SID && adopted(st)) {
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

// belongsToAnother: groups of one session have the same marks. What descends
// from another group's members, or is in a session of theirs, is theirs; the
// orphans that nothing else tells about are the heir's.
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

// startedByUs: the exit status of a command is for its exec.Cmd alone.
func startedByUs(pid int) bool {
	for g := range forest.groups {
		if g.started[pid] {
			return true
		}
	}
	return false
}

// marked looks for the run's marks on a process, once.
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
