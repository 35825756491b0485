package dirs

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Orphans tells whether orphans of the session come to this process, which they
// do where it is process 1 of its container.
func (s *Session) Orphans() bool { return os.Getpid() == 1 }

// Reap reaps the dead orphans of the session. The exit statuses of what was
// started are for those who started it.
func (s *Session) Reap(started func(pid int) bool) {
	for pid, st := range procs.All() {
		if st.PPID == os.Getpid() && st.State == 'Z' && !started(pid) && s.holds(pid) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// holds tells whether a process, dead or alive, is in the session's cgroup2.
func (s *Session) holds(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	return err == nil && bytes.Contains(b, []byte("/"+parentName+"/"+s.runID+"/"))
}
