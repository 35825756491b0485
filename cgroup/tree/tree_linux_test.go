package tree

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// A process that comes just when Wait asks whether there has been one is waited for.
func TestWaitSeesWhoJustCame(t *testing.T) {
	at, err := Locate(fmt.Sprintf("/tree-test-%d", os.Getpid()))
	if err != nil || os.Getuid() != 0 {
		t.Skip("only root can make a cgroup2 directory here, and only where there is cgroup2")
	}
	tree, err := Make(at, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	came := false
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = tree.Wait(ctx, func() bool {
		if !came {
			came = true
			if err := os.WriteFile(filepath.Join(at, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)),
				0); err != nil {
				t.Error(err)
			}
		}
		return true
	})
	if err != context.DeadlineExceeded {
		t.Errorf("it did not wait: %v", err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if err := tree.Wait(t.Context(), func() bool { return true }); err != nil {
		t.Error(err)
	}
}
