//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// self starts this test binary as assay-run.
func self(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Args[0] = "assay-run" // testscript.Main goes by the name
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, ".state"))
	return cmd
}

// alive lists the processes whose command line holds word.
func alive(t *testing.T, word string) []string {
	t.Helper()
	var found []string
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		line, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		stat, _ := os.ReadFile(filepath.Join(d, "stat"))
		zombie := bytes.Contains(stat, []byte(") Z "))
		if bytes.Contains(line, []byte(word)) && !zombie {
			found = append(found, filepath.Base(d)+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// The runner is killed at random points of its life. Whatever the point: no
// process of the run survives, the final name holds a whole bundle or
// nothing, and what was recorded can be recovered.
func TestRunnerKilledAtRandomPoints(t *testing.T) {
	layertest.Host(t)
	points := 40
	if layertest.IsNight() {
		points = 200
	}
	// One undisturbed run tells how long the life is that is being cut.
	dir := t.TempDir()
	start := time.Now()
	if out, err := self(t, dir, crashArgs(0, "")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	life := time.Since(start)

	ends := map[string]int{}
	for i := 1; i <= points; i++ {
		after := time.Duration(rand.Int64N(int64(life * 11 / 10)))
		ends[killAt(t, i, after)]++
	}
	if end := killAt(t, points+1, onceItSpoke); end != "recovered" {
		t.Errorf("a run that is killed once its command spoke: %s", end)
	}
	t.Logf("life %v; %v", life, ends)
}

// crashMarker tells the processes of a run from those of all others on the machine.
func crashMarker(i int) string { return fmt.Sprintf("assay-run-crash-test-%d-%d;", os.Getpid(), i) }

// onceItSpoke is not a time but an event: the command's first line is recorded, and the command does not end.
const onceItSpoke = -1

// crashArgs is a run that starts a daemon, writes lines, does what last says and ends by itself.
func crashArgs(i int, last string) []string {
	script := fmt.Sprintf(`: %s setsid sh -c ': %[1]s sleep 600' &
		for n in 1 2 3 4 5 6 7 8 9 10; do echo line $n; sleep 0.005; done
		%s`, crashMarker(i), last)
	return []string{"-q", "-o", "run.tar.gz", "--run-id", fmt.Sprintf("crash-%d-%d", os.Getpid(), i), "--grace", "50ms",
		"--", "sh", "-c", script}
}

func killAt(t *testing.T, i int, after time.Duration) (end string) {
	t.Helper()
	dir := t.TempDir()
	marker := crashMarker(i)
	last := ""
	if after == onceItSpoke {
		last = "sleep 600"
	}
	cmd := self(t, dir, crashArgs(i, last)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after) // the point is random: nothing is waited for
	stdout := filepath.Join(dir, ".state", "assay-run", "spool", "*", schema.StdoutPath)
	for spoke := after != onceItSpoke; !spoke; time.Sleep(5 * time.Millisecond) {
		found, _ := filepath.Glob(stdout)
		for _, f := range found {
			st, err := os.Stat(f)
			spoke = err == nil && st.Size() > 0
		}
	}
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	// The command's own words are also the runner's: only what is not
	// assay-run itself counts.
	if !leaktest.Within(10*time.Second, func() bool { return len(alive(t, marker)) == 0 }) {
		t.Fatalf("killed after %v: survivors: %q", after, alive(t, marker))
	}

	bundle := filepath.Join(dir, "run.tar.gz")
	spools, err := archive.ListSpools(filepath.Join(dir, ".state", "assay-run", "spool"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(bundle)
	switch sealed := err == nil; {
	case sealed:
		verifyBundle(t, bundle, after)
		if len(spools) == 0 {
			return "sealed"
		}
	case !errors.Is(err, os.ErrNotExist):
		t.Fatal(err)
	case len(spools) == 0:
		return "before the spool"
	}
	if len(spools) != 1 {
		t.Fatalf("killed after %v: %d spools", after, len(spools))
	}
	before := countLines(t, filepath.Join(spools[0].Dir, schema.EventsPath))
	out, err := self(t, dir, "recover", "--all").CombinedOutput()
	if err != nil {
		t.Fatalf("killed after %v: recover: %v\n%s", after, err, out)
	}
	if got := verifyBundle(t, bundle, after); got < before {
		t.Errorf("killed after %v: %d lifecycle lines were on disk, %d are in the bundle", after, before, got)
	}
	return "recovered"
}

// verifyBundle checks the bundle and returns its number of lifecycle lines.
func verifyBundle(t *testing.T, path string, after time.Duration) uint64 {
	t.Helper()
	report, err := archive.Verify(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK() {
		t.Fatalf("killed after %v: %s: %v", after, path, report.Problems)
	}
	return report.Lines[schema.EventsPath]
}

func countLines(t *testing.T, path string) uint64 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return uint64(bytes.Count(data, []byte("\n")))
}
