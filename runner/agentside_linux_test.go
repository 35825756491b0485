package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/assay-run/assay-run/runner/agentlog"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// TestSequenceOfAnSDKLog checks which numbers are accepted, and which lines are kept.
func TestSequenceOfAnSDKLog(t *testing.T) {
	spec := specfile.New("x")
	rec := newMemory()
	r := newRun(spec, Options{Recorder: rec})
	r.log.Event(r.started())
	a := r.witness.agentSide
	if err := a.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, c := range []struct {
		seq     int // -1: a line that is not JSON; -2: the log begins anew
		problem bool
		kept    bool
	}{
		{0, false, true}, {1, false, true},
		{1, true, false},  // again
		{-1, true, false}, // counts as any number
		{3, false, true}, {4, false, true},
		{7, true, true}, // lines are missing, this one is not
		{8, false, true},
		{-2, false, false},
		{0, false, true}, {1, false, true},
		{0, true, false},
	} {
		before := rec.Counts(schema.SDKPath).Written
		var err error
		switch c.seq {
		case -2:
			a.restart()
			continue
		case -1:
			err = a.sdkLine([]byte("{"), 1, agentlog.Arrival{})
		default:
			err = a.sdkLine(fmt.Appendf(nil,
				`{"schema":"assay.runner.sdk_event.v0","run_id":%q,"seq":%d,"event_type":"run_finished","source":"s"}`,
				spec.RunID, c.seq), 1, agentlog.Arrival{})
		}
		if kept := rec.Counts(schema.SDKPath).Written > before; (err != nil) != c.problem || kept != c.kept {
			t.Errorf("seq %d: kept %v, %v; want kept %v, a problem: %v", c.seq, kept, err, c.kept, c.problem)
		}
	}
	var last schema.SDKEvent
	lines := bytes.Split(bytes.TrimSpace(rec.files[schema.SDKPath]), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil || last.Seq != uint64(len(lines)-1) {
		t.Errorf("the last of %d lines has seq %d, %v: the recorder numbers them", len(lines), last.Seq, err)
	}
}

// TestPolicyOfASpec: a library user need not load the policy, and a bad policy keeps the command from running.
func TestPolicyOfASpec(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	for text, want := range map[string]string{"tools: {deny: [x]}": "", "toolz: {}": "policy_unusable"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		spec := specfile.New("x")
		spec.Policy = file
		rec := newMemory()
		opt, err := readFiles(spec, Options{Recorder: rec})
		if want != "" {
			res, _ := Run(t.Context(), spec, Options{Recorder: rec})
			if err == nil || res.Error == nil || res.Error.Code != want || *res.RunnerExitCode != schema.ExitRunner {
				t.Errorf("%s: %v, %+v, want %q", text, err, res, want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		r := newRun(spec, opt)
		r.log.Event(r.started())
		if err := r.witness.agentSide.open(t.Context()); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		r.witness.agentSide.close()
		if _, there := rec.files[schema.PolicyFilePath]; !there {
			t.Errorf("%s: there is no policy.json", text)
		}
	}
}
