//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/recordertest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/runner/suite"
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/schema"
)

// suiteIn is the command assay-suite run for a suite file with the text, in a directory of its own.
func suiteIn(t *testing.T, dir, text string, flags ...string) *exec.Cmd {
	t.Helper()
	program, err := recordertest.Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "suite.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, append([]string{"run", "suite.yaml", "--dir", "out", "--assay-run",
		filepath.Join(program, "assay-run")}, flags...)...)
	cmd.Args[0] = "assay-suite" // testscript.Main chooses the program by this name
	cmd.Dir, cmd.Stderr = dir, &bytes.Buffer{}
	cmd.Env = append(os.Environ(), "HOME="+dir)
	return cmd
}

// results reads the results in dir, and checks that their bundles verify.
func results(t *testing.T, dir string) *schema.SuiteResults {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "out", "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(schema.SuiteResultsV0, data); err != nil {
		t.Error(err)
	}
	r := &schema.SuiteResults{}
	if err := json.Unmarshal(data, r); err != nil {
		t.Fatal(err)
	}
	for _, a := range r.Attempts {
		if a.Bundle == "" {
			continue
		}
		report, err := archive.Verify(t.Context(), filepath.Join(dir, "out", a.Bundle))
		if err != nil || !report.OK() {
			t.Errorf("%s: the bundle does not verify: %v", a.ID, err)
		}
	}
	return r
}

// TestAKilledSuiteGoesOn kills a suite at random moments. In the end each attempt must have one verdict and one bundle,
// and nothing that the killed processes started may be left.
func TestAKilledSuiteGoesOn(t *testing.T) {
	layertest.Host(t)
	dir := t.TempDir()
	const text = `name: killed
attempts: 8
tasks:
- {name: t, command: "true"}
- {name: u, command: "true", workspace: ws}
agents:
- {name: fast, command: touch it}
- {name: slow, command: sleep 0.3}
`
	if err := os.Mkdir(filepath.Join(dir, "ws"), 0o755); err != nil {
		t.Fatal(err)
	}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	for range 5 {
		cmd := suiteIn(t, dir, text, "--jobs", "2")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	cmd := suiteIn(t, dir, text, "--jobs", "2")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, cmd.Stderr)
	}
	r := results(t, dir)
	if len(r.Attempts) != 32 {
		t.Errorf("there are %d attempts", len(r.Attempts))
	}
	for _, a := range r.Attempts {
		if a.Verdict == nil || *a.Verdict != schema.SuitePassed {
			t.Errorf("%s has the verdict %v: %s", a.ID, a.Verdict, a.Reason)
		}
	}
	oneVerdictEach(t, dir, 32)
	if left, _ := filepath.Glob(filepath.Join(dir, "out", "work", "*", "*")); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	mine := "ASSAY_TASK_PROMPT_FILE=" + dir
	if left := holding(t, mine); len(left) > 0 {
		t.Errorf("processes live on: %v", left)
	}
}

// oneVerdictEach checks in the ledger that n attempts have one verdict each, and that no try is open.
func oneVerdictEach(t *testing.T, dir string, n int) {
	t.Helper()
	lines, err := ledger.Read(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	final, opened := map[suite.Attempt]int{}, map[string]bool{}
	for _, line := range lines {
		switch {
		case line.Kind == ledger.Opened:
			opened[line.Token] = true
		case line.Kind == ledger.Verdict && !opened[line.Token]:
			t.Errorf("line %d decides a try that is not open", line.Seq)
		case line.Kind == ledger.Verdict:
			delete(opened, line.Token)
			if line.Verdict.Verdict != schema.SuiteInfrastructure {
				final[line.Attempt]++
			}
		}
	}
	if len(final) != n || len(opened) != 0 {
		t.Errorf("%d attempts of %d are decided, %d tries are open", len(final), n, len(opened))
	}
	for a, n := range final {
		if n != 1 {
			t.Errorf("%s has %d verdicts", a, n)
		}
	}
}

// TestASuiteWaitsForTheRunsOfAKilledOne kills a suite whose agent ignores SIGTERM. The next suite must wait until that
// run has ended by itself.
func TestASuiteWaitsForTheRunsOfAKilledOne(t *testing.T) {
	layertest.Host(t)
	dir := t.TempDir()
	text := `name: deaf
tasks: [{name: t, command: "true"}]
agents: [{name: a, command: 'trap "" TERM; touch ` + dir + `/began; while [ ! -e ` + dir + `/go ]; do sleep 0.05; done'}]
`
	cmd := suiteIn(t, dir, text)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, err := os.Stat(filepath.Join(dir, "began")); err != nil; _, err = os.Stat(filepath.Join(dir, "began")) {
		time.Sleep(5 * time.Millisecond)
	}
	old := holding(t, "ASSAY_TASK_PROMPT_FILE="+dir)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	again := suiteIn(t, dir, text)
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range old { // the run may take the grace period to end
		for slices.Contains(holding(t, "ASSAY_TASK_PROMPT_FILE="+dir), pid) {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := again.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, again.Stderr)
	}
	if a := results(t, dir).Attempts[0]; *a.Verdict != schema.SuitePassed {
		t.Errorf("it has the verdict %s: %s", *a.Verdict, a.Reason)
	}
}

// holding lists the processes whose environment contains the text.
func holding(t *testing.T, text string) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, d := range dirs {
		if env, _ := os.ReadFile(filepath.Join(d, "environ")); strings.Contains(string(env), text) {
			found = append(found, filepath.Base(d))
		}
	}
	return found
}

// saying collects the stderr of a running command.
type saying struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *saying) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until the output contains the words.
func (s *saying) await(t *testing.T, words string) {
	t.Helper()
	for began := time.Now(); !strings.Contains(s.String(), words); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("it does not say %q but\n%s", words, s)
		}
	}
}

// TestAnInterruptedSuiteGoesOn interrupts a suite once: running attempts must finish. The second time it interrupts it
// twice: they must be cancelled.
func TestAnInterruptedSuiteGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		signals int
		want    string
	}{
		"once, and what runs ends by itself": {1, "1 open; "},
		"twice, and it is cancelled":         {2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			text := `name: interrupted
attempts: 3
tasks: [{name: t, command: "true"}]
agents: [{name: a, command: 'touch ` + dir + `/began; while [ ! -e ` + dir + `/go ]; do sleep 0.05; done'}]
`
			cmd := suiteIn(t, dir, text, "--jobs", "1")
			said := &saying{}
			cmd.Stderr = said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for _, err := os.Stat(filepath.Join(dir, "began")); err != nil; _,
				err = os.Stat(filepath.Join(dir, "began")) {
				time.Sleep(5 * time.Millisecond)
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			said.await(t, "interrupted: ") // or two signals may become one, or the attempt may end first
			if c.signals == 2 {
				_ = cmd.Process.Signal(syscall.SIGINT)
			} else if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != suite.ExitInterrupted {
				t.Fatalf("it ended with %v\n%s", err, cmd.Stderr)
			}
			verdicts := map[string]int{}
			for _, a := range results(t, dir).Attempts {
				switch {
				case len(a.Tries) > 0:
					verdicts[a.Tries[0].Verdict+" "+a.Tries[0].Class]++
				case a.Verdict == nil:
					verdicts["none"]++
				}
			}
			want := map[string]int{"passed ": 1, "none": 2}
			if c.signals == 2 {
				want = map[string]int{"infrastructure interrupted": 1, "none": 2}
			}
			for k, n := range want {
				if verdicts[k] != n {
					t.Errorf("the verdicts are %v, want %v\n%s", verdicts, want, cmd.Stderr)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			again := suiteIn(t, dir, text)
			if err := again.Run(); err != nil {
				t.Fatalf("%v\n%s", err, again.Stderr)
			}
			for _, a := range results(t, dir).Attempts {
				if a.Verdict == nil || *a.Verdict != schema.SuitePassed {
					t.Errorf("%s: %v %s", a.ID, a.Verdict, a.Reason)
				}
			}
		})
	}
}

// TestAnAgentThatKillsItsRecorderWinsNoTries has an agent that kills assay-run.
func TestAnAgentThatKillsItsRecorderWinsNoTries(t *testing.T) {
	if _, err := exec.LookPath("pgrep"); err != nil {
		t.Skipf("the agent finds the recorder with pgrep: %v", err)
	}
	dir := t.TempDir()
	text := `name: killer
retries: 5
tasks: [{name: t, command: "true"}]
agents: [{name: a, command: 'kill -9 $PPID; sleep 1; kill -9 $(pgrep -f "assay-run run --spec ` + dir +
		`") ; sleep 100'}]
`
	cmd := suiteIn(t, dir, text, "--jobs", "1")
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != suite.ExitFailed {
		t.Fatalf("it ended with %v\n%s", err, cmd.Stderr)
	}
	a := results(t, dir).Attempts[0]
	if len(a.Tries) != 1 || *a.Verdict != schema.SuiteFailed || len(a.Suspicions) < 1 ||
		a.Suspicions[0].Rule != suite.RuleRecorderKilled {
		t.Errorf("the attempt is %+v", a)
	}
}

// TestTwoSuitesDoNotShareADirectory starts a suite twice at the same time.
func TestTwoSuitesDoNotShareADirectory(t *testing.T) {
	dir := t.TempDir()
	l, _, _, err := func() (*ledger.Ledger, []ledger.Line, int64, error) {
		if err := os.Mkdir(filepath.Join(dir, "out"), 0o755); err != nil {
			return nil, nil, 0, err
		}
		return ledger.Open(filepath.Join(dir, "out"))
	}()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := suiteIn(t, dir, "name: n\ntasks: [{name: t, command: c}]\nagents: [{name: a, command: \"true\"}]\n")
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) || exit.ExitCode() != suite.ExitBadInput {
		t.Fatalf("it ended with %v\n%s", err, cmd.Stderr)
	}
	if said := cmd.Stderr.(*bytes.Buffer).String(); !strings.Contains(said, "another process runs this suite: ") ||
		!strings.Contains(said, "process ") {
		t.Errorf("it says %s", said)
	}
}
