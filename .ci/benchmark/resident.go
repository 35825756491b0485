package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// largestSet runs cmd and returns its largest resident set, in MiB. Linux counts the memory
// that the parent had at the start as the child's own. This process can be large, so a small
// one starts cmd: the role resident.
func largestSet(cmd *exec.Cmd) float64 {
	self, err := os.Executable()
	check(err)
	r, w, err := os.Pipe()
	check(err)
	defer r.Close()
	cmd.Args = append([]string{self, "resident", cmd.Path}, cmd.Args...)
	cmd.Path, cmd.ExtraFiles = self, []*os.File{w}
	check(cmd.Start())
	w.Close()
	said, err := io.ReadAll(r)
	check(err)
	check(cmd.Wait())
	return float64(number(strings.TrimSpace(string(said)))) / 1024
}

// resident PATH ARG0 [ARG...] runs a program, and writes its largest resident set to
// descriptor 3, in KiB.
func resident(args []string) {
	syscall.CloseOnExec(3)
	cmd := exec.Command(args[0])
	cmd.Args = args[1:]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	check(cmd.Run())
	_, err := fmt.Fprintln(os.NewFile(3, "result"), cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
	check(err)
}
