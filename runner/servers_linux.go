package runner

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/internal/listening"
)

// servers are the processes that a task asks to leave running: those that listen on one of its ports when the command
// has ended, what they started, what started them, and the first process of their PID namespace, with which all others
// end. They are kept in a group of their own until the checks have run.
type servers struct {
	ports      func() []int // nil: the task asks for none
	group      *cgroup.Group
	containers []string // the ids of those that they are in
}

// serveInterval is the time between two looks for servers that still start.
const serveInterval = 20 * time.Millisecond

// serving returns the ports of the task on which the tree of each process serves.
func (s *servers) serving(procs []cgroup.Proc) map[int][]int {
	parents := map[int]int{}
	for _, p := range procs {
		parents[p.PID] = parentOf(p.PID)
	}
	found := map[int][]int{}
	add := func(pid, port int) {
		if !slices.Contains(found[pid], port) {
			found[pid] = append(found[pid], port)
		}
	}
	above := func(pid, of int) bool { // a chain of parents has no loop, but these were read one by one
		for range parents {
			up, member := parents[of]
			if !member || up == pid {
				return member && up == pid
			}
			of = up
		}
		return false
	}
	first := map[string]int{} // by PID namespace
	for pid := range parents {
		if isInit(pid) {
			space, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
			first[space] = pid
		}
	}
	ports, tables := s.ports(), map[string]map[string]int{} // the latter by network namespace
	for pid := range parents {
		ns, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)) // if it cannot be read, nor can the descriptors
		if tables[ns] == nil {
			tables[ns] = listening.Sockets(pid, ports)
		}
		for _, port := range holds(pid, tables[ns]) {
			space, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
			if init := first[space]; init != 0 {
				add(init, port)
			}
			for other := range parents {
				if other == pid || above(pid, other) || above(other, pid) {
					add(other, port)
				}
			}
		}
	}
	return found
}

// missing reports whether nothing listens on one of the ports.
func (s *servers) missing(found map[int][]int) bool {
	return slices.ContainsFunc(s.ports(), func(port int) bool {
		for _, ports := range found {
			if slices.Contains(ports, port) {
				return false
			}
		}
		return true
	})
}

// keep makes what serves, also what it starts meanwhile, a group of its own. In containers it stays where it is, since
// an engine may give up a container whose cgroup is empty: what else is there moves to the agent's own cgroup.
// container returns the id of a process's container; empty for none.
func (s *servers) keep(agent *cgroup.Group, make func(name string) (*cgroup.Group, error),
	look func() ([]cgroup.Proc, map[int][]int), container func(pid int) string) (kept []cgroup.Proc, err error) {
	group, err := make("servers")
	if err != nil {
		return nil, err
	}
	done := map[int]bool{}
	for before := -1; len(done) > before; {
		before = len(done)
		procs, found := look()
		for _, p := range procs {
			id, serves := container(p.PID), len(found[p.PID]) > 0
			switch {
			case done[p.PID] || !serves && (id == "" || len(s.containers) == 0):
				continue
			case serves && id != "":
				if !slices.Contains(s.containers, id) {
					s.containers = append(s.containers, id)
				}
			case serves:
				if failed := moveProcess(agent, group, p.PID); failed != nil {
					err = failed
					continue
				}
			default:
				if failed := moveProcess(agent, agent, p.PID); failed != nil {
					err = failed
					continue
				}
			}
			if done[p.PID] = true; serves {
				kept = append(kept, p)
			}
		}
	}
	if len(kept) == 0 {
		return nil, err
	}
	if len(s.containers) > 0 {
		group.TakeContainers(agent)
	}
	s.group = group
	return kept, nil
}

func moveProcess(from, to *cgroup.Group, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return from.Move(to, pid, fd)
}

// alive returns the ids of the processes that are kept.
func (s *servers) alive() map[int]bool {
	pids := map[int]bool{}
	if s.group != nil {
		procs, _ := s.group.Procs()
		for _, p := range procs {
			pids[p.PID] = true
		}
	}
	return pids
}

// parentOf returns the parent of a process; 0 if it has ended.
func parentOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(fields) > 1 {
		parent, _ := strconv.Atoi(string(fields[1]))
		return parent
	}
	return 0
}

// isInit reports whether a process is the first of a PID namespace.
func isInit(pid int) bool {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if in, ok := strings.CutPrefix(line, "NSpid:"); ok { // the id in each namespace, ours first
			ids := strings.Fields(in)
			return len(ids) > 0 && ids[len(ids)-1] == "1"
		}
	}
	return false
}

// holds returns the ports of those sockets of which a process has a descriptor.
func holds(pid int, sockets map[string]int) (ports []int) {
	if len(sockets) == 0 {
		return nil
	}
	at := fmt.Sprintf("/proc/%d/fd/", pid)
	open, _ := os.ReadDir(at)
	for _, fd := range open {
		name, _ := os.Readlink(at + fd.Name())
		if port := sockets[name]; port != 0 && !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}
