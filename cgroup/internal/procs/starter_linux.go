package procs

import "os/exec"

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
