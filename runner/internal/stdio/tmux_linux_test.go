package stdio

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/assay-run/assay-run/schema"
)

// tmux is a real terminal with an interactive bash in it; $R is the runner.
type tmux struct {
	t    testing.TB
	sock string
	dir  string
}

func newTmux(t testing.TB) *tmux {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed: ", err)
	}
	x := &tmux{t: t, dir: t.TempDir()}
	x.sock = filepath.Join(x.dir, "tmux.sock")
	rc := filepath.Join(x.dir, "rc")
	os.WriteFile(rc, []byte("PS1='$? > '\nset +o history\n"), 0o600)
	cmd := exec.Command("tmux", "-S", x.sock, "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24",
		"env", "R="+wrapper(t, x.dir), "D="+x.dir, "LESS=", "bash", "--noprofile", "--rcfile", rc)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v %s", err, out)
	}
	t.Cleanup(func() { exec.Command("tmux", "-S", x.sock, "kill-server").Run() })
	x.expect(`(?m)^0 >`)
	return x
}

func (x *tmux) run(args ...string) string {
	x.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", x.sock}, args...)...).CombinedOutput()
	if err != nil {
		x.t.Fatalf("tmux %v: %v %s", args, err, out)
	}
	return string(out)
}

func (x *tmux) screen() string { return x.run("capture-pane", "-p") }

// line types a line, and key a key by tmux's name for it.
func (x *tmux) line(s string)   { x.t.Helper(); x.run("send-keys", "-l", s); x.key("Enter") }
func (x *tmux) key(name string) { x.t.Helper(); x.run("send-keys", name) }

// expect waits until the screen matches.
func (x *tmux) expect(pattern string) {
	x.t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.Now().Add(10 * time.Second)
	for !re.MatchString(x.screen()) {
		if time.Now().After(deadline) {
			x.t.Fatalf("no %q on\n%s", pattern, x.screen())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestTUIInTmux(t *testing.T) {
	x := newTmux(t)
	x.line(`before=$(stty -g); seq 1000 >$D/f; clear; "$R" less $D/f; [ "$(stty -g)" = "$before" ] && echo same`)
	x.expect(`(?m)^23$`)
	x.key("Space")
	x.expect(`(?m)^46$`)
	x.run("resize-window", "-x", "100", "-y", "40")
	x.expect(`(?m)^62$`)
	x.line("/777")
	x.expect(`(?m)^777$`)
	x.key("q")
	x.expect(`(?m)^same$`)
	p, err := play(member(t, x.dir, schema.TerminalPath))
	if err != nil || !strings.Contains(p.Output, "777") || len(p.Resizes) != 1 || p.Resizes[0] != "100x40" || p.Exit != "0" {
		t.Errorf("%v %v %q", err, p.Resizes, p.Exit)
	}
}

func TestVimWithStdinFromAPipe(t *testing.T) {
	if _, err := exec.LookPath("vim"); err != nil {
		t.Skip("vim is not installed: ", err)
	}
	x := newTmux(t)
	x.line(`before=$(stty -g); clear; echo hello | "$R" vim -u NONE -; [ "$(stty -g)" = "$before" ] && echo same`)
	x.expect(`(?m)^hello$`)
	x.run("send-keys", "-l", "ihi there ")
	x.key("Escape")
	x.expect(`(?m)^hi there hello$`)
	x.line(":w! " + x.dir + "/out")
	x.line(":q!")
	x.expect(`(?m)^same$`)
	if got := string(member(t, x.dir, "out")); got != "hi there hello\n" {
		t.Errorf("%q", got)
	}
}

func TestPagerBehindUs(t *testing.T) {
	x := newTmux(t)
	x.line(`clear; "$R" seq 1000 | less`)
	x.expect(`(?m)^23$`)
	x.key("Space")
	x.expect(`(?m)^46$`)
	x.key("q")
	x.expect(`(?m)^0 >`)
}

func TestSuspendAndForeground(t *testing.T) {
	x := newTmux(t)
	x.line(`before=$(stty -g); "$R" sh -c 'echo ready; while read l; do echo "<$l>"; done; exit 6'`)
	x.expect(`(?m)^ready$`)
	x.line("one")
	x.expect(`(?m)^<one>$`)
	x.key("C-z")
	x.expect(`Stopped`)
	x.line(`clear; [ "$(stty -g)" = "$before" ] && echo same; jobs | wc -l`)
	x.expect(`(?s)same\n1\n`)
	x.run("resize-window", "-x", "90", "-y", "30")
	x.line("fg")
	x.line("two")
	x.expect(`(?m)^<two>$`)
	x.key("C-z")
	x.expect(`Stopped`)
	x.line("clear; fg")
	x.line("three")
	x.expect(`(?m)^<three>$`)
	x.key("C-d")
	x.expect(`(?m)^6 >`)
	x.line(`[ "$(stty -g)" = "$before" ] && echo restored`)
	x.expect(`(?m)^restored$`)
	p, err := play(member(t, x.dir, schema.TerminalPath))
	if err != nil || len(p.Resizes) != 1 || p.Resizes[0] != "90x30" {
		t.Errorf("%v %v", err, p.Resizes)
	}
}

func TestJobControlOfAShellInside(t *testing.T) {
	x := newTmux(t)
	x.line(`clear; "$R" bash --norc --noprofile -i`)
	x.expect(`bash-[0-9.]+#|bash-[0-9.]+\$`)
	x.line(`PS1='in $? > '; clear`)
	x.expect(`(?m)^in 0 >`)
	x.line(`sh -c 'echo r""uns; exec sleep 100'`)
	x.expect(`(?m)^runs$`)
	x.key("C-z")
	x.expect(`Stopped +sh -c`)
	x.line("clear; fg")
	x.expect(`(?m)^sh -c .*sleep 100`)
	x.key("C-c")
	x.expect(`(?m)^in 130 >`)
	x.line("clear; exit 9")
	x.expect(`(?m)^9 >`)
}

func TestInTheBackground(t *testing.T) {
	x := newTmux(t)
	x.line(`before=$(stty -g); set -m; clear; "$R" sh -c 'sleep 0.3; echo from behind; read l; echo "<$l>"' & until test -s $D/stdio/terminal.cast; do sleep 0.05; done; [ "$(stty -g)" = "$before" ] && echo same`)
	x.expect(`(?m)from behind$`)
	x.expect(`(?m)^same$`)
	x.line("fg")
	x.expect(`(?m)^"\$R" sh`)
	// Nothing tells when we noticed that we are in front but our taking keys; the
	// line waits for that in the terminal.
	x.line("typed")
	x.expect(`(?m)^<typed>\n0 >`)
	x.line(`[ "$(stty -g)" = "$before" ] && echo restored`)
	x.expect(`(?m)^restored$`)
	// From the start to the end, and as a stopped job that bg continues.
	x.line(`clear; "$R" sh -c 'echo ready; until test -e $D/go; do sleep 0.05; done; echo done'`)
	x.expect(`(?m)^ready$`)
	x.key("C-z")
	x.expect(`Stopped`)
	x.line("bg; touch $D/go; wait; echo waited")
	x.expect(`(?m)^waited$`)
	x.expect(`(?m)done$`)
	x.line(`[ "$(stty -g)" = "$before" ] && echo again`)
	x.expect(`(?m)^again$`)
}
