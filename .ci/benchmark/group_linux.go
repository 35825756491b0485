package main

import "syscall"

// ownGroup puts a child in a process group of its own, and ends it with this process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
