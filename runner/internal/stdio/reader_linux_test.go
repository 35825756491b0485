package stdio

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/schema"
)

// The child must learn that a reader left as it would without us: yes by SIGPIPE, and a child that ignores it by
// EPIPE.
func TestReaderLeaves(t *testing.T) {
	dir := t.TempDir()
	out, err := runShell(t, dir, `"$R" yes | head -1; echo "${PIPESTATUS[@]}"`)
	if err != nil || out != "y\n141 0\n" {
		t.Errorf("%q %v", out, err)
	}
	out, err = runShell(t, t.TempDir(),
		`"$R" bash -c 'trap "" PIPE; for i in {1..1000}; do echo x 2>/dev/null || exit 9; sleep 0.01; done' | true; echo "${PIPESTATUS[@]}"`)
	if err != nil || out != "9 0\n" {
		t.Errorf("%q %v", out, err)
	}
}

// The very first write after the reader has left must fail already.
func TestReaderLeavesWhileTheChildIsQuiet(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd, dir := runner(t, nil, "bash", "-c",
		`readlink /proc/$$/fd/1 >"$0.new"; mv "$0.new" "$0"; read; trap "" PIPE; echo x || exit 9`)
	named := filepath.Join(dir, "pipe") // the child's stdout
	cmd.Args = append(cmd.Args, named)
	cmd.Stdout = w
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	var pipe []byte
	if !leaktest.Within(time.Minute, func() bool { pipe, err = os.ReadFile(named); return err == nil }) {
		t.Fatal(err)
	}
	holds := func() bool {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
		return slices.ContainsFunc(fds, func(fd string) bool {
			to, _ := os.Readlink(fd)
			return to == strings.TrimSpace(string(pipe))
		})
	}
	if !holds() {
		t.Error("the runner does not read the child's stdout: the test tests nothing")
	}
	r.Close()
	if !leaktest.Within(time.Minute, func() bool { return !holds() }) {
		t.Error("the runner goes on reading for a reader that left")
	}
	io.WriteString(stdin, "go\n")
	stdin.Close()
	if code := exitCode(cmd.Wait()); code != 9 {
		t.Errorf("exit code %d, want 9", code)
	}
}

// A stopped reader stops the child, after at most the pipes in between, and loses nothing, even if the child has
// ended when it continues.
func TestSlowReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd, dir := runner(t, nil, "dd", "if=/dev/zero", "bs=4096", "count=100", "status=none")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	// Read nothing until the copy has filled the pipe and stands still: the child is blocked.
	var size, last int64 = 0, -1
	for size < 64<<10 || size != last {
		last = size
		time.Sleep(200 * time.Millisecond)
		if st, err := os.Stat(filepath.Join(dir, schema.StdoutPath)); err == nil {
			size = st.Size()
		}
	}
	if size > 2*64<<10+chunk {
		t.Errorf("the child ran %d bytes ahead", size)
	}
	n, err := io.Copy(io.Discard, r)
	if err != nil || n != 409600 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestChildIsGoneBeforeItsReaderReads(t *testing.T) {
	// 100 kB fit into the two pipes: the child exits at once.
	out, err := runShell(t, t.TempDir(), `"$R" head -c 100000 /dev/zero | (sleep 1; wc -c)`)
	if err != nil || strings.TrimSpace(out) != "100000" {
		t.Errorf("%q %v", out, err)
	}
}

// The grace limits the wait for a reader that never reads.
func TestReaderNeverReads(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, to := range []string{"pipe", "socket"} {
		out := w
		if to == "socket" {
			fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			out = os.NewFile(uintptr(fds[0]), "a")
			defer syscall.Close(fds[1])
		}
		cmd, _ := runner(t, []string{"STDIO_TEST_GRACE=300ms"}, "timeout", "-s", "KILL", "0.5", "yes")
		cmd.Stdout = out
		within(t, time.Minute, "a run whose reader never reads", func() {
			if code := exitCode(cmd.Run()); code != 137 {
				t.Errorf("exit code %d", code)
			}
		})
		out.Close()
	}
}
