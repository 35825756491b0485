package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// TestARunEndsWithItsLifeline closes the other end of a run's lifeline: what the command started is gone, and the
// bundle says that the run was cancelled.
func TestARunEndsWithItsLifeline(t *testing.T) {
	for name, command := range map[string]string{
		"a command that ends":         `touch ready; exec sleep 1000`,
		"a command that stays":        `trap "" TERM INT; touch ready; while :; do sleep 0.05; done`,
		"a command that looks for it": `[ -e /proc/self/fd/3 ] && touch inherited; touch ready; exec sleep 1000`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			var stderr bytes.Buffer
			cmd := self(t, dir, "--lifeline", "3", "--grace", "100ms", "--result", "result.json", "-o", "run.tar.gz",
				"--", "sh", "-c", command)
			cmd.ExtraFiles, cmd.Stderr = []*os.File{r}, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			for ready := filepath.Join(dir, "ready"); ; time.Sleep(5 * time.Millisecond) {
				if _, err := os.Stat(ready); err == nil {
					break
				}
				select {
				case err := <-ended:
					t.Fatalf("it ended before: %v\n%s", err, &stderr)
				default:
				}
			}
			if _, err := w.WriteString("still here"); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				t.Fatalf("it ended while its lifeline was held: %v\n%s", err, &stderr)
			case <-time.After(200 * time.Millisecond):
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := <-ended; !errors.As(err, &exit) {
				t.Fatalf("it ended with %v, want a failure\n%s", err, &stderr)
			}
			var res schema.Result
			data, err := os.ReadFile(filepath.Join(dir, "result.json"))
			if err == nil {
				err = json.Unmarshal(data, &res)
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, &stderr)
			}
			if res.Outcome != schema.OutcomeCancelled {
				t.Errorf("the outcome is %s, want %s", res.Outcome, schema.OutcomeCancelled)
			}
			if res.StartedAt == "" || res.EndedAt <= res.StartedAt || res.KernelState == "" ||
				res.EventsDropped == nil ||
				res.TamperResistance == "" {
				t.Errorf("the result does not tell of the run: %s", data)
			}
			if _, err := os.Stat(filepath.Join(dir, "inherited")); err == nil {
				t.Error("the command inherited the lifeline")
			}
			if report, err := archive.Verify(t.Context(), filepath.Join(dir, "run.tar.gz")); err != nil ||
				!report.OK() {
				t.Errorf("the bundle does not verify: %v %v", err, report)
			}
		})
	}
}
