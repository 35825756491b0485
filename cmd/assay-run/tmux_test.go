package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// tmux is a terminal with a program in it, as a user has it. In its directory is
// the binary under test, as assay-run.
type tmux struct {
	t      testing.TB
	dir    string
	socket string
}

// prepareTmux makes the directory; start and bash run something there, in a
// terminal of 80 by 24.
func prepareTmux(t testing.TB) *tmux {
	t.Helper()
	x := &tmux{t: t, dir: t.TempDir()}
	x.socket = filepath.Join(x.dir, "tmux")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(exe, filepath.Join(x.dir, "assay-run")); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *tmux) start(argv ...string) {
	x.t.Helper()
	env := []string{"env", "XDG_STATE_HOME=" + filepath.Join(x.dir, ".state"), "D=" + x.dir, "LESS=", "SHELL=/bin/sh"}
	x.run(append(append([]string{"-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24"}, env...), argv...)...)
	x.t.Cleanup(func() { exec.Command("tmux", "-S", x.socket, "kill-server").Run() })
}

// bash starts an interactive bash whose prompt is "CODE >".
func (x *tmux) bash() {
	x.t.Helper()
	x.file("rc", "PS1='$? > '\nset +o history\ncd $D\n")
	x.start("bash", "--noprofile", "--rcfile", filepath.Join(x.dir, "rc"))
	x.expect(`(?m)^0 >`)
}

func (x *tmux) file(name, text string) string {
	x.t.Helper()
	name = filepath.Join(x.dir, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		x.t.Fatal(err)
	}
	return name
}

func (x *tmux) run(args ...string) string {
	x.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (x *tmux) screen() string { x.t.Helper(); return x.run("capture-pane", "-p") }

// line types a line, key a key by tmux's name for it.
func (x *tmux) line(s string)   { x.t.Helper(); x.run("send-keys", "-l", s); x.key("Enter") }
func (x *tmux) key(name string) { x.t.Helper(); x.run("send-keys", name) }

func (x *tmux) waitFor(what string, ok func(screen string) bool) {
	x.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		screen := x.screen()
		if ok(screen) {
			return
		}
		if time.Now().After(end) {
			x.t.Fatalf("waited in vain for %s; the screen is\n%s", what, strings.TrimSpace(screen))
		}
	}
}

// expect waits until the screen matches.
func (x *tmux) expect(pattern string) {
	x.t.Helper()
	x.waitFor(pattern, regexp.MustCompile(pattern).MatchString)
}
