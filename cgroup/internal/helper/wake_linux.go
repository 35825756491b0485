package helper

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
	"github.com/assay-run/assay-run/cgroup/role"
	"github.com/assay-run/assay-run/cgroup/steps"
)

// wakeTime bounds how long WakeGuards waits for guards to end their sessions.
const wakeTime = 5 * time.Second

// WakeGuards continues the guards of this host that somebody has stopped. It waits until those whose runner is gone
// have ended the sessions, and returns their run ids. A process of another user may only look like a guard: it is
// continued, but its run id is not returned. If everywhere is false, WakeGuards looks only at the guards that are
// shown in this network namespace, because reading the state of every process takes longer than the rest of a run's
// start.
func WakeGuards(everywhere bool) (ended []string) { return wake(role.Guard, everywhere) }

// wake is WakeGuards for the helpers of a role.
func wake(r role.Role, everywhere bool) (ended []string) {
	woken := map[int]string{}
	pids, err := shown()
	if everywhere || err != nil {
		pids = slices.Collect(maps.Keys(procs.All()))
	}
	for _, pid := range pids {
		if st, ok := procs.Read(pid); !ok || st.State != 'T' {
			continue
		}
		if args := arguments(pid); len(args) > 2 && r.Is(args) {
			believed := trusted(pid) // before it continues, because it may end at once
			if unix.Kill(pid, unix.SIGCONT) == nil && believed {
				woken[pid] = args[2]
			}
		}
	}
	for end := time.Now().Add(wakeTime); len(woken) > 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for pid, id := range woken {
			st, ok := procs.Read(pid)
			switch {
			case !ok || st.Dead():
				ended = append(ended, id)
				delete(woken, pid)
			case guards(pid):
				delete(woken, pid)
			}
		}
	}
	return ended
}

// arguments returns the arguments of a process. A waiter has those of the guard that it becomes.
func arguments(pid int) []string {
	b, err := procs.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return nil
	}
	return steps.After(strings.Split(string(b), "\x00"))
}

// trusted reports whether a process was started by root, or by the user who started this one. That
// is its real user id, which a program with the set-user-ID bit does not change.
func trusted(pid int) bool {
	b, err := procs.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	_, ids, _ := bytes.Cut(b, []byte("\nUid:\t"))
	real, _, _ := bytes.Cut(ids, []byte("\t"))
	uid, err := strconv.Atoi(string(real))
	return err == nil && (uid == 0 || uid == unix.Getuid())
}

// guards reports whether the runner of a guard is alive, which holds the other end of the guard's pipe. It is false if
// that cannot be seen.
func guards(pid int) bool {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/fd/"+strconv.Itoa(guardPipe),
		unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	fds := []unix.PollFd{{Fd: int32(fd)}}
	_, err = unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&unix.POLLHUP == 0
}
