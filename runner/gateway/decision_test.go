package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

// Each decision about a call is one line, whoever made it.
func TestEachDecisionIsOneLine(t *testing.T) {
	const (
		denied  = `,"denied":{"rule":"its"}`
		allowed = `,"allowed":true`
		logged  = `,"logged":true`
		rule    = `{"name":"r","rule":"deny_tool","target":"no"}`
	)
	for name, c := range map[string]struct {
		rule, tool, says string
		want             []string
	}{
		"nobody has a policy":           {"", "t", "", []string{"assay-run:gateway allow"}},
		"a log without a decision":      {"", "t", logged, []string{"assay-run:gateway allow"}},
		"the client allows":             {"", "t", allowed, []string{"proxy allow"}},
		"the client allows, in its log": {"", "t", allowed + logged, nil},
		"the client denies":             {"", "t", denied, []string{"proxy deny its"}},
		"the client denies, in its log": {"", "t", denied + logged, nil},
		"the gateway allows":            {rule, "t", "", []string{"assay-run:gateway allow"}},
		"the gateway denies":            {rule, "no", "", []string{"assay-run:gateway deny r"}},
		"both allow": {rule, "t", allowed,
			[]string{"proxy allow", "assay-run:gateway allow"}},
		"both allow, the client in its log": {rule, "t", allowed + logged,
			[]string{"assay-run:gateway allow"}},
		"the client allows, the gateway denies": {rule, "no", allowed,
			[]string{"proxy allow", "assay-run:gateway deny r"}},
		"the client denies, the gateway never looks": {rule, "no", denied, []string{"proxy deny its"}},
		"the client allows an unknown tool":          {"", "unknown", allowed, []string{"proxy allow"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &observer{}
			f := start(t, func(c *Config) { c.Observer = o })
			client := dial(t, f.path)
			client.tool = func(toolsExecute) (string, string) { return `{}`, "" }
			client.must("tools.register", `[{"name":"t"},{"name":"no"}]`)
			if c.rule != "" {
				client.must("policy.register", c.rule)
			}
			client.must("proposal.submit", fmt.Sprintf(
				`{"proposal":{"id":"p","source":"proxy","actions":[{"id":"a","type":"tool_call","tool_call_id":"tc","tool":%q,"parameters":{}%s}]}}`, c.tool, c.says))
			f.end(t)
			var got []string
			for _, line := range f.rec.Lines(t, schema.PolicyPath) {
				var e schema.PolicyEvent
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatal(err)
				}
				got = append(got, strings.TrimSpace(e.Source+" "+e.Decision+" "+e.Rule))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			// An observer gets every call that was checked by the policy, or its window would stay open.
			if c.tool == "t" && !strings.Contains(c.says, "denied") &&
				!strings.Contains(strings.Join(o.got, ";"), "decided tc t") {
				t.Errorf("the observer heard %q", o.got)
			}
		})
	}
}
