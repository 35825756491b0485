package judge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/schema"
)

// golden reads the parent contract's example documents.
func golden(t *testing.T) *archive.Documents {
	t.Helper()
	d := &archive.Documents{}
	for name, into := range map[string]any{"capability-surface": &d.Surface, "correlation-report": &d.Correlation,
		"observation-health": &d.Health} {
		data, err := os.ReadFile(filepath.Join("..", "..", "schema", "testdata", "golden",
			name+"-openai-agents-kernel-policy-v0.json"))
		if err == nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestIdempotentCapabilityDiffIsTheGoldenOne(t *testing.T) {
	want, err := os.ReadFile("testdata/capability-diff-s5-idempotent-v0.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := schema.Document(capabilityOf(golden(t), golden(t)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Error(d)
	}
}

func TestCapabilityDiffStatus(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*archive.Documents)
		want   string
	}{
		"lost events are no clean health": {func(d *archive.Documents) {
			d.Health.RingbufDrops = 1
		}, "partial:health"},
		"an absent policy is no clean health": {func(d *archive.Documents) {
			d.Health.PolicyLayer = schema.Absent
		}, "partial:health"},
		"an ambiguity is no clean correlation": {func(d *archive.Documents) {
			d.Correlation.Ambiguities = []string{"x"}
		}, "partial:correlation"},
		"without calls there are no stable ids": {func(d *archive.Documents) {
			d.Correlation.Bindings = nil
		}, "partial:correlation"},
		"a new path is a clean difference": {func(d *archive.Documents) {
			d.Surface.FilesystemPaths = []string{"/new"}
		}, "clean"},
	} {
		t.Run(name, func(t *testing.T) {
			head := golden(t)
			c.change(head)
			got := capabilityOf(golden(t), head)
			if got.Status != c.want {
				t.Errorf("status is %s, want %s", got.Status, c.want)
			}
			if len(got.Notes) > 0 {
				t.Errorf("notes are %q", got.Notes)
			}
		})
	}
}

func TestAChangedDecisionOfTheSameCallIsAPolicyOutcome(t *testing.T) {
	head := golden(t)
	head.Correlation.Bindings[0].PolicyDecision = "deny"
	allow, deny := "allow", "deny"
	want := []policyChange{{"tc_runner_policy_001", &allow, &deny}}
	if d := cmp.Diff(want, capabilityOf(golden(t), head).Policy.Changed); d != "" {
		t.Error(d)
	}
}
