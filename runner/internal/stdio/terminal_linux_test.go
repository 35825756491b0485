package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/schema"
	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// outer is a terminal with a command on it, as a user has it.
type outer struct {
	t      testing.TB
	master *os.File
	cmd    *exec.Cmd
	dir    string
	mu     sync.Mutex
	seen   bytes.Buffer
	more   chan struct{} // a token whenever seen grew
	eof    chan struct{}
}

// onTerminal runs argv under the runner on a terminal of 80 by 24.
func onTerminal(t testing.TB, env []string, argv ...string) *outer {
	t.Helper()
	cmd, dir := runner(t, env, argv...)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	return start(t, cmd, dir)
}

func start(t testing.TB, cmd *exec.Cmd, dir string) *outer {
	t.Helper()
	m, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := rawFD(m)
	if err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(fd, true) // package pty made it blocking: Close would wait for Read
	o := &outer{t: t, master: m, cmd: cmd, dir: dir, more: make(chan struct{}, 1), eof: make(chan struct{})}
	go func() {
		defer close(o.eof)
		buf := make([]byte, 4096)
		for {
			n, err := m.Read(buf)
			o.mu.Lock()
			o.seen.Write(buf[:n])
			o.mu.Unlock()
			select {
			case o.more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { cmd.Process.Kill(); m.Close(); <-o.eof })
	return o
}

func (o *outer) output() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen.String()
}

// expect waits until want appears.
func (o *outer) expect(want string) {
	o.t.Helper()
	deadline := time.After(10 * time.Second)
	for !strings.Contains(o.output(), want) {
		select {
		case <-o.more:
		case <-deadline:
			o.t.Fatalf("no %q in %q", want, o.output())
		}
	}
}

func (o *outer) keys(s string) {
	o.t.Helper()
	if _, err := o.master.WriteString(s); err != nil {
		o.t.Fatal(err)
	}
}

func (o *outer) settings() unix.Termios {
	o.t.Helper()
	fd, err := rawFD(o.master)
	if err != nil {
		o.t.Fatal(err)
	}
	tio, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		o.t.Fatal(err)
	}
	return *tio
}

func (o *outer) wait() int {
	o.t.Helper()
	code := 0
	within(o.t, 15*time.Second, "the run on "+o.output(), func() {
		code = exitCode(o.cmd.Wait())
		<-o.eof
	})
	return code
}

func (o *outer) cast() played {
	o.t.Helper()
	p, err := play(member(o.t, o.dir, schema.TerminalPath))
	if err != nil {
		o.t.Fatal(err)
	}
	return p
}

func TestTerminalIsOneToTheChild(t *testing.T) {
	o := onTerminal(t, nil, "sh", "-c", `stty size; test -t 0 && test -t 1 && test -t 2 && echo three; tty >/dev/tty; stty -a | grep -o "[-]*onlcr"; read l; echo "got $l"; exit 7`)
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
	want := schema.Stdio{Mode: ModeTerminal, Terminal: &schema.Stream{Bytes: n, Captured: n}}
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
		o, _ := shellOnTerminal(t, `stty rows 24 -echo min 3; before=$(stty -g); `+script+`; [ "$(stty -g)" = "$before" ] && echo same`)
		o.wait()
		if !strings.Contains(o.output(), "same\r\n") {
			t.Errorf("%s: %q", script, o.output())
		}
	}
}

// shellOnTerminal runs a bash script on a terminal, with $R the runner.
func shellOnTerminal(t testing.TB, script string, args ...string) (*outer, string) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("bash", append([]string{"-c", script}, args...)...)
	cmd.Env = append(os.Environ(), "R="+wrapper(t, dir), "D="+dir, "TERM=xterm-256color")
	return start(t, cmd, dir), dir
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

// Our terminal's end is the child's SIGHUP, if the runner forwards it, and no
// error of ours. What the child still says is recorded.
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
	within(t, 10*time.Second, "a run on a terminal that takes nothing", func() {
		if code := exitCode(cmd.Run()); code != 137 {
			t.Errorf("exit code %d", code)
		}
	})
	if r := readReport(t, dir); len(r.Errors) != 0 {
		t.Error(r.Errors)
	}
}

// Which of the streams are terminals decides what the child gets.
func TestMixedStreams(t *testing.T) {
	const probe = `sh -c 'for fd in 0 1 2; do test -t $fd && echo "$fd" >>$D/ttys; done; echo out; echo err >&2; echo tty >/dev/tty; true'`
	for _, c := range []struct {
		name, script string
		ttys         string
		want         schema.Stdio
	}{
		{"stdout into a pipe", `"$R" ` + probe + ` | cat`, "0\n2\n", schema.Stdio{
			Mode: ModeTerminal, Stdout: &schema.Stream{Bytes: 4, Captured: 4}, Terminal: &schema.Stream{Bytes: 5, Captured: 5}}},
		{"stdin from a pipe", `echo x | "$R" ` + probe, "1\n2\n", schema.Stdio{
			Mode: ModeTerminal, Terminal: &schema.Stream{Bytes: 10, Captured: 10}}},
		{"stderr into a file", `"$R" ` + probe + ` 2>$D/e`, "0\n1\n", schema.Stdio{
			Mode: ModeTerminal, Stderr: &schema.Stream{Bytes: 4, Captured: 4}, Terminal: &schema.Stream{Bytes: 10, Captured: 10}}},
		{"only stdin", `"$R" ` + probe + ` 2>&1 | cat`, "0\n", schema.Stdio{
			Mode: ModePipe, StderrInStdout: true, Stdout: &schema.Stream{Bytes: 8, Captured: 8}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, dir := shellOnTerminal(t, `stty -echo; before=$(stty -g); `+c.script+`; [ "$(stty -g)" = "$before" ] && echo same`)
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
	o, _ := shellOnTerminal(t, `head -1 | "$R" sh -c 'read l; echo "child $l"; echo ready; read k </dev/tty; echo "tty $k"'`)
	o.keys("one\n")
	o.expect("ready\r\n")
	o.keys("two\n")
	o.expect("tty two\r\n")
	if o.wait(); !strings.Contains(o.output(), "child one\r\n") {
		t.Errorf("%q", o.output())
	}
}

func wrapper(t testing.TB, dir string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "runner")
	body := fmt.Sprintf("#!/bin/sh\n%s='%s' exec '%s' \"$@\"\n", spoolEnv, dir, exe)
	if err := os.WriteFile(path, []byte(body), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	return path
}
