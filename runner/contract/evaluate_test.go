package contract

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/contractfile"
)

// members keeps what an evaluation writes to the bundle.
type members map[string]*member

type member struct {
	bytes.Buffer
	closed bool
}

func (m *member) Close() error { m.closed = true; return nil }

func (ms members) open(path string) (io.WriteCloser, error) {
	ms[path] = &member{}
	return ms[path], nil
}

func check(name, command string) schema.Check {
	return schema.Check{Name: name, Command: command, ExpectExitZero: true, TimeoutSecs: 30}
}

func expecting(c schema.Check, text string) schema.Check {
	c.OutputContains = &text
	return c
}

func unless0(c schema.Check) schema.Check {
	c.ExpectExitZero = false
	return c
}

func evaluate(t *testing.T, dir string, opts Options, checks ...schema.Check) *Evaluation {
	t.Helper()
	opts.Workdir = dir
	e, err := Evaluate(t.Context(), &contractfile.Contract{Checks: checks}, Shell{Dir: dir}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestOneCheckInARealDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "answer"), []byte("forty-two\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	code := func(n int) *int { return &n }
	for name, c := range map[string]struct {
		check   schema.Check
		verdict string
		code    *int
		tail    string
	}{
		"a passing check": {check("c", "cat answer"), "passed", code(0), "forty-two\n"},
		"a failing check": {check("c", "echo no; exit 3"), "failed", code(3), "no\n"},
		"a missing command": {check("c", "no-such-command-here"), "failed", code(127),
			"no-such-command-here"},
		"a missing file": {check("c", "cat nothing"), "failed", code(1), "nothing"},
		"output that contains the text": {expecting(check("c", "cat answer"), "ty-tw"), "passed", code(0),
			"forty-two\n"},
		"output without the text": {expecting(check("c", "cat answer"), "fifty"), "failed", code(0),
			"forty-two\n"},
		"the text, but a bad exit": {expecting(check("c", "cat answer; false"), "forty"), "failed",
			code(1), "forty-two\n"},
		"the text, and no exit asked for": {unless0(expecting(check("c", "cat answer; exit 9"), "forty")),
			"passed", code(9), "forty-two\n"},
		"no exit asked for, and no text": {unless0(expecting(check("c", "exit 9"), "forty")), "failed",
			code(9), ""},
		"text on stderr": {expecting(check("c", "echo err >&2"), "err"), "passed", code(0),
			"err\n"},
		"death by a signal":       {check("c", "kill -SEGV $$"), "failed", nil, ""},
		"standard input is empty": {check("c", "! read line"), "passed", code(0), ""},
		"there is no terminal": {check("c",
			"! (: </dev/tty) && ! test -t 0 && ! test -t 1 && ! test -t 2"), "passed", code(0), "tty"},
		"the directory is the working one": {check("c", "test \"$PWD\" = \"$(pwd)\" && test -f answer"),
			"passed", code(0), ""},
		"a command of several lines": {check("c", "set -e\nx=forty\ngrep -q $x answer"), "passed", code(0),
			""},
		"invalid UTF-8 in the output":             {check("c", "printf 'a\\377b'"), "passed", code(0), "a\uFFFDb"},
		"a process left behind in the background": {check("c", "sleep 1000 & echo left"), "passed", code(0), "left\n"},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			e := evaluate(t, dir, Options{}, c.check)
			if took := time.Since(begin); took > 100*time.Second {
				t.Errorf("took %v", took)
			}
			r := e.Results[0]
			if e.Verdict != c.verdict || r.Passed != (c.verdict == "passed") || !r.Ran {
				t.Errorf("verdict %s, result %+v; want %s", e.Verdict, r, c.verdict)
			}
			if d := cmp.Diff(c.code, r.ExitCode); d != "" {
				t.Errorf("exit code (-want +got):\n%s", d)
			}
			if !strings.Contains(r.OutputTail, c.tail) {
				t.Errorf("tail %q, want %q", r.OutputTail, c.tail)
			}
			if (len(e.Reasons) == 0) != (c.verdict == "passed") {
				t.Errorf("reasons %q", e.Reasons)
			}
		})
	}
}

func TestAHangingCheckIsKilledWholeAtItsTimeout(t *testing.T) {
	dir := t.TempDir()
	hang := check("hang", "echo begun; (trap '' TERM HUP; sleep 1000 & echo $! >child; wait) & wait")
	hang.TimeoutSecs = 1
	begin := time.Now()
	r := evaluate(t, dir, Options{}, hang).Results[0]
	if took := time.Since(begin); took < time.Second || took > 100*time.Second {
		t.Errorf("took %v, want about 1 s", took)
	}
	if !r.TimedOut || r.Passed || !r.Ran || r.ExitCode != nil || r.OutputTail != "begun\n" || r.DurationMS < 1000 {
		t.Errorf("result %+v", r)
	}
	assertGone(t, filepath.Join(dir, "child"))
}

// assertGone fails if the process whose number file holds is alive.
func assertGone(t *testing.T, file string) {
	t.Helper()
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	gone := func() bool { // a zombie is: it only waits for init to notice
		state, _ := exec.Command("ps", "-o", "stat=", "-p", strings.TrimSpace(string(pid))).Output()
		return len(state) == 0 || state[0] == 'Z'
	}
	if !leaktest.Within(time.Minute, gone) { // it was killed, and a busy machine ends it when it comes to it
		t.Errorf("process %s is still there", pid)
	}
}

func TestAForkingCheckLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	r := evaluate(t, dir, Options{},
		check("fork", "for i in 1 2 3 4 5 6 7 8; do (sleep 1000 & sleep 1000) & done; "+
			"sleep 1000 & echo $! >child")).Results[0]
	if !r.Passed {
		t.Errorf("result %+v", r)
	}
	assertGone(t, filepath.Join(dir, "child"))
}

func TestAProcessThatKeepsTheOutputOpenDoesNotHangTheCheck(t *testing.T) {
	dir := t.TempDir()
	begin := time.Now()
	r := evaluate(t, dir, Options{},
		check("escape", "setsid sh -c 'echo $$ >child; exec sleep 1000' & "+
			"while ! test -s child; do :; done; echo done")).Results[0]
	t.Cleanup(func() {
		exec.Command("sh", "-c", `kill -9 "$(cat "$0")"`, filepath.Join(dir, "child")).Run()
	})
	if took := time.Since(begin); took > 100*time.Second {
		t.Errorf("took %v", took)
	}
	if !r.Passed || r.OutputTail != "done\n" {
		t.Errorf("result %+v", r)
	}
}

func TestAnEndlessFloodStopsAtItsTimeout(t *testing.T) {
	flood := check("flood", "yes")
	flood.TimeoutSecs = 1
	r := evaluate(t, t.TempDir(), Options{}, flood).Results[0]
	if !r.TimedOut || r.OutputBytes < 1<<20 || len(r.OutputTail) != 4096 {
		t.Errorf("timed out %v, bytes %d, tail %d", r.TimedOut, r.OutputBytes, len(r.OutputTail))
	}
}

func TestAnUnrunnableCheckIsInconclusive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	e := evaluate(t, dir, Options{}, check("c", "true"))
	r := e.Results[0]
	if e.Verdict != schema.VerdictInconclusive || r.Ran || r.Passed || r.ExitCode != nil {
		t.Errorf("verdict %s, result %+v", e.Verdict, r)
	}
	if !strings.HasPrefix(r.OutputTail, "check failed to run: ") || !strings.Contains(r.OutputTail, "no such file") {
		t.Errorf("tail %q", r.OutputTail)
	}
}

// brokenExecutor cannot run the checks that fail names.
type brokenExecutor struct{ fail map[string]bool }

func (b brokenExecutor) Run(ctx context.Context, c schema.Check, index int, out io.Writer) (ExitStatus, error) {
	if b.fail[c.Name] {
		return ExitStatus{}, errors.New("no cgroup")
	}
	return Shell{}.Run(ctx, c, index, out)
}

func TestTheVerdictOfSeveralChecks(t *testing.T) {
	pass, fail, broken := check("pass", "true"), check("fail", "false"), check("broken", "true")
	for name, c := range map[string]struct {
		checks  []schema.Check
		verdict string
	}{
		"all pass":                                {[]schema.Check{pass, pass}, "passed"},
		"all run, also after a failure":           {[]schema.Check{fail, pass}, "failed"},
		"one could not run":                       {[]schema.Check{broken, pass}, "inconclusive"},
		"a failure decides before a broken check": {[]schema.Check{fail, broken}, "failed"},
		"a failure decides after a broken check":  {[]schema.Check{broken, fail}, "failed"},
		"no checks prove nothing":                 {nil, "inconclusive"},
	} {
		t.Run(name, func(t *testing.T) {
			var started, completed []string
			e, err := Evaluate(t.Context(), &contractfile.Contract{Checks: c.checks},
				brokenExecutor{map[string]bool{"broken": true}}, Options{
					Started: func(_ Phase, c schema.Check) { started = append(started, c.Name) },
					Completed: func(_ Phase, c schema.Check, r schema.CheckResult) {
						completed = append(completed,
							r.Name)
					},
				})
			if err != nil {
				t.Fatal(err)
			}
			if e.Verdict != c.verdict || len(e.Results) != len(c.checks) {
				t.Errorf("verdict %s with %d results, want %s", e.Verdict, len(e.Results), c.verdict)
			}
			var want []string
			for _, c := range c.checks {
				want = append(want, c.Name)
			}
			if d := cmp.Diff(want, started) + cmp.Diff(want, completed); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
		})
	}
}

func TestCancellingCutsTheEvaluationShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	c := &contractfile.Contract{Checks: []schema.Check{check("first", "true"), check("second", "sleep 1000"),
		check("third", "true")}}
	e, err := Evaluate(ctx, c, Shell{Dir: dir}, Options{Started: func(_ Phase, c schema.Check) {
		if c.Name == "second" {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if e.Verdict != schema.VerdictInconclusive || !e.Results[0].Passed || e.Results[1].Ran || e.Results[2].Ran {
		t.Errorf("evaluation %+v", e)
	}
}

func TestCancellingKillsARunningCheck(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	c := check("hang", "sleep 1000 & echo $! >child; echo ready; wait")
	_, err := Shell{Dir: dir}.Run(ctx, c, 1, writerFunc(func(p []byte) (int, error) { cancel(); return len(p), nil }))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	assertGone(t, filepath.Join(dir, "child"))
}

func TestRerunRunsTheCheckByHand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := evaluate(t, dir, Options{}, check("c", "echo \"it's $((1+1))\"; pwd; exit 5")).Results[0]
	out, err := exec.Command("sh", "-c", r.Rerun).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 5 || string(out) != r.OutputTail ||
		!strings.HasPrefix(string(out), "it's 2\n") {
		t.Errorf("rerun gives %v and %q, the check gave %q", err, out, r.OutputTail)
	}
}
