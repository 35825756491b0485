package runner

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/runner/sandbox"
)

// settledAs waits until the state of a child changes, and returns who it runs as if
// that is not the user of the runner, who is root: a command may have become another
// user, as setpriv(1) does. A child that has ended tells until it is reaped.
func settledAs(pid int) *sandbox.User {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WSTOPPED|unix.WCONTINUED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil || os.Geteuid() != 0 {
		return nil
	}
	ids := map[string][]int{}
	for line := range strings.Lines(string(status)) {
		key, rest, _ := strings.Cut(line, ":")
		if key != "Uid" && key != "Gid" && key != "Groups" {
			continue
		}
		for _, f := range strings.Fields(rest) {
			n, err := strconv.Atoi(f)
			if err != nil {
				return nil
			}
			ids[key] = append(ids[key], n)
		}
	}
	// Real, effective, saved and file system: a set-uid program is no other user yet.
	if len(ids["Uid"]) < 2 || len(ids["Gid"]) < 2 || ids["Uid"][0] == 0 || ids["Uid"][1] == 0 {
		return nil
	}
	return sandbox.UserOf(ids["Uid"][1], ids["Gid"][1], ids["Groups"])
}
