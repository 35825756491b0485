package procs

import (
	"os/exec"
	"syscall"
)

// Starter is how a command becomes a process. A backend chooses what its kind
// of group needs.
type Starter struct {
	// Fork forks and executes a command.
	Fork func(*exec.Cmd) error
	// Join starts a command by way of a program that writes "0" to each of
	// files, and then becomes the command.
	Join func(cmd *exec.Cmd, files []string) error
	// Thread forks a command from a thread that writes "0" to each of join
	// before and of home after. Nil: the backend has threads of its own for it.
	Thread func(cmd *exec.Cmd, join, home []string) error
}

// Attributes gives cmd a copy of its SysProcAttr, for a start to change. Restore puts
// the caller's back.
func Attributes(cmd *exec.Cmd) (attr *syscall.SysProcAttr, restore func()) {
	before := cmd.SysProcAttr
	attr = &syscall.SysProcAttr{}
	if before != nil {
		*attr = *before
	}
	cmd.SysProcAttr = attr
	return attr, func() { cmd.SysProcAttr = before }
}
