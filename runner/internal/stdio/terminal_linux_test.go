package stdio

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/schema"
)

func TestTerminalIsOneToTheChild(t *testing.T) {
	o := onTerminal(t, nil, "sh", "-c",
		`stty size; test -t 0 && test -t 1 && test -t 2 && echo three; tty >/dev/tty; stty -a | grep -o "[-]*onlcr"; read l; echo "got $l"; exit 7`)
	o.expect("onlcr\r\n")
	if tio := o.settings(); tio.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) != 0 || tio.Oflag&unix.OPOST != 0 {
		t.Errorf("our terminal is not raw: %+v", tio)
	}
	o.keys("hé\r")
	if code := o.wait(); code != 7 {
		t.Errorf("exit code %d: %q", code, o.output())
	}
	lines := strings.Split(o.output(), "\r\n")
	if len(lines) != 7 || lines[0] != "24 80" || lines[1] != "three" || !strings.HasPrefix(lines[2], "/dev/pts/") ||
		lines[3] != "onlcr" || lines[4] != "hé" || lines[5] != "got hé" {
		t.Errorf("%q", lines)
	}
	p := o.cast()
	if p.Output != o.output() || p.Exit != "7" || p.Cols != 80 || p.Rows != 24 {
		t.Errorf("%+v", p)
	}
	n := int64(len(o.output()))
	want := schema.Stdio{Mode: modeTerminal, Terminal: &schema.Stream{Bytes: n, Captured: n}}
	if d := cmp.Diff(want, readReport(t, o.dir).Stdio); d != "" {
		t.Error(d)
	}
}

// Settings are compared on a terminal that outlives the runner: a shell's.
func TestTerminalIsRestored(t *testing.T) {
	for _, script := range []string{
		`"$R" sh -c 'stty raw -echo; exit 3'`,
		`"$R" sh -c 'kill -KILL $$'`,
		`"$R" /nonexistent`,
		`STDIO_TEST_NO_CAPTURE=1 "$R" true`,
	} {
		o, _ := shellOnTerminal(t, `stty rows 24 -echo min 3; before=$(stty -g); `+script+
			`; [ "$(stty -g)" = "$before" ] && echo same`)
		o.wait()
		if !strings.Contains(o.output(), "same\r\n") {
			t.Errorf("%s: %q", script, o.output())
		}
	}
}

func TestResizeReachesTheChild(t *testing.T) {
	o := onTerminal(t, nil, "bash", "-c", `trap 'stty size; exit' WINCH; echo ready; while :; do read -t 0.05; done`)
	o.expect("ready")
	if err := pty.Setsize(o.master, &pty.Winsize{Rows: 40, Cols: 132}); err != nil {
		t.Fatal(err)
	}
	o.expect("40 132\r\n")
	o.wait()
	if p := o.cast(); !cmp.Equal(p.Resizes, []string{"132x40"}) || p.Cols != 80 {
		t.Errorf("%+v", p)
	}
}

func TestInterruptKeyReachesTheChildAlone(t *testing.T) {
	o := onTerminal(t, nil, "sh", "-c", `trap 'echo trapped; exit 5' INT; echo ready; while :; do sleep 0.05; done`)
	o.expect("ready")
	o.keys("\x03")
	if code := o.wait(); code != 5 || !strings.Contains(o.output(), "trapped") {
		t.Errorf("exit code %d: %q", code, o.output())
	}
	o = onTerminal(t, nil, "sh", "-c", "echo ready; exec sleep 100")
	o.expect("ready")
	o.keys("\x03")
	if code := o.wait(); code != 130 {
		t.Errorf("exit code %d: %q", code, o.output())
	}
}

func TestMuchThroughATerminal(t *testing.T) {
	o := onTerminal(t, []string{"STDIO_TEST_CAP=5000"}, "sh", "-c", "seq 200000; exit 3")
	if code := o.wait(); code != 3 {
		t.Errorf("exit code %d", code)
	}
	var want strings.Builder
	for i := 1; i <= 200000; i++ {
		fmt.Fprintf(&want, "%d\r\n", i)
	}
	if o.output() != want.String() {
		t.Errorf("%d bytes, not %d", len(o.output()), want.Len())
	}
	r := readReport(t, o.dir)
	p := o.cast()
	if st := r.Stdio.Terminal; !st.Truncated || st.Captured != int64(len(p.Output)) || st.Bytes != int64(want.Len()) ||
		r.Truncated[Terminal] != st.Captured || p.Exit != "3" || !strings.HasPrefix(want.String(), p.Output) {
		t.Errorf("%+v %+v", r, st)
	}
}

func TestGrandchildHoldsTheTerminal(t *testing.T) {
	o := onTerminal(t, nil, "bash", "-c", `trap "" HUP; sleep 1000 & disown`)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d: %q", code, o.output())
	}
	if r := readReport(t, o.dir); r.Left != 1 {
		t.Errorf("%d grandchildren were left: the test tests nothing", r.Left)
	}
}

func TestKeysThatTheChildNeverReads(t *testing.T) {
	o := onTerminal(t, nil, "sh", "-c", `stty raw -echo; echo ready; sleep 0.5; exit 4`)
	o.expect("ready")
	// More than the child's terminal takes, less than that and ours together.
	for range 11 {
		o.keys(strings.Repeat("x", 1000))
	}
	if code := o.wait(); code != 4 {
		t.Errorf("exit code %d", code)
	}
}

// When our terminal goes away, the child gets SIGHUP if the runner forwards it, and we report no error. The child's
// further output is recorded.
func TestOurTerminalGoesAway(t *testing.T) {
	o := onTerminal(t, nil, "sh", "-c", `trap 'echo bye; exit 8' HUP; echo ready; while :; do sleep 0.05; done`)
	o.expect("ready")
	o.master.Close()
	if code := o.wait(); code != 8 {
		t.Errorf("exit code %d", code)
	}
	if p := o.cast(); p.Output != "ready\r\nbye\r\n" || p.Exit != "8" {
		t.Errorf("%+v", p)
	}
	if r := readReport(t, o.dir); len(r.Errors) != 0 {
		t.Error(r.Errors)
	}
}

// A terminal stopped by Ctrl-S takes nothing: the grace ends the run.
func TestStoppedTerminal(t *testing.T) {
	cmd, dir := runner(t, []string{"STDIO_TEST_GRACE=300ms"}, "timeout", "-s", "KILL", "0.5", "yes")
	m, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	defer tty.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	// Nobody reads the master.
	within(t, time.Minute, "a run on a terminal that takes nothing", func() {
		if code := exitCode(cmd.Run()); code != 137 {
			t.Errorf("exit code %d", code)
		}
	})
	if r := readReport(t, dir); len(r.Errors) != 0 {
		t.Error(r.Errors)
	}
}

// Which streams are terminals decides what the child gets.
func TestMixedStreams(t *testing.T) {
	const probe = `sh -c 'for fd in 0 1 2; do test -t $fd && echo "$fd" >>$D/ttys; done; echo out; echo err >&2; echo tty >/dev/tty; true'`
	for _, c := range []struct {
		name, script string
		ttys         string
		want         schema.Stdio
	}{
		{"stdout into a pipe", `"$R" ` + probe + ` | cat`, "0\n2\n", schema.Stdio{
			Mode: modeTerminal, Stdout: &schema.Stream{Bytes: 4, Captured: 4},
			Terminal: &schema.Stream{Bytes: 5, Captured: 5}}},
		{"stdin from a pipe", `echo x | "$R" ` + probe, "1\n2\n", schema.Stdio{
			Mode: modeTerminal, Terminal: &schema.Stream{Bytes: 10, Captured: 10}}},
		{"stderr into a file", `"$R" ` + probe + ` 2>$D/e`, "0\n1\n", schema.Stdio{
			Mode: modeTerminal, Stderr: &schema.Stream{Bytes: 4, Captured: 4},
			Terminal: &schema.Stream{Bytes: 10, Captured: 10}}},
		{"only stdin", `"$R" ` + probe + ` 2>&1 | cat`, "0\n", schema.Stdio{
			Mode: modePipe, StderrInStdout: true, Stdout: &schema.Stream{Bytes: 8, Captured: 8}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, dir := shellOnTerminal(t, `stty -echo; before=$(stty -g); `+c.script+
				`; [ "$(stty -g)" = "$before" ] && echo same`)
			o.wait()
			for _, want := range []string{"out\r", "tty\r", "same\r"} {
				if !strings.Contains(o.output(), want) {
					t.Errorf("no %q in %q", want, o.output())
				}
			}
			if got := string(member(t, dir, "ttys")); got != c.ttys {
				t.Errorf("terminals %q, want %q", got, c.ttys)
			}
			if d := cmp.Diff(c.want, readReport(t, dir).Stdio); d != "" {
				t.Error(d)
			}
		})
	}
}

// A pipeline's neighbour keeps the keyboard, and /dev/tty works for the child.
func TestNeighboursKeepTheKeyboard(t *testing.T) {
	o, _ := shellOnTerminal(t,
		`head -1 | "$R" sh -c 'read l; echo "child $l"; echo ready; read k </dev/tty; echo "tty $k"'`)
	o.keys("one\n")
	o.expect("ready\r\n")
	o.keys("two\n")
	o.expect("tty two\r\n")
	if o.wait(); !strings.Contains(o.output(), "child one\r\n") {
		t.Errorf("%q", o.output())
	}
}
