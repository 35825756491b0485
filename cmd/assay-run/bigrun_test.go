//go:build unix

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
	"github.com/assay-run/assay-run/schema"
)

// What a recorder may hold in memory, in KiB, however much the run writes: on
// its own, and with the kernel layer. Its ring of 8 MiB is mapped twice, one
// behind the other, and so counted twice: it is 8 MiB in the proportional set.
const (
	maxRSS       = 40 << 10
	maxKernelRSS = maxRSS + 8<<10
)

// A gigabyte passes through unchanged, and so does the exit code.
func TestAGigabyteThroughStdout(t *testing.T) {
	layertest.Night(t)
	dir := t.TempDir()
	const script = `openssl enc -aes-128-ctr -nosalt -pass pass:x -in /dev/zero 2>/dev/null | head -c 1073741824; exit 7`
	sum := func(cmd *exec.Cmd) string {
		t.Helper()
		h := sha256.New()
		cmd.Stdout = h
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != 7 {
			t.Fatalf("exit code %d: %v\n%s", cmd.ProcessState.ExitCode(), err, &stderr)
		}
		return fmt.Sprintf("%x", h.Sum(nil))
	}
	want := sum(exec.Command("sh", "-c", script))
	cmd := self(t, dir, "-q", "-o", "a.tar.gz", "--result", "a.json", "--", "sh", "-c", script)
	if got := sum(cmd); got != want {
		t.Errorf("sha256 %s, want %s", got, want)
	}
	r := readResult(t, filepath.Join(dir, "a.json"))
	if r.Stdio.Stdout.Bytes != 1<<30 || r.Stdio.Stdout.Captured != 64<<20 || !r.Stdio.Stdout.Truncated {
		t.Errorf("stdout: %+v", r.Stdio.Stdout)
	}
	verifyBundle(t, filepath.Join(dir, "a.tar.gz"), 0)
}

// Ten million lines leave the recorder as small as ten would.
func TestTenMillionLinesInConstantMemory(t *testing.T) {
	layertest.Night(t)
	if _, err := os.Stat("../../go.mod"); err != nil {
		t.Skipf("the tests run without the module: %v", err)
	}
	program := filepath.Join(t.TempDir(), "assay-run") // a test binary also has what the tests import
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for kernel, most := range map[string]int64{"off": maxRSS, "auto": maxKernelRSS} {
		t.Run("kernel "+kernel, func(t *testing.T) {
			dir := t.TempDir()
			run := self(t, dir, "-q", "-o", "a.tar.gz", "--kernel", kernel, "--capture-bytes", "1G", "--", "seq",
				"10000000")
			cmd := self(t, dir)
			cmd.Args = append([]string{"resident", program}, run.Args...)
			cmd.Stdout = io.Discard
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, &stderr)
			}
			rss, err := strconv.ParseInt(stderr.String(), 10, 64)
			if err != nil {
				t.Fatalf("stderr has more than the resident set: %q", &stderr)
			}
			t.Logf("largest resident set %d KiB", rss)
			if rss > most {
				t.Errorf("largest resident set %d KiB, at most %d", rss, most)
			}
			verifyBundle(t, filepath.Join(dir, "a.tar.gz"), 0)
		})
	}
}

// resident runs a program and writes its largest resident set, in KiB, to
// stderr: resident PATH ARG0 [ARG...]. Linux counts to a process the memory of
// the one that started it, as it was then. A process of tests can be large, and
// this one is small.
func resident() {
	cmd := exec.Command(os.Args[1])
	cmd.Args = os.Args[2:]
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "resident:", err)
		os.Exit(1)
	}
	fmt.Fprint(os.Stderr, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
}

// A full disk under the spool loses lines, says so, and leaves a bundle; one
// under the output keeps the spool for when there is room.
func TestFullDisks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	t.Run("under the spool", func(t *testing.T) {
		dir, disk := t.TempDir(), smallDisk(t, "2m")
		cmd := self(t, dir, "--spool-dir", disk, "-o", "a.tar.gz", "--result", "a.json",
			"--", "sh", "-c", "head -c 10000000 /dev/zero; exit 4")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		n := 0
		cmd.Stdout = writerFunc(func(b []byte) (int, error) { n += len(b); return len(b), nil })
		_ = cmd.Run()
		if n != 10000000 {
			t.Errorf("%d bytes passed through, want all of 10000000", n)
		}
		r := readResult(t, filepath.Join(dir, "a.json"))
		if r.ExitCode == nil || *r.ExitCode != 4 {
			t.Errorf("exit code %v, want the command's own 4", r.ExitCode)
		}
		if code := cmd.ProcessState.ExitCode(); code != 125 || r.Error == nil || r.Error.Code != "evidence_missing" {
			t.Errorf("assay-run exited with %d (%+v), want 125 for missing evidence", code, r.Error)
		}
		if !r.Stdio.Stdout.Truncated {
			t.Errorf("stdout: %+v, want it marked truncated\n%s", r.Stdio.Stdout, &stderr)
		}
		if !strings.Contains(stderr.String(),
			"warning: evidence is missing: the recorded copy of stdout is incomplete") {
			t.Errorf("no warning that evidence is missing:\n%s", &stderr)
		}
		if observes() && !strings.Contains(stderr.String(), "events could not be written") {
			t.Errorf("no warning that kernel events are missing:\n%s", &stderr)
		}
		verifyBundle(t, filepath.Join(dir, "a.tar.gz"), 0)
		if left, _ := filepath.Glob(filepath.Join(disk, "*")); len(left) != 0 {
			t.Errorf("left on the spool's disk: %q", left)
		}
	})
	t.Run("under the output", func(t *testing.T) {
		dir, disk := t.TempDir(), smallDisk(t, "256k")
		output := filepath.Join(disk, "a.tar.gz")
		id := uniqueID()
		cmd := self(t, dir, "-o", output, "--run-id", id, "--", "head", "-c", "3000000", "/dev/urandom")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 125 {
			t.Errorf("exit code %d, want 125\n%s", code, &stderr)
		}
		if !strings.Contains(stderr.String(), "no space left") ||
			!strings.Contains(stderr.String(), "recover --spool-dir") {
			t.Errorf("message does not say what happened and what to do:\n%s", &stderr)
		}
		if left, _ := filepath.Glob(filepath.Join(disk, "*")); len(left) != 0 {
			t.Errorf("left on the output's disk: %q", left)
		}
		if out, err := exec.Command("mount", "-o", "remount,size=16m", disk).CombinedOutput(); err != nil {
			t.Fatalf("remount: %v\n%s", err, out)
		}
		if out, err := self(t, dir, "recover", id).CombinedOutput(); err != nil {
			t.Fatalf("recover: %v\n%s", err, out)
		}
		verifyBundle(t, output, 0)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// smallDisk is a tmpfs of the given size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount tmpfs: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v\n%s", dir, err, out)
		}
	})
	return dir
}

func readResult(t *testing.T, path string) schema.Result {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r schema.Result
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}
