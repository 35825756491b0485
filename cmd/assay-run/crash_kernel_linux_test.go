package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// Kernel lines are on their way for 250 ms at most, also when nothing follows
// them that would push them out: what happened 300 ms before the runner was
// killed is in the recovered bundle.
func TestLastEventBeforeAKillIsRecovered(t *testing.T) {
	if !observes() {
		t.Skip("no kernel layer can be recorded here; see assay-run doctor")
	}
	dir := t.TempDir()
	mark := filepath.Join(dir, "the-last-event")
	// The pause lets the batch that the start filled be written before.
	cmd := self(t, dir, "-q", "-o", "run.tar.gz", "--run-id", uniqueID(), "--kernel", "require", "--",
		"sh", "-c", `sleep 0.4; : > "$1"; exec sleep 600`, "sh", mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(mark); err == nil {
			break
		}
		if time.Since(start) > 20*time.Second {
			t.Fatal("the command never came to its last act")
		}
	}
	time.Sleep(300 * time.Millisecond) // the bound under test
	_ = cmd.Process.Signal(syscall.SIGKILL)
	_ = cmd.Wait()

	if out, err := self(t, dir, "recover", "--all").CombinedOutput(); err != nil {
		t.Fatalf("recover: %v\n%s", err, out)
	}
	b, err := archive.Open(filepath.Join(dir, "run.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	found := false
	kernelEvents(t, b, func(e *schema.KernelEvent) {
		found = found || e.Kind == schema.KindOpen && e.Value == mark
	})
	if !found {
		t.Errorf("%s was opened 300 ms before the kill, and the recovered layer does not say so", mark)
	}
}
