//go:build linux

package cgroup_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// play is the main function of the programs that the tests start.
func play(role string, args []string) int {
	self := func(role string, attr *syscall.SysProcAttr, args ...string) *exec.Cmd {
		return &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{"child", "role=" + role}, args...), Env: []string{}, SysProcAttr: attr, Stdout: os.Stdout}
	}
	switch role {
	case "exit":
		n, _ := strconv.Atoi(args[0])
		return n
	case "sleep":
		fmt.Println(os.Getpid())
		forever()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		fmt.Println(os.Getpid())
		forever()
	case "daemon":
		// Fork, and leave a setsid'ed grandchild with nothing in its environment.
		return run(self("daemon2", &syscall.SysProcAttr{Setsid: true}))
	case "daemon2":
		if err := self("sleep", &syscall.SysProcAttr{Setsid: true}).Start(); err != nil {
			return 1
		}
	}
	return 0
}

func run(cmd *exec.Cmd) int {
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func forever() { time.Sleep(time.Hour) }
