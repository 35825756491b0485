package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/kernel/notify"
	"github.com/assay-run/assay-run/schema"
)

// A runner that is killed while a thousand calls wait for its answer leaves none of
// their processes: the guard ends them, and the spool can be recovered.
func TestRunnerKilledWhileCallsWait(t *testing.T) {
	if err := notify.Probe(); err != nil {
		t.Skip(err)
	}
	need(t, "/usr/bin/python3")
	dir := t.TempDir()
	mark := fmt.Sprintf("assay-run-notify-test-%d", os.Getpid())
	cmd := self(t, dir, "-q", "-o", "run.tar.gz", "--run-id", uniqueID(), "--kernel", "notify", "--",
		"/usr/bin/python3", "-c", `
import threading, time
def wait():
    while True:
        time.sleep(0.2)
        try: open("/no/such/file")
        except OSError: pass
threading.stack_size(65536)
for i in range(1000): threading.Thread(target=wait).start()
time.sleep(1) # the first of their calls are on disk
open("`+mark+`", "w")
time.sleep(600)
`, mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	exists := func() bool { _, err := os.Stat(filepath.Join(dir, mark)); return err == nil }
	if !leaktest.Within(time.Minute, exists) {
		t.Fatal("the threads do not start")
	}
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	waiting := func() (n int) {
		var calls []string
		for _, p := range alive(t, mark) {
			pid, _, _ := strings.Cut(p, " ")
			tasks, _ := filepath.Glob("/proc/" + pid + "/task/*/syscall")
			calls = append(calls, tasks...)
		}
		for _, name := range calls {
			b, _ := os.ReadFile(name)
			if strings.HasPrefix(string(b), fmt.Sprintf("%d ", syscall.SYS_OPENAT)) {
				n++
			}
		}
		return n
	}
	if !leaktest.Within(time.Minute, func() bool { return waiting() >= 1000 }) {
		t.Fatalf("%d calls wait, want 1000", waiting())
	}
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()
	if !leaktest.Within(time.Minute, func() bool { return len(alive(t, mark)) == 0 }) {
		t.Errorf("alive after the runner's end: %v", alive(t, mark))
	}
	if out, err := self(t, dir, "recover", "--all").CombinedOutput(); err != nil {
		t.Fatalf("recover: %v\n%s", err, out)
	}
	verifyBundle(t, filepath.Join(dir, "run.tar.gz"), 0)
	b, err := archive.Open(filepath.Join(dir, "run.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	kernelEvents(t, b, func(e *schema.KernelEvent) {
		if e.Value == "/no/such/file" {
			n++
		}
	})
	if n == 0 {
		t.Error("what happened before the kill is not in the recovered layer")
	}
}
