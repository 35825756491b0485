package sandbox

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// TestLearnIsNarrow learns all that one run was denied, and never a home or / for one name in it.
func TestLearnIsNarrow(t *testing.T) {
	l := NewLearner()
	l.Run("/home/u/project", "/home/u", nil)
	for _, target := range []string{"/home/u/.toolrc", "/home/u/.cache/tool/a", "/home/u/.cache/tool/b", "/flag",
		"/home/new", "/var/out", "/home/u/project/x"} {
		l.Policy(&schema.PolicyEvent{Source: "sandbox", SourceEventType: "file_blocked", Decision: "deny",
			Operation: OpWrite, Rule: RuleMode, Target: target})
	}
	want := `version: 1
mode: workspace-write
filesystem:
  allowWrite:
  - "/flag"
  - "/home/new"
  - "/home/u/.cache/tool"
  - "/home/u/.toolrc"
  - "/var/out"
# "/flag" must exist when the run starts: assay-run does not allow all of "/" for it.
# "/home/new" must exist when the run starts: assay-run does not allow all of "/home" for it.
# "/home/u/.toolrc" must exist when the run starts: assay-run does not allow all of "/home/u" for it.
# "/var/out" must exist when the run starts: assay-run does not allow all of "/var" for it.
`
	if diff := cmp.Diff(want, l.Text()); diff != "" {
		t.Error(diff)
	}
}

// TestLearnWhatThePlanSays learns nothing from what a private home took, and a protected path by its own name.
func TestLearnWhatThePlanSays(t *testing.T) {
	l := NewLearner()
	l.Run("/w", "/home/u", &schema.Policy{Sandbox: []byte(`{"plan": {"paths": [
		{"target": "/", "access": "read"}, {"target": "/w", "access": "write"},
		{"target": "/home/u", "access": "layer"}, {"target": "/w/.git/hooks", "access": "read"},
		{"target": "/home/u/real", "access": "write"}, {"target": "/w/.vscode", "access": "read"}]}}`)})
	for _, name := range []string{"/home/u/.npm/log", "/home/u/real/file"} {
		l.Kernel(&schema.KernelEvent{Kind: schema.KindMkdir, Value: name})
	}
	for _, target := range []string{"/w/.vscode/tasks.json", "/w/.git"} {
		l.Policy(&schema.PolicyEvent{Source: "sandbox", SourceEventType: "file_blocked", Decision: "deny",
			Operation: OpWrite, Rule: ruleProtected, Target: target})
	}
	want := `version: 1
mode: workspace-write
filesystem:
  allowWrite:
  - "/home/u/real"
  - "/w/.vscode"
# no policy allows: "rename or remove /w/.git (protected paths are in it)"
`
	if diff := cmp.Diff(want, l.Text()); diff != "" {
		t.Error(diff)
	}
}
