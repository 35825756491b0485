package stdio

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/tmuxtest"
	"github.com/assay-run/assay-run/schema"
)

// newTmux is a terminal with an interactive bash in it; $R is the runner.
func newTmux(t testing.TB) *tmuxtest.Terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed: ", err)
	}
	x := tmuxtest.New(t)
	x.Bash("R=" + wrapper(t, x.Dir))
	return x
}

func TestTUIInTmux(t *testing.T) {
	x := newTmux(t)
	x.Line(`before=$(stty -g); seq 1000 >$D/f; clear; "$R" less $D/f; [ "$(stty -g)" = "$before" ] && echo same`)
	x.Expect(`(?m)^23$`)
	x.Key("Space")
	x.Expect(`(?m)^46$`)
	x.Run("resize-window", "-x", "100", "-y", "40")
	x.Expect(`(?m)^62$`)
	x.Line("/777")
	x.Expect(`(?m)^777$`)
	x.Key("q")
	x.Expect(`(?m)^same$`)
	p, err := play(member(t, x.Dir, schema.TerminalPath))
	if err != nil || !strings.Contains(p.Output, "777") || len(p.Resizes) != 1 || p.Resizes[0] != "100x40" ||
		p.Exit != "0" {
		t.Errorf("%v %v %q", err, p.Resizes, p.Exit)
	}
}

func TestVimWithStdinFromAPipe(t *testing.T) {
	if _, err := exec.LookPath("vim"); err != nil {
		t.Skip("vim is not installed: ", err)
	}
	x := newTmux(t)
	x.Line(`before=$(stty -g); clear; echo hello | "$R" vim -u NONE -; [ "$(stty -g)" = "$before" ] && echo same`)
	x.Expect(`(?m)^hello$`)
	x.Run("send-keys", "-l", "ihi there ")
	x.Key("Escape")
	x.Expect(`(?m)^hi there hello$`)
	x.Line(":w! " + x.Dir + "/out")
	x.Line(":q!")
	x.Expect(`(?m)^same$`)
	if got := string(member(t, x.Dir, "out")); got != "hi there hello\n" {
		t.Errorf("%q", got)
	}
}

func TestPagerBehindUs(t *testing.T) {
	x := newTmux(t)
	x.Line(`clear; "$R" seq 1000 | less`)
	x.Expect(`(?m)^23$`)
	x.Key("Space")
	x.Expect(`(?m)^46$`)
	x.Key("q")
	x.Expect(`(?m)^0 >`)
}

func TestSuspendAndForeground(t *testing.T) {
	x := newTmux(t)
	x.Line(`before=$(stty -g); "$R" sh -c 'echo ready; while read l; do echo "<$l>"; done; exit 6'`)
	x.Expect(`(?m)^ready$`)
	x.Line("one")
	x.Expect(`(?m)^<one>$`)
	x.Key("C-z")
	x.Expect(`Stopped`)
	x.Line(`clear; [ "$(stty -g)" = "$before" ] && echo same; jobs | wc -l`)
	x.Expect(`(?s)same\n1\n`)
	x.Run("resize-window", "-x", "90", "-y", "30")
	x.Line("fg")
	x.Line("two")
	x.Expect(`(?m)^<two>$`)
	x.Key("C-z")
	x.Expect(`Stopped`)
	x.Line("clear; fg")
	x.Line("three")
	x.Expect(`(?m)^<three>$`)
	x.Key("C-d")
	x.Expect(`(?m)^6 >`)
	x.Line(`[ "$(stty -g)" = "$before" ] && echo restored`)
	x.Expect(`(?m)^restored$`)
	p, err := play(member(t, x.Dir, schema.TerminalPath))
	if err != nil || len(p.Resizes) != 1 || p.Resizes[0] != "90x30" {
		t.Errorf("%v %v", err, p.Resizes)
	}
}

func TestJobControlOfAShellInside(t *testing.T) {
	x := newTmux(t)
	x.Line(`clear; "$R" bash --norc --noprofile -i`)
	x.Expect(`bash-[0-9.]+#|bash-[0-9.]+\$`)
	x.Line(`PS1='in $? > '; clear`)
	x.Expect(`(?m)^in 0 >`)
	x.Line(`sh -c 'echo r""uns; exec sleep 100'`)
	x.Expect(`(?m)^runs$`)
	x.Key("C-z")
	x.Expect(`Stopped +sh -c`)
	x.Line("clear; fg")
	x.Expect(`(?m)^sh -c .*sleep 100`)
	x.Key("C-c")
	x.Expect(`(?m)^in 130 >`)
	x.Line("clear; exit 9")
	x.Expect(`(?m)^9 >`)
}

func TestInTheBackground(t *testing.T) {
	x := newTmux(t)
	x.Line(`before=$(stty -g); set -m; clear; "$R" sh -c 'sleep 0.3; echo from behind; read l; echo "<$l>"' & until test -s $D/stdio/terminal.cast; do sleep 0.05; done; [ "$(stty -g)" = "$before" ] && echo same`)
	x.Expect(`(?m)from behind$`)
	x.Expect(`(?m)^same$`)
	x.Line("fg")
	x.Expect(`(?m)^"\$R" sh`)
	// Only our reading of keys shows that we noticed being in the foreground; the line waits for that in the
	// terminal.
	x.Line("typed")
	x.Expect(`(?m)^<typed>\n0 >`)
	x.Line(`[ "$(stty -g)" = "$before" ] && echo restored`)
	x.Expect(`(?m)^restored$`)
	// From start to end, and as a stopped job that bg continues. In bash, since a key that stops a process that dash
	// has just forked with vfork never stops dash.
	x.Line(`clear; "$R" bash -c 'echo ready; until test -e $D/go; do sleep 0.05; done; echo done'`)
	x.Expect(`(?m)^ready$`)
	x.Key("C-z")
	x.Expect(`Stopped`)
	x.Line("bg; touch $D/go; wait; echo waited")
	x.Expect(`(?m)^waited$`)
	x.Expect(`(?m)done$`)
	x.Line(`[ "$(stty -g)" = "$before" ] && echo again`)
	x.Expect(`(?m)^again$`)
}
