//go:build linux

package helper

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/cgroup/internal/procs"
)

// Another user's process that looks like a stopped guard has nobody told of a run that
// was killed.
func TestAnotherUsersGuardIsNotBelieved(t *testing.T) {
	another := 65534
	if os.Getuid() == another {
		another--
	}
	for name, c := range map[string]struct {
		uid               int
		everywhere, shown bool
		told              bool
	}{
		"our own":                          {os.Getuid(), false, true, true},
		"our own, which is hidden":         {os.Getuid(), true, false, true},
		"another's":                        {another, false, true, false},
		"another's, looked for everywhere": {another, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.uid != os.Getuid() && os.Getuid() != 0 {
				t.Skip("needs root: starts a process of another user")
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			id := "run_looks_like_" + name
			const arg = "__guard-of-a-test" // which no other run on this host looks for
			// It writes these words until nobody reads them.
			cmd := exec.Command("bash", "-c", `exec -a assay-run yes "$@"`, "-", arg, id)
			cmd.Stdout = w
			if os.Getuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(c.uid),
					Gid: uint32(c.uid)}}
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			if _, err := r.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			pid := cmd.Process.Pid
			if c.shown {
				socket := shownSocket()
				defer socket.Close()
				if err := show(socket, pid); err != nil {
					t.Error(err)
				}
			}
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			if !leaktest.Within(time.Minute, func() bool { st, _ := procs.Read(pid); return st.State == 'T' }) {
				t.Error("it was not stopped")
			}
			r.Close()
			ended := wake(arg, c.everywhere)
			if told := slices.Contains(ended, id); told != c.told {
				t.Errorf("told %t, want %t: %q", told, c.told, ended)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("it was not continued, and ended by itself")
			}
		})
	}
}
