package main

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

// The guard of a killed runner removes the directory of the gateway's socket,
// and the user's own that it was in.
func TestRunnerKilledLeavesNoSocket(t *testing.T) {
	home, err := os.MkdirTemp("/tmp", "") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	cmd := self(t, t.TempDir(), "-q", "--kernel", "off", "--", "sh", "-c", "echo $ASSAY_RUN_SOCKET; exec sleep 600")
	cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+home)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	socket, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(socket, home) {
		t.Fatalf("the socket is %q in %s: %v", socket, home, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	users := filepath.Dir(filepath.Dir(socket))
	if !leaktest.Within(time.Second, func() bool { _, err := os.Stat(users); return errors.Is(err, os.ErrNotExist) }) {
		t.Fatalf("%s is there a second after the runner was killed", users)
	}
}
