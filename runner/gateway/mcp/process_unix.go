//go:build unix

package mcp

import "syscall"

// ownGroup puts the server into its own process group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
