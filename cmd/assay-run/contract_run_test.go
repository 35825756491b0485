//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// fifo makes a named pipe, which a check opens to say that it has come so far.
func fifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// heard waits until something was written to the pipe.
func heard(t *testing.T, path string) {
	t.Helper()
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
}

func startGated(t *testing.T, dir, contract string, flags ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(contract), 0o644); err != nil {
		t.Fatal(err)
	}
	fifo(t, filepath.Join(dir, "ready"))
	args := append([]string{"--contract", "c.yaml", "-o", "run.tar.gz", "--result", "result.json"}, flags...)
	cmd := self(t, dir, append(args, "--", "true")...)
	said := &bytes.Buffer{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, said
}

func decodeMember[T any](t *testing.T, dir, path string) *T {
	t.Helper()
	data, err := exec.Command("tar", "-xzOf", filepath.Join(dir, "run.tar.gz"), path).Output()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	v := new(T)
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
	return v
}

// The user interrupts while checks run. The first time the check gets the
// signal, and the others run; the second time that is the end.
func TestInterruptsWhileChecking(t *testing.T) {
	const hang = "{name: first, command: 'echo >ready; exec sleep 1000'}, {name: second, command: 'true'}"
	const stubborn = `{name: first, command: 'trap "echo got it; echo >ready" INT; echo >ready; while :; do sleep 0.05; done'}, {name: second, command: 'true'}`
	for name, c := range map[string]struct {
		checks   string
		baseline bool
		signals  []syscall.Signal
		exit     int
		outcome  string
		ran      []bool
		tail     string
	}{
		"once, and the check dies of it": {hang, false, []syscall.Signal{syscall.SIGINT}, 123, "exited",
			[]bool{false, true}, "check failed to run: interrupted by SIGINT"},
		"twice, as the check goes on": {stubborn, false, []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, 123,
			"cancelled", []bool{false, false}, "interrupted by SIGINT"},
		"once with the end of a terminal": {hang, false, []syscall.Signal{syscall.SIGHUP}, 123, "exited",
			[]bool{false, true}, "check failed to run: interrupted by SIGHUP"},
		"once during the baseline": {hang, true, []syscall.Signal{syscall.SIGTERM}, 143, "cancelled",
			[]bool{false, false}, "check failed to run: the agent never ran: while the contract's baseline was " +
				"evaluated: interrupted by SIGTERM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			flags := []string{"--workdir", "."}
			if c.baseline {
				flags = append(flags, "--contract-baseline")
			}
			cmd, said := startGated(t, dir, "description: d\nchecks: ["+c.checks+"]", flags...)
			for _, sig := range c.signals {
				heard(t, filepath.Join(dir, "ready"))
				if err := cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != c.exit {
				t.Errorf("exit code %d, want %d\n%s", got, c.exit, said)
			}
			verifyBundle(t, filepath.Join(dir, "run.tar.gz"), 0)
			res := decodeMember[schema.Result](t, dir, schema.ResultPath)
			doc := decodeMember[schema.Contract](t, dir, schema.ContractPath)
			if res.Outcome != c.outcome || res.Contract == nil || *res.Contract != schema.VerdictInconclusive {
				t.Errorf("outcome %s, contract %v", res.Outcome, res.Contract)
			}
			for i, r := range doc.Results {
				if r.Ran != c.ran[i] {
					t.Errorf("check %s: ran %v, want %v", r.Name, r.Ran, c.ran[i])
				}
			}
			if !strings.Contains(doc.Results[0].OutputTail, c.tail) {
				t.Errorf("the first check ended with %q, want %q", doc.Results[0].OutputTail, c.tail)
			}
			if left := alive(t, dir); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// ^Z stops the check with the runner, and fg lets both go on.
func TestSuspendWhileChecking(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"),
		[]byte("description: d\nchecks: [{name: slow, command: 'echo >ready; while test ! -e go; do "+
			"echo >>count; done'}]"), 0o644); err != nil {
		t.Fatal(err)
	}
	fifo(t, filepath.Join(dir, "ready"))
	cmd := self(t, dir, "-q", "--contract", "c.yaml", "-o", "run.tar.gz", "--", "true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	heard(t, filepath.Join(dir, "ready"))
	if err := cmd.Process.Signal(syscall.SIGTSTP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("status %v, %v", status, err)
	}
	count := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "count"))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	still := func() bool {
		before := count()
		time.Sleep(50 * time.Millisecond)
		return count() == before
	}
	if !leaktest.Within(5*time.Second, still) { // freezing takes a moment
		t.Fatal("the check goes on while the runner is stopped")
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the run ended with %v", err)
	}
	verifyBundle(t, filepath.Join(dir, "run.tar.gz"), 0)
}

// The runner is killed while a check, and a daemon that the check has started,
// run: nothing survives, and what there is can be recovered and is no verdict.
func TestRunnerKilledWhileChecking(t *testing.T) {
	layertest.Host(t)
	for _, phase := range []string{"baseline", "final"} {
		t.Run(phase, func(t *testing.T) {
			dir := t.TempDir()
			marker := fmt.Sprintf("assay-check-%s-%d;", phase, os.Getpid())
			script := ": " + marker + ` setsid sh -c ": ` + marker + ` echo >ready; sleep 600" & echo begun; sleep 600`
			flags := []string{"--run-id", uniqueID()}
			if phase == "baseline" {
				flags = append(flags, "--contract-baseline")
			}
			cmd, _ := startGated(t, dir,
				"description: d\nchecks: [{name: before, command: 'echo before'}, {name: hang, command: '"+script+"'}]",
				flags...)
			heard(t, filepath.Join(dir, "ready"))
			if n := len(alive(t, marker)); n < 2 {
				t.Fatalf("%d processes of the check are alive", n)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if !leaktest.Within(time.Second, func() bool { return len(alive(t, marker)) == 0 }) {
				t.Fatalf("survivors a second later: %q", alive(t, marker))
			}
			if out, err := self(t, dir, "recover", "--all").CombinedOutput(); err != nil {
				t.Fatalf("recover: %v\n%s", err, out)
			}
			bundle := filepath.Join(dir, "run.tar.gz")
			report, err := archive.Verify(context.Background(), bundle)
			if err != nil || !report.OK() {
				t.Fatalf("%v %v", err, report.Problems)
			}
			res := decodeMember[schema.Result](t, dir, schema.ResultPath)
			doc := decodeMember[schema.Contract](t, dir, schema.ContractPath)
			if res.Outcome != schema.OutcomeIncomplete || res.Contract == nil ||
				*res.Contract != schema.VerdictInconclusive ||
				doc.Verdict != schema.VerdictInconclusive || doc.FileAfter != "unknown" || doc.Results[0].Ran {
				t.Errorf("result %+v, contract.json %+v", res, doc)
			}
			events, err := exec.Command("tar", "-xzOf", bundle, schema.EventsPath).Output()
			if err != nil || !bytes.Contains(events, []byte(`"type":"check_completed"`)) ||
				!bytes.Contains(events, []byte(`"check":"hang","phase":"`+phase)) {
				t.Errorf("events %s, %v", events, err)
			}
		})
	}
}

// The runner is killed while it keeps the cache of a baseline's check: its guard removes the part.
func TestRunnerKilledWhileKeepingACache(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has a cache")
	}
	dir := t.TempDir()
	t.Setenv("CACHE_DIRECTORY", filepath.Join(dir, "caches"))
	part := func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "caches/strict-checks/.making-*"))
		return len(found) > 0
	}
	cmd, said := startGated(t, dir,
		`{description: d, checks: [{name: c, command: 'truncate -s 1G "$XDG_CACHE_HOME/large"'}]}`,
		"--run-id", uniqueID(), "--contract-baseline", "--strict-checks")
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	for running := true; running && !part(); {
		select {
		case <-ended: // it was quicker: then nothing is left either
			running = false
		case <-time.After(time.Millisecond):
		}
	}
	_ = cmd.Process.Kill()
	<-ended
	if !leaktest.Within(30*time.Second, func() bool { return !part() }) {
		t.Errorf("a part of an entry is left\n%s", said)
	}
}

// Checks fill the disk under the spool: copies of their output are lost, and
// lines of layers, but neither the verdict nor a valid bundle. The second time
// contract.json itself is larger than what is kept for the end.
func TestChecksFillTheDisk(t *testing.T) {
	layertest.Host(t)
	if os.Geteuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	for name, checks := range map[string]int{"a few": 3, "many": 150} {
		t.Run(name, func(t *testing.T) {
			dir, disk := t.TempDir(), smallDisk(t, "2m")
			var list []string
			for i := range checks {
				list = append(list, fmt.Sprintf("{name: c%d, command: 'head -c 1000000 /dev/urandom | "+
					"base64; test %d != 1'}", i, i))
			}
			if err := os.WriteFile(filepath.Join(dir, "c.yaml"),
				[]byte("description: d\nchecks: ["+strings.Join(list, ",\n ")+"]"), 0o644); err != nil {
				t.Fatal(err)
			}
			out, _ := self(t, dir, "-q", "--spool-dir", disk, "--contract", "c.yaml", "-o", "run.tar.gz", "--",
				"true").CombinedOutput()
			verifyBundle(t, filepath.Join(dir, "run.tar.gz"), 0)
			doc := decodeMember[schema.Contract](t, dir, schema.ContractPath)
			res := decodeMember[schema.Result](t, dir, schema.ResultPath)
			if doc.Verdict != schema.VerdictFailed || res.Contract == nil || *res.Contract != schema.VerdictFailed {
				t.Errorf("verdict %s, result %v\n%s", doc.Verdict, res.Contract, out)
			}
			if r := doc.Results[2]; !r.Passed || r.OutputError == "" || r.OutputBytes < 1000000 ||
				r.OutputKept >= r.OutputBytes {
				t.Errorf("result %+v", r)
			}
		})
	}
}
