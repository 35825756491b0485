package schema

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseCallEventReadsBothVersions(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		want CallEventBody
	}{
		"version 2": {
			`{"schema":"assay.runner.call_event.v2","run_id":"r","seq":1,"ts":"2026-01-02T03:04:05Z","call_id":"01JABCDEFGHJKMNPQRSTVWXYZ0","tool_id":"t","granted_capabilities":["a"],"duration_ms":1.5,"outcome":{"kind":"policy_denied","rule":"x"},"tier":"high","dry_run":true,"schema_version":2,"secrets_resolved":[]}`,
			CallEventBody{
				TS: "2026-01-02T03:04:05Z", CallID: "01JABCDEFGHJKMNPQRSTVWXYZ0", ToolID: "t", GrantedCapabilities: []string{"a"},
				DurationMS: 1.5, Outcome: CallOutcome{Kind: CallPolicyDenied, Rule: "x"}, Tier: "high", DryRun: true, SchemaVersion: 2, SecretsResolved: []string{},
			},
		},
		"version 1, which had fewer fields": {
			`{"ts":"2026-01-02T03:04:05Z","call_id":"c","tool_id":"t","duration_ms":1,"outcome":{"kind":"success"}}`,
			CallEventBody{
				TS: "2026-01-02T03:04:05Z", CallID: "c", ToolID: "t", GrantedCapabilities: []string{}, DurationMS: 1,
				Outcome: CallOutcome{Kind: CallSuccess}, Tier: DefaultTier, SchemaVersion: 1, SecretsResolved: []string{},
			},
		},
	} {
		got, err := ParseCallEvent([]byte(c.line))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(c.want, got.CallEventBody); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestParseCallEventRefuses(t *testing.T) {
	for name, line := range map[string]string{
		"half a line":               `{"call_id":"c"`,
		"a version to come":         `{"call_id":"c","tool_id":"t","schema_version":3,"outcome":{"kind":"success"}}`,
		"no call":                   `{"tool_id":"t","outcome":{"kind":"success"}}`,
		"an outcome nobody knows":   `{"call_id":"c","tool_id":"t","outcome":{"kind":"shrugged"}}`,
		"no outcome":                `{"call_id":"c","tool_id":"t"}`,
		"a list where an object is": `[]`,
	} {
		if _, err := ParseCallEvent([]byte(line)); !errors.Is(err, ErrCallEvent) {
			t.Errorf("%s: got %v, want ErrCallEvent", name, err)
		}
	}
}
