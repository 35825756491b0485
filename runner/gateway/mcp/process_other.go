//go:build !unix

package mcp

import "syscall"

func ownGroup() *syscall.SysProcAttr { return nil }
