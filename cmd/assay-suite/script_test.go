//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

func TestMain(m *testing.M) {
	testscript.Main(leaktest.Of(cleaning{m}), map[string]func(){"assay-suite": main, "nats-node": natsNode})
}

// cleaning removes what the tests built when they are over.
type cleaning struct{ *testing.M }

func (c cleaning) Run() int {
	defer func() {
		if built != "" {
			os.RemoveAll(built)
		}
	}()
	return c.M.Run()
}

// built is the directory that recorder made.
var built string

// recorder builds assay-run, which runs the attempts of these tests.
var recorder = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "assay-suite-test-*")
	if err != nil {
		return "", err
	}
	built = dir
	out, err := exec.Command("go", "build", "-ldflags=-E=github.com/assay-run/assay-run/cgroup/steps.entry", "-o",
		filepath.Join(dir, "assay-run"), "../assay-run").CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("build assay-run: %w\n%s", err, out)
	}
	return dir, nil
})

// TestScripts runs every script of testdata/script. Condition [kernel]: a kernel layer can be recorded;
// [userns]: there are user namespaces.
func TestScripts(t *testing.T) {
	dir, err := recorder()
	if err != nil {
		t.Fatal(err)
	}
	kernel := sync.OnceValue(func() bool {
		tmp := t.TempDir()
		return exec.Command(filepath.Join(dir, "assay-run"), "-q", "--kernel", "require", "--spool-dir", tmp, "-o",
			filepath.Join(tmp, "x.tar.gz"), "--", "true").Run() == nil
	})
	testscript.Run(t, testscript.Params{
		Dir:         filepath.Join("testdata", "script"),
		WorkdirRoot: t.TempDir(),
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+dir)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "kernel":
				return kernel(), nil
			case "userns":
				return exec.Command("unshare", "-rm", "true").Run() == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
	})
}

// status runs a command and checks its exit status: status N COMMAND ARG...
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND [ARG...]")
	}
	got := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = fmt.Sprint(exit.ExitCode())
	}
	if got != args[0] {
		ts.Fatalf("%s exited with %s, want %s", args[1], got, args[0])
	}
}

// TestNATSIsInThisProgramAlone looks at what the other programs link.
func TestNATSIsInThisProgramAlone(t *testing.T) {
	for _, program := range []string{"assay-run", "assay-review"} {
		out, err := exec.Command("go", "list", "-deps", "../"+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(out), "github.com/nats-io/") {
			t.Errorf("%s links NATS", program)
		}
	}
}
