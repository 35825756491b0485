//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
)

// A full-screen program in a terminal: it is drawn, resized, typed at and left,
// and the session is kept as a cast.
func TestFullScreenProgramInATerminal(t *testing.T) {
	x := prepareTmux(t)
	text := x.file("text", "the first line\n"+strings.Repeat("more\n", 200)+"the last line\n")
	result, bundle := filepath.Join(x.Dir, "result.json"), filepath.Join(x.Dir, "a.tar.gz")
	x.start("sh", "-c", filepath.Join(x.Dir, "assay-run")+" -q -o "+bundle+" --result "+result+
		" -- sh -c 'stty size; less "+text+"; exit 5'; echo status $?; cat")
	x.Expect("the first line")
	x.Key("G")
	x.Expect("the last line")
	// A less that is resized while it draws begins its new page at another line, with or without a runner.
	firstPage := func(rows int) func(string) bool {
		return func(s string) bool {
			screen := strings.Split(strings.TrimRight(s, "\n"), "\n")
			return len(screen) == rows && screen[0] == "the first line" && screen[rows-1] == ":" &&
				strings.Count(strings.Join(screen, " "), "more") == rows-2
		}
	}
	x.Key("g")
	x.WaitFor("the first page of 24 rows", firstPage(24))
	x.Run("resize-window", "-x", "60", "-y", "12")
	x.WaitFor("the first page of twelve rows", firstPage(12))
	x.Key("q")
	x.Expect("status 5")

	if r := readResult(t, result); r.Stdio.Mode != "terminal" || r.Stdio.Terminal == nil ||
		r.Stdio.Terminal.Bytes == 0 {
		t.Errorf("stdio: %+v", r.Stdio)
	}
	cast := readCast(t, bundle)
	for _, want := range []string{"24 80", "the first line", "the last line", "60x12"} {
		if !strings.Contains(cast, want) {
			t.Errorf("the cast does not hold %q", want)
		}
	}
	verifyBundle(t, bundle, 0)
}

// ^Z gives the shell back, and fg the program, also where the program handles
// the key itself: it restores its screen and then stops by the signal's default
// action, which the kernel takes only in a group with a parent in its session.
func TestSuspendKey(t *testing.T) {
	const catcher = `
import os, signal, sys
def stop(*_):
    print("caught", flush=True)
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, stop)
    print("back", flush=True)
signal.signal(signal.SIGTSTP, stop)
print("ready", flush=True)
for line in sys.stdin:
    print("<" + line.strip() + ">", flush=True)
sys.exit(3)
`
	// No commands of dash: it waits in vfork(2) for what it starts, where a key
	// that stops that does not stop dash, with or without a runner.
	for _, c := range []struct {
		name    string
		command string
		shows   string // when it has started
		again   string // after fg
		use     func(x *tmux)
		exit    string
	}{
		{"vim", "vim -u NONE text", `(?m)^7\n8\n9$`, `(?m)^7\n8\n9$`, func(x *tmux) { x.Line(":cq 4") }, "4"},
		{"less", "less text", `(?m)^7\n8\n9$`, `(?m)^7\n8\n9$`, func(x *tmux) { x.Key("q") }, "0"},
		{"a program that catches SIGTSTP", "python3 catcher.py", `(?m)^ready$`, `(?m)^back$`, func(x *tmux) {
			x.Line("hello")
			x.Expect("<hello>")
			x.Key("C-d")
		}, "3"},
		{"one that does not", "bash -c 'echo ready; cat; exit 3'", `(?m)^ready$`, `(?m)^\./assay-run`, func(x *tmux) {
			x.Line("hello")
			x.Expect(`(?m)^hello\nhello$`)
			x.Key("C-d")
		}, "3"},
		{"a shell's pipeline", "bash -c 'echo ready; cat | cat; exit 3'", `(?m)^ready$`, `(?m)^\./assay-run`,
			func(x *tmux) {
				x.Line("hello")
				x.Expect(`(?m)^hello\nhello$`)
				x.Key("C-d")
			}, "3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			need(t, strings.Fields(c.command)[0])
			x := prepareTmux(t)
			x.file("text", "7\n8\n9\n")
			x.file("catcher.py", catcher)
			x.bash()
			x.Line(`before=$(stty -g); clear; ./assay-run -q -o a.tar.gz -- ` + c.command)
			x.Expect(c.shows)
			for n := range 2 {
				x.Key("C-z")
				x.Expect(`Stopped +./assay-run`)
				x.Line(`clear; [ "$(stty -g)" = "$before" ] && echo "the same"`)
				x.Expect(`(?m)^the same$`)
				x.Line("clear; fg")
				x.Expect(c.again)
				x.continued(n + 1)
			}
			c.use(x)
			x.Expect(`(?m)^` + c.exit + ` >`)
			x.Line(`clear; [ "$(stty -g)" = "$before" ] && echo "the same"`)
			x.Expect(`(?m)^the same$`)
			bundle := filepath.Join(x.Dir, "a.tar.gz")
			verifyBundle(t, bundle, 0)
			events := member(t, bundle, "events.ndjson")
			if n := strings.Count(events, `"stopped"`); n != 2 {
				t.Errorf("%d stops in\n%s", n, events)
			}
			if n := strings.Count(events, `"continued"`); n != 2 {
				t.Errorf("%d continuations in\n%s", n, events)
			}
		})
	}
}

// A shell inside has its own jobs, and is one itself.
func TestShellInside(t *testing.T) {
	x := prepareTmux(t)
	x.bash()
	x.Line(`clear; ./assay-run -q -o a.tar.gz -- bash --noprofile --norc -i`)
	x.Expect(`bash-[0-9.]+[#$]`)
	x.Line(`PS1='in $? > '; clear`)
	x.Expect(`(?m)^in 0 >`)
	x.Line(`less /proc/self/limits`)
	x.Expect(`Max cpu time`)
	x.Key("C-z")
	x.Expect(`(?m)Stopped +less`)
	x.Line(`clear; suspend`)
	x.Expect(`(?m)Stopped +./assay-run`)
	x.Line(`clear; fg`)
	x.Expect(`(?m)^in [0-9]+ >`)
	x.Line(`fg`)
	x.Expect(`Max cpu time`)
	x.Key("q")
	x.Expect(`(?m)^in 0 >`)
	x.Line(`clear; exit 9`)
	x.Expect(`(?m)^9 >`)
}

// A runner that is SIGKILLed leaves the terminal as it found it, also where a
// shell without job control, which restores nothing, goes on with its script.
func TestKilledRunnerRestoresTheTerminal(t *testing.T) {
	for _, wrap := range []string{"%s", "sh -c '%s; sleep 0.3'"} {
		x := prepareTmux(t)
		x.bash()
		x.Line(`before=$(stty -g); clear; ` +
			strings.Replace(wrap, "%s", `./assay-run -q -- sh -c "echo \$PPID \$\$ >pids; echo ready; exec sleep 1000"`,
				1))
		x.Expect(`(?m)^ready$`)
		pids := pidsIn(t, x.Dir)
		if err := syscall.Kill(parentOf(t, pids[0]), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		gone(t, pids, time.Second)
		x.Expect(`[0-9]+ >`)
		x.Line(`clear; stty -a | tr " ;" "\n\n" | grep -x -e -icanon -e icanon -e -echo -e echo; [ "$(stty -g)" = "$before" ] && echo "the same"`)
		x.Expect(`(?m)^icanon\necho\nthe same$`)
	}
}

// The helper in the place of a shell can be killed by the command. How that ends
// cannot be told then, so the run is over, and says why.
func TestKilledLeader(t *testing.T) {
	x := prepareTmux(t)
	x.bash()
	x.Line(`clear; ./assay-run -q -o a.tar.gz -- sh -c 'sleep 1000 & echo $$ $! >pids; sleep 0.2; kill -9 $PPID; exec sleep 1000'`)
	x.Expect(`(?s)the leader of the command's terminal session is go.*125 >`)
	bundle := filepath.Join(x.Dir, "a.tar.gz")
	verifyBundle(t, bundle, 0)
	if n := strings.Count(member(t, bundle, "events.ndjson"), "terminal_session_lost"); n != 1 {
		t.Errorf("%d events tell of it", n)
	}
	if result := member(t, bundle, "result.json"); !strings.Contains(result, `"outcome": "infra_error"`) {
		t.Error(result)
	}
	gone(t, pidsIn(t, x.Dir), 0)
}

// pidsIn reads what a command wrote to its file pids.
func pidsIn(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pids"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

// stat returns what follows the name in proc_pid_stat(5): state, ppid, ...; nil
// for a process that is gone or a zombie.
func stat(pid string) []string {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	_, rest, _ := strings.Cut(string(text), ") ")
	if err != nil || strings.HasPrefix(rest, "Z") {
		return nil
	}
	return strings.Fields(rest)
}

func parentOf(t *testing.T, pid string) int {
	t.Helper()
	st := stat(pid)
	if st == nil {
		t.Fatalf("process %s is gone", pid)
	}
	ppid, err := strconv.Atoi(st[1])
	if err != nil {
		t.Fatal(err)
	}
	return ppid
}

// gone fails unless each process ends within a time, as leaktest counts it.
func gone(t *testing.T, pids []string, within time.Duration) {
	t.Helper()
	for _, pid := range pids {
		if !leaktest.Within(within, func() bool { return stat(pid) == nil }) {
			t.Errorf("process %s is left: %v", pid, stat(pid))
		}
	}
}

// readCast returns what a player of the bundle's asciicast would be given.
func readCast(t *testing.T, bundle string) string {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(member(t, bundle, "stdio/terminal.cast")))
	if !lines.Scan() {
		t.Fatal("the cast is empty")
	}
	var header struct{ Version int }
	if err := json.Unmarshal(lines.Bytes(), &header); err != nil || header.Version != 3 {
		t.Fatalf("header %s: version %d, %v", lines.Bytes(), header.Version, err)
	}
	var all strings.Builder
	for lines.Scan() {
		var event []any
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil || len(event) != 3 {
			t.Fatalf("line %s: %v", lines.Bytes(), err)
		}
		all.WriteString(event[2].(string))
	}
	return all.String()
}

// member returns a member of a bundle.
func member(t *testing.T, bundle, name string) string {
	t.Helper()
	out, err := exec.Command("tar", "-xOf", bundle, name).Output()
	if err != nil {
		t.Fatalf("tar: %v", err)
	}
	return string(out)
}
