//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

// besideARun is the tests of this package. With -short a run lasts as long as they do,
// so that the runs of the tests share its observer: to load one for each run takes
// longer than most of them.
type besideARun struct{ tests leaktest.M }

func (b besideARun) Run() int {
	if !testing.Short() || !observes() {
		return b.tests.Run()
	}
	end, err := startRun()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the run that the tests share an observer with:", err)
		return 1
	}
	defer end()
	return b.tests.Run()
}

// startRun starts a run, and waits until its command runs. It ends when end is called,
// or with this process.
func startRun() (end func(), err error) {
	dir, err := os.MkdirTemp("", "beside-")
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, "-q", "--spool-dir", dir, "-o", filepath.Join(dir, "x.tar.gz"), "--", "sh", "-c",
		"echo up; cat")
	cmd.Args[0] = "assay-run"
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_, err = out.Read(make([]byte, 3))
	return func() {
		in.Close()
		_ = cmd.Wait() // what else it saw of this host does not matter
		_ = os.RemoveAll(dir)
	}, err
}
