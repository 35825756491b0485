//go:build linux

package suite

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// TestDeletedFilesCountWithoutCgroup has a process without a cgroup of its own that keeps a deleted file open. Another
// user, who cannot look into the process, must not take the file for nothing.
func TestDeletedFilesCountWithoutCgroup(t *testing.T) {
	const recorder = "ASSAY_TEST_RECORDER"
	if pid, err := strconv.Atoi(os.Getenv(recorder)); err == nil {
		if n, hidden := deletedBytes("/", "no-such-run", pid); n != 0 || !hidden {
			t.Errorf("another user sees %d bytes, and something is hidden: %v", n, hidden)
		}
		return
	}
	cmd := exec.Command("sh", "-c", `sh -c 'exec 3>big; rm big; head -c 5000000 /dev/zero >&3; echo; cat'; true`)
	cmd.Dir = t.TempDir()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	n, hidden := deletedBytes(cmd.Dir, "no-such-run", cmd.Process.Pid)
	if n < 5_000_000 || n > 6_000_000 || hidden {
		t.Errorf("%d bytes, and something is hidden: %v", n, hidden)
	}
	if os.Getuid() != 0 {
		return // there is no other user
	}
	other := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	other.Dir, other.Env = "/", append(os.Environ(), recorder+"="+strconv.Itoa(cmd.Process.Pid))
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := other.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
