package policy

import (
	"slices"
	"testing"

	"github.com/assay-run/assay-run/schema/policyfile"
)

// TestExplainDecidesAsCheckDoes asks both about the same calls.
func TestExplainDecidesAsCheckDoes(t *testing.T) {
	const text = `
tools: {allow: [read, write, often, never, staged], deny: [write]}
rules:
- {name: limit, rule: rate_limit_tool, target: often, value: 1/1h}
- {name: none, rule: rate_limit_tool, target: never, value: 0}
- {name: etc, rule: deny_tool_param, target: "*", key: path, value_path: /etc}
- {name: word, rule: deny_keyword, value: secret}
- {name: after, rule: require_state, target: staged, key: verdict, value: pass}
- {name: broken, rule: deny_tool_param_matching, target: read, key: q, pattern: "("}
`
	for name, c := range map[string]struct {
		call  Call
		rules []string // that say anything, in order
	}{
		"a tool that nobody lists": {Call{Tool: "other"}, []string{policyfile.AllowList, "etc", "word"}},
		"a tool on both lists":     {Call{Tool: "write"}, []string{policyfile.DenyList, "etc", "word"}},
		"a rule that cannot be evaluated": {Call{Tool: "read"}, []string{policyfile.AllowList, "etc", "word",
			"broken"}},
		"a parameter": {Call{Tool: "often", Params: []byte(`{"path": "/tmp/../etc/x"}`)},
			[]string{policyfile.AllowList, "etc", "word", "limit"}},
		"a list of arguments": {Call{Tool: "often", Params: []byte(`[{"path": "/etc"}, "secret"]`)},
			[]string{policyfile.AllowList, "etc", "word", "limit"}},
		"an allowed call": {Call{Tool: "often", Params: []byte(`{"path": "/tmp/x"}`)},
			[]string{policyfile.AllowList, "etc", "word", "limit"}},
		"a limit of no calls": {Call{Tool: "never"}, []string{policyfile.AllowList, "etc", "word", "none"}},
		"a state that the run is not in": {Call{Tool: "staged"}, []string{policyfile.AllowList, "etc", "word",
			"after"}},
		"a state that the run would be in": {Call{Tool: "staged", State: func(string) string {
			return "pass"
		}}, []string{policyfile.AllowList, "etc", "word", "after"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := policyfile.ParseYAML([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			s := NewSet(f)
			for range 2 { // the second call finds every limit as the first one did
				e := s.Explain(&c.call)
				var asked, denying []string
				for _, r := range e.Rulings {
					asked = append(asked, r.Rule)
					if r.Decision == "deny" {
						denying = append(denying, r.Rule)
					}
				}
				if !slices.Equal(asked, c.rules) {
					t.Errorf("rulings of %q, want %q", asked, c.rules)
				}
				if (e.Decision == "deny") != (e.Rule != "") {
					t.Errorf("decision %s, rule %q", e.Decision, e.Rule)
				}
				dry := c.call
				dry.DryRun = true
				if got := violated(s, dry); !slices.Equal(got, denying) || len(got) > 0 && got[0] != e.Rule {
					t.Errorf("Explain denies by %q, first %q; Check by %q", denying, e.Rule, got)
				}
			}
		})
	}
}
