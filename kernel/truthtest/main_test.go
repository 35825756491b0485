//go:build linux && amd64

package truthtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

// program is the built assay-run, helper the built testdata/nasty.c.
var program, helper string

func TestMain(m *testing.M) {
	os.Exit(build(leaktest.Of(m)))
}

func build(m leaktest.M) int {
	if missing() != "" {
		return m.Run() // every test skips
	}
	tmp, err := os.MkdirTemp("", "truth-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil { // other users run the helper
		fmt.Println(err)
		return 1
	}
	program, helper = filepath.Join(tmp, "assay-run"), filepath.Join(tmp, "nasty")
	for _, c := range []*exec.Cmd{
		exec.Command("go", "build", "-o", program, "../../cmd/assay-run"),
		exec.Command("gcc", "-O1", "-Wall", "-Werror", "-pthread", "-o", helper, "testdata/nasty.c", "testdata/paths.c",
			"testdata/uring.c", "testdata/claims.c", "testdata/copies.c",
			"testdata/exchange.c", "testdata/structs.c", "testdata/sockets.c",
			"testdata/calls.c"),
	} {
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			fmt.Printf("%v: %v\n%s", c.Args, err, out)
			return 1
		}
	}
	return m.Run()
}

// missing says why nothing can be tested here, "" where it can.
func missing() string {
	if os.Geteuid() != 0 {
		return "observing needs root"
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return "the kernel has no BTF: " + err.Error()
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		return "the nasty programs cannot be compiled: " + err.Error()
	}
	return ""
}

// need skips a test where observing is impossible or a program is missing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	if m := missing(); m != "" {
		t.Skip(m)
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip(err)
		}
	}
}

// source is this folder.
func source(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
