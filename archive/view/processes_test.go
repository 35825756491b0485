package view

import (
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// TestNoLineIsPassedOver: a line that is not decoded must be of another kind,
// however it is written.
func TestNoLineIsPassedOver(t *testing.T) {
	for line, want := range map[string]bool{
		string(schema.AppendJSON(nil, &schema.KernelEvent{Kind: schema.KindExec, Value: "/bin/sh", ExecID: 2})): true,
		string(schema.AppendJSON(nil, &schema.KernelEvent{Kind: schema.KindFork, ExecID: 2})):                   true,
		string(schema.AppendJSON(nil, &schema.KernelEvent{Kind: schema.KindExit, ExecID: 2})):                   true,
		string(schema.AppendJSON(nil, &schema.KernelEvent{Kind: schema.KindJoin, ExecID: 2})):                   true,
		string(schema.AppendJSON(nil, &schema.KernelEvent{Kind: schema.KindOpen, Value: `"kind":"exec"`})):      false,
		`{"value":"kind","kind":"exec"}`:            true,
		`{"argv":["kind"],"event_type":4}`:          true,
		`{ "kind" : "exec" }`:                       true,
		`{"kind":"e\u0078ec"}`:                      true,
		`{"\u006bind":"exec","event_type":4}`:       true,
		`{"event_type":4,"value":"/bin/true"}`:      true,
		`{"kind":"openat","value":"\"kind\":\"exec`: false,
	} {
		if got := concerns([]byte(line)); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}
