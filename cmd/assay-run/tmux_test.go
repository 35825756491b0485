package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/.ci/tmuxtest"
	"github.com/assay-run/assay-run/schema"
)

// tmux is a terminal whose directory has the binary under test, as assay-run.
type tmux struct {
	*tmuxtest.Terminal
	t testing.TB
}

func prepareTmux(t testing.TB) *tmux {
	t.Helper()
	x := &tmux{tmuxtest.New(t), t}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, filepath.Join(x.Dir, "assay-run")); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *tmux) env() []string {
	return []string{"XDG_STATE_HOME=" + filepath.Join(x.Dir, ".state"), "SHELL=/bin/sh"}
}

func (x *tmux) start(argv ...string) { x.t.Helper(); x.Start(x.env(), argv...) }
func (x *tmux) bash()                { x.t.Helper(); x.Bash(x.env()...) }

func (x *tmux) file(name, text string) string {
	x.t.Helper()
	name = filepath.Join(x.Dir, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		x.t.Fatal(err)
	}
	return name
}

// continued waits until the run has recorded that its command goes on, for the nth
// time. The kernel drops a ^Z of before: SIGCONT takes back a stop that is pending.
func (x *tmux) continued(n int) {
	x.t.Helper()
	is := func() bool {
		files, _ := filepath.Glob(filepath.Join(x.Dir, ".state/assay-run/spool/*", schema.EventsPath))
		if len(files) != 1 {
			return false
		}
		events, _ := os.ReadFile(files[0])
		return bytes.Count(events, []byte(`"type":"continued"`)) == n
	}
	if !leaktest.Within(20*time.Second, is) {
		x.t.Fatal("the command is not continued")
	}
}

// need skips a test that needs a program that is not installed.
func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed", program)
	}
}
