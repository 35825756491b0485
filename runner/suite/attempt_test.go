//go:build linux

package suite

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

func TestDecide(t *testing.T) {
	zero, three, runnerFailed := 0, 3, 125
	passed, failed, doubtful := schema.VerdictPassed, schema.VerdictFailed, schema.VerdictInconclusive
	kill, runnerSource, child := "SIGKILL", schema.SourceRunner, schema.SourceChild
	kills := int64(1)
	problem := func(code string) *schema.ResultError { return &schema.ResultError{Code: code, Message: code} }
	for name, c := range map[string]struct {
		res    schema.Result
		broken string
		want   decision
	}{
		"it exits with 0": {schema.Result{Outcome: schema.OutcomeExited, ExitCode: &zero}, "",
			decision{Verdict: "passed"}},
		"it exits with 3": {schema.Result{Outcome: schema.OutcomeExited, ExitCode: &three}, "",
			decision{Verdict: "failed", Reason: "the agent exited with 3"}},
		"the contract decides over the exit code": {schema.Result{Outcome: schema.OutcomeExited, ExitCode: &three,
			Contract: &passed},
			"", decision{Verdict: "passed"}},
		"the contract decides over a timeout": {schema.Result{Outcome: schema.OutcomeTimeout, Contract: &passed}, "",
			decision{Verdict: "passed"}},
		"the contract fails": {schema.Result{Outcome: schema.OutcomeExited, ExitCode: &zero, Contract: &failed,
			ContractReasons: []string{"a check"}}, "", decision{Verdict: "failed", Reason: "a check"}},
		"the contract cannot be decided": {schema.Result{Outcome: schema.OutcomeExited, ExitCode: &zero,
			Contract:        &doubtful,
			ContractReasons: []string{"why"}}, "", decision{Verdict: "inconclusive", Reason: "why"}},
		"the time is over": {schema.Result{Outcome: schema.OutcomeTimeout}, "",
			decision{Verdict: "failed", Reason: "the agent ran longer than the task's timeout"}},
		"its own limit of memory": {schema.Result{Outcome: schema.OutcomeOOM, LimitsHit: []string{"memory"}}, "",
			decision{Verdict: "failed", Reason: "the agent reached a limit: [memory]"}},
		"the host's limit": {schema.Result{Outcome: schema.OutcomeSignaled, Signal: &kill,
			Usage: schema.Usage{OOMKills: &kills}}, "",
			decision{"infrastructure", "setup", "the host ran out of memory"}},
		"a signal": {schema.Result{Outcome: schema.OutcomeSignaled, Signal: &kill}, "",
			decision{Verdict: "failed", Reason: "the agent was killed by SIGKILL"}},
		"the evidence is tampered with": {schema.Result{Outcome: schema.OutcomeExited, ExitCode: &zero,
			Contract:    &passed,
			ErrorSource: &runnerSource, Error: problem("tampered"), RunnerExitCode: &runnerFailed}, "",
			decision{Verdict: "inconclusive", Reason: "tampered"}},
		"the evidence is not what was required": {schema.Result{Outcome: schema.OutcomeExited, ExitCode: &zero,
			Contract:    &passed,
			ErrorSource: &runnerSource, Error: problem("kernel_layer_incomplete"), RunnerExitCode: &runnerFailed}, "",
			decision{Verdict: "inconclusive", Reason: "kernel_layer_incomplete"}},
		"the disk was too full for the evidence": {schema.Result{Outcome: schema.OutcomeExited, ExitCode: &zero,
			ErrorSource: &runnerSource, RunnerExitCode: &runnerFailed,
			Error: &schema.ResultError{Code: "evidence_missing", Message: "mkdir x: no space left on device"}}, "",
			decision{"infrastructure", "disk_full", "mkdir x: no space left on device"}},
		"a rule does not pass": {schema.Result{Outcome: schema.OutcomeExited, ExitCode: &zero, Contract: &passed},
			"a rule", decision{Verdict: "inconclusive", Reason: "a rule"}},
		"the container engine is missing": {schema.Result{Outcome: schema.OutcomeInfraError,
			Error: problem("containers_failed")}, "",
			decision{"infrastructure", "engine", "containers_failed"}},
		"the recorder died": {schema.Result{Outcome: schema.OutcomeIncomplete, ErrorSource: &runnerSource}, "",
			decision{"infrastructure", "assay_run", "the run was interrupted"}},
		"the run was cancelled": {schema.Result{Outcome: schema.OutcomeCancelled, Contract: &failed}, "",
			decision{"infrastructure", "worker_lost", "the run was cancelled"}},
		"assay-run failed": {schema.Result{Outcome: schema.OutcomeInfraError, ErrorSource: &runnerSource,
			Error: problem("x")}, "", decision{"infrastructure", "assay_run", "x"}},
		"the agent's program is not there": {schema.Result{Outcome: schema.OutcomeInfraError, ErrorSource: &child,
			Error: problem("not found")}, "",
			decision{"infrastructure", "assay_run", "not found"}},
	} {
		if got := decide(&c.res, c.broken); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestADigestTellsTreesApart(t *testing.T) {
	seen := map[string]string{}
	for name, build := range map[string]func(dir string) error{
		"nothing":      func(string) error { return nil },
		"a file":       func(d string) error { return os.WriteFile(d+"/a", []byte("x"), 0o644) },
		"another text": func(d string) error { return os.WriteFile(d+"/a", []byte("y"), 0o644) },
		"another name": func(d string) error { return os.WriteFile(d+"/b", []byte("x"), 0o644) },
		"another mode": func(d string) error { return os.WriteFile(d+"/a", []byte("x"), 0o755) },
		"a link":       func(d string) error { return os.Symlink("x", d+"/a") },
		"an empty one": func(d string) error { return os.Mkdir(d+"/a", 0o755) },
		"a file in one": func(d string) error {
			return errors.Join(os.Mkdir(d+"/a", 0o755), os.WriteFile(d+"/a/x", nil, 0o644))
		},
	} {
		dir := t.TempDir()
		if err := build(dir); err != nil {
			t.Fatal(err)
		}
		digest, err := digestTree(dir)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[digest]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[digest] = name
		copied := filepath.Join(t.TempDir(), "copy")
		if err := copyWorkspace(t.Context(), dir, digest, copied); err != nil {
			t.Fatal(err)
		}
		if again, err := digestTree(copied); err != nil || again != digest {
			t.Errorf("%s: the copy has the digest %s, %v", name, again, err)
		}
	}
}

// No name in a tar file that is sent leads out of its directory.
func TestATarStaysInItsDirectory(t *testing.T) {
	for name, headers := range map[string][]tar.Header{
		"a name with ..": {{Name: "../out", Typeflag: tar.TypeReg}},
		"through a link": {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."},
			{Name: "l/out", Typeflag: tar.TypeReg}},
		"a hard link to outside": {{Name: "out", Typeflag: tar.TypeLink, Linkname: "../secret"}},
		"a device":               {{Name: "out", Typeflag: tar.TypeChar}},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("s"), 0o600); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			h.Mode = 0o644
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := unpack(&b, filepath.Join(dir, "work")); err == nil {
			t.Errorf("%s: it is taken", name)
		}
		if _, err := os.Lstat(filepath.Join(dir, "out")); err == nil {
			t.Errorf("%s: a file is outside", name)
		}
	}
}
