package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseCallEventReadsBothVersions(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		want CallEventBody
	}{
		"version 2": {
			`{"schema":"assay.runner.call_event.v2","run_id":"r","seq":1,"ts":"2026-01-02T03:04:05Z","call_id":"01JABCDEFGHJKMNPQRSTVWXYZ0","tool_id":"t","granted_capabilities":["a"],"duration_ms":15,"outcome":{"kind":"execution_failed","code":"policy_denied","rule":"x"},"tier":"high","dry_run":true,"schema_version":2,"secrets_resolved":false}`,
			CallEventBody{
				TS: "2026-01-02T03:04:05Z", CallID: "01JABCDEFGHJKMNPQRSTVWXYZ0", ToolID: "t",
				GrantedCapabilities: []string{"a"},
				DurationMS:          15, Outcome: CallOutcome{Kind: CallPolicyDenied, Rule: "x"}, Tier: "high",
				DryRun: true, SchemaVersion: 2,
			},
		},
		"version 1, which had fewer fields": {
			`{"ts":"2026-01-02T03:04:05Z","call_id":"c","tool_id":"t","duration_ms":1,"outcome":{"kind":"success"}}`,
			CallEventBody{
				TS: "2026-01-02T03:04:05Z", CallID: "c", ToolID: "t", GrantedCapabilities: []string{}, DurationMS: 1,
				Outcome: CallOutcome{Kind: CallSuccess}, Tier: DefaultTier, SchemaVersion: 1,
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

// TestCallEventsOfOthers reads the lines that other writers of version 2 leave,
// and finds all that they say.
func TestCallEventsOfOthers(t *testing.T) {
	data, err := os.ReadFile("testdata/wire/call-events.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		e, err := ParseCallEvent(line)
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		back, err := json.Marshal(e.CallEventBody)
		if err != nil {
			t.Fatal(err)
		}
		var want, got map[string]any
		if err := errors.Join(json.Unmarshal(line, &want), json.Unmarshal(back, &got)); err != nil {
			t.Fatal(err)
		}
		if _, said := want["secrets_resolved"]; !said {
			delete(got, "secrets_resolved") // a line of version 1
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", line, d)
		}
	}
}

// A denial by policy is told in the kinds that every reader knows, and found
// again by ours.
func TestADenialAsOthersReadIt(t *testing.T) {
	wire := CallOutcome{Kind: CallPolicyDenied, Rule: "r"}.Wire()
	if wire.Kind != CallExecutionFailed || wire.Code != CallPolicyDenied || wire.Retryable == nil || *wire.Retryable {
		t.Errorf("it is told as %+v", wire)
	}
	line, err := json.Marshal(CallEventBody{CallID: "c", ToolID: "t", Outcome: wire})
	if err != nil {
		t.Fatal(err)
	}
	e, err := ParseCallEvent(line)
	if d := cmp.Diff(CallOutcome{Kind: CallPolicyDenied, Rule: "r"}, e.Outcome); err != nil || d != "" {
		t.Errorf("it is read as %+v, %v", e.Outcome, err)
	}
}

// Each kind has its own keys, also when they are empty, and no other.
func TestCallOutcomesHaveTheKeysOfTheirKind(t *testing.T) {
	for kind, want := range map[string]string{
		CallSuccess:          `{"kind":"success"}`,
		CallExecutionFailed:  `{"kind":"execution_failed","code":"","retryable":false}`,
		CallInvalidArgs:      `{"kind":"invalid_args","message":""}`,
		CallCapabilityDenied: `{"kind":"capability_denied","missing":[]}`,
		CallRateLimited:      `{"kind":"rate_limited","retry_after_ms":null}`,
		CallToolNotFound:     `{"kind":"tool_not_found"}`,
	} {
		line, err := Line(CallOutcome{Kind: kind})
		if got := strings.TrimSpace(string(line)); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", kind, got, err, want)
		}
	}
}
