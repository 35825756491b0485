package main

import (
	"os"
	"syscall"
)

// notInherited keeps the file from what this process starts.
func notInherited(f *os.File) { syscall.CloseOnExec(int(f.Fd())) }
