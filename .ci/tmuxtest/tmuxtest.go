// Package tmuxtest gives a test a real terminal: tmux runs a program, and the test types and
// reads the screen. Only tests use it.
package tmuxtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

// Terminal is one terminal of 80 columns and 24 rows.
type Terminal struct {
	// Dir is a directory for what the test needs; the program has it as $D.
	Dir string

	t      testing.TB
	socket string
}

// New prepares a terminal; Start or Bash opens it. The test is skipped without tmux.
func New(t testing.TB) *Terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed")
	}
	// The path of a socket has at most 107 bytes (unix(7)), and Dir contains the test's
	// name.
	short, err := os.MkdirTemp("", "tmux")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	return &Terminal{Dir: t.TempDir(), t: t, socket: filepath.Join(short, "socket")}
}

// Start runs a command in the terminal, with these variables added to its environment. When
// the test ends, the terminal and its processes are killed.
func (x *Terminal) Start(env []string, argv ...string) {
	x.t.Helper()
	args := append([]string{"-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "env", "D=" + x.Dir,
		"LESS="}, env...)
	x.Run(append(args, argv...)...)
	x.t.Cleanup(func() { exec.Command("tmux", "-S", x.socket, "kill-server").Run() })
}

// Bash starts an interactive bash in Dir whose prompt is "CODE >".
func (x *Terminal) Bash(env ...string) {
	x.t.Helper()
	rc := filepath.Join(x.Dir, "rc")
	if err := os.WriteFile(rc, []byte("PS1='$? > '\nset +o history\ncd $D\n"), 0o600); err != nil {
		x.t.Fatal(err)
	}
	x.Start(env, "bash", "--noprofile", "--rcfile", rc)
	x.Expect(`(?m)^0 >`)
}

// Run runs a command of tmux itself and returns what it prints.
func (x *Terminal) Run(args ...string) string {
	x.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", x.socket}, args...)...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// Screen is the text on the screen.
func (x *Terminal) Screen() string { x.t.Helper(); return x.Run("capture-pane", "-p") }

// Line types a line.
func (x *Terminal) Line(s string) { x.t.Helper(); x.Run("send-keys", "-l", s); x.Key("Enter") }

// Key types a key, by tmux's name for it.
func (x *Terminal) Key(name string) { x.t.Helper(); x.Run("send-keys", name) }

// WaitFor waits until ok is true of the screen. It fails the test after 20 s, as
// leaktest.Within counts them.
func (x *Terminal) WaitFor(what string, ok func(screen string) bool) {
	x.t.Helper()
	screen := ""
	if !leaktest.Within(20*time.Second, func() bool { screen = x.Screen(); return ok(screen) }) {
		x.t.Fatalf("waited in vain for %s; the screen is\n%s", what, strings.TrimSpace(screen))
	}
}

// Expect waits until the screen matches.
func (x *Terminal) Expect(pattern string) {
	x.t.Helper()
	x.WaitFor(pattern, regexp.MustCompile(pattern).MatchString)
}
