//go:build linux && (amd64 || arm64)

package kernel

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func init() {
	// sit CGROUP: observes it until its input ends, and says how.
	children["sit"] = func(args []string) {
		o, err := Open(context.Background(), Config{CgroupPath: args[0]})
		check("open", err)
		done := make(chan error)
		go func() { done <- o.Read(func(*Event) error { return nil }, func(uint64) {}) }()
		r := o.Report()
		fmt.Printf("shared=%v %s\n", r.Shared, r.Alone)
		io.Copy(io.Discard, os.Stdin)
		check("stop", o.Stop())
		check("read", <-done)
		r = o.Report()
		check("close", o.Close())
		fmt.Printf("%d reasons %+v\n", len(r.Reasons), r.Reasons)
		putting.Wait()
	}
}

// sitter is a process that observes a cgroup.
type sitter struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	lines *bufio.Scanner
	said  string
}

func sit(t testing.TB, exe, cgroup string, attr *syscall.SysProcAttr) *sitter {
	t.Helper()
	c := exec.Command(exe, cgroup)
	c.Env = append(os.Environ(), "KERNEL_TEST_CHILD=sit")
	c.Stderr = os.Stderr
	c.SysProcAttr = attr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &sitter{cmd: c, input: in, lines: bufio.NewScanner(out)}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	if s.lines.Scan() {
		s.said = s.lines.Text()
	}
	return s
}

// rise ends it and returns what it found.
func (s *sitter) rise(t testing.TB) string {
	t.Helper()
	s.input.Close()
	s.lines.Scan()
	found := s.lines.Text()
	if err := s.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, found)
	}
	return found
}

// pinned lists what is pinned for a build.
func pinned(t testing.TB, name string) []string {
	t.Helper()
	p, err := findPinDir()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(p.home)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name) {
			out = append(out, e.Name())
		}
	}
	return out
}

func myPinDir(t testing.TB) pinDir {
	t.Helper()
	p, err := findPinDir()
	if err != nil {
		t.Skipf("cannot share: %v", err)
	}
	return p
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
