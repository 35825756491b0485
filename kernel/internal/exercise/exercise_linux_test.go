package exercise

import (
	"os"
	"os/exec"
	"testing"
)

// A program whose file has capabilities executes no list that it gets. It makes the same calls.
func TestWithoutAList(t *testing.T) {
	list, err := List().File()
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var lacks [2]int
	for i, args := range [][]string{arguments(false), arguments(true)} {
		cmd := &exec.Cmd{Path: "/proc/self/exe", Args: args,
			ExtraFiles: []*os.File{Threads - 3: null, Exercise - 3: list}}
		out, _ := cmd.CombinedOutput()
		lacks[i] = cmd.ProcessState.ExitCode()
		if len(out) > 0 || lacks[i]&^(NoIPv6|NoTCP) != 0 {
			t.Errorf("%s: status %d: %s", args[:3-i], lacks[i], out)
		}
	}
	if lacks[0] != lacks[1] {
		t.Errorf("with a list status %d, without %d", lacks[0], lacks[1])
	}
}
