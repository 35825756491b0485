package proctree

import (
	"os/exec"
	"sync"
)

// helpers are children of this process that are in no group, such as guards, even if they look like members. A holder
// of the lock of forest may also take its lock.
var helpers struct {
	sync.Mutex
	pids map[int]bool
}

// StartHelper starts a child of the runner that is in no group.
func StartHelper(cmd *exec.Cmd) error {
	helpers.Lock()
	defer helpers.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if helpers.pids == nil {
		helpers.pids = map[int]bool{}
	}
	helpers.pids[cmd.Process.Pid] = true
	return nil
}

// WaitHelper waits until a helper has ended.
func WaitHelper(cmd *exec.Cmd) {
	_ = cmd.Wait()
	helpers.Lock()
	defer helpers.Unlock()
	delete(helpers.pids, cmd.Process.Pid)
}
