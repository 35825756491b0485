package helper

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// wakeTime bounds how long WakeGuards waits for guards to do what they are there for.
const wakeTime = 5 * time.Second

// WakeGuards continues the guards of this host that somebody has stopped, and waits
// for those whose runner is gone to end what it left. It returns their run ids.
func WakeGuards() (ended []string) {
	woken := map[int]string{}
	for pid, st := range procs.All() {
		if st.State != 'T' {
			continue
		}
		b, err := procs.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if args := bytes.Split(b, []byte{0}); err == nil && len(args) > 2 && string(args[0]) == name && string(args[1]) == guardArg {
			if unix.Kill(pid, unix.SIGCONT) == nil {
				woken[pid] = string(args[2])
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
			case idle(pid):
				delete(woken, pid) // its runner is alive
			}
		}
	}
	return ended
}

// idle tells whether a guard waits for its runner: it sleeps and holds the pipe's
// read end, whose other end somebody else has. A guard at work has closed nothing,
// but does not sleep in a read of its pipe.
func idle(pid int) bool {
	b, err := procs.ReadFile("/proc/" + strconv.Itoa(pid) + "/wchan")
	return err == nil && (bytes.Contains(b, []byte("pipe_read")) || bytes.Contains(b, []byte("poll")))
}
