package main

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// Kernel lines reach the spool by themselves, also when nothing follows them that
// would push them out, and what is there when the runner is killed is in the
// recovered bundle.
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
	if !leaktest.Within(20*time.Second, func() bool { _, err := os.Stat(mark); return err == nil }) {
		t.Fatal("the command never came to its last act")
	}
	spooled := func() bool {
		layers, _ := filepath.Glob(filepath.Join(dir, ".state/assay-run/spool/*", schema.KernelPath))
		if len(layers) != 1 {
			return false
		}
		lines, _ := os.ReadFile(layers[0])
		return bytes.Contains(lines, []byte(`"value":"`+mark+`"`))
	}
	if !leaktest.Within(20*time.Second, spooled) {
		t.Errorf("the open of %s does not reach the spool", mark)
	}
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
		t.Errorf("the recovered layer does not say that %s was opened", mark)
	}
}
