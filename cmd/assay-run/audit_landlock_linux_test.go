package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/assay-run/assay-run/.ci/audittest"
	"github.com/assay-run/assay-run/runner/sandbox"
)

// Where the host's audit is on, a run without a kernel layer has what Landlock refused in
// its policy layer, and one with a kernel layer has it once.
func TestDenialsFromTheAudit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can switch the audit on")
	}
	if abi, err := sandbox.LandlockABI(); err != nil || abi < 7 {
		t.Skipf("Landlock does not tell the audit: version %d, %v", abi, err)
	}
	audittest.On(t)
	const signal, write = `"source_event_type":"process_blocked".*"rule":"mode","operation":"signal","target":"process `, `"source_event_type":"file_blocked".*"operation":"write","target":"/etc/assay-run-audit"`
	t.Run("the audit loses records", func(t *testing.T) {
		audittest.LoseRecords(t)
		dir := t.TempDir()
		bundle := filepath.Join(dir, "a.tar.gz")
		cmd := self(t, dir, "-q", "--kernel", "off", "--mode", "workspace-write", "-o", bundle, "--", "sh", "-c",
			"kill -0 1; kill -0 1; true")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		health, err := exec.Command("tar", "-xzOf", bundle, "observation-health.json").Output()
		if err != nil || !bytes.Contains(health, []byte("denials_unread")) {
			t.Errorf("the bundle does not say that records were lost: %v\n%s", err, health)
		}
	})
	for kernel, want := range map[string]map[string]int{
		// The namespace's init is out of reach; without a kernel layer, who tells of a read-only file system?
		"off": {signal: 1}, "auto": {signal: 1, write: 1},
	} {
		t.Run("kernel layer "+kernel, func(t *testing.T) {
			if kernel == "auto" && !observes() {
				t.Skip("no kernel layer can be recorded here; see assay-run doctor")
			}
			dir := t.TempDir()
			bundle := filepath.Join(dir, "a.tar.gz")
			cmd := self(t, dir, "-q", "--kernel", kernel, "--mode", "workspace-write", "-o", bundle, "--", "sh", "-c",
				"kill -0 1; kill -0 1; touch /etc/assay-run-audit; true")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			lines, err := exec.Command("tar", "-xzOf", bundle, "layers/policy.ndjson").Output()
			if err != nil {
				t.Fatal(err)
			}
			for pattern, times := range want {
				if n := len(regexp.MustCompile(pattern).FindAll(lines, -1)); n != times {
					t.Errorf("%s is told of %d times, want %d:\n%s", pattern, n, times, lines)
				}
			}
			verifyBundle(t, bundle, 0)
		})
	}
}
