package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/policyfile"
)

const example = `
version: 1
tools:
  allow: [read_file, shell, drive_cli]
  deny: [shell]
capabilities: [fs.read]
model: {provider_tools: deny}
rules:
- name: no_etc
  rule: deny_tool_param
  target: read_file
  key: path
  value_path: /etc
- name: few
  rule: rate_limit_tool
  target: drive_cli
  value: 10/30s
- name: broken
  rule: deny_tool_param_matching
  target: drive_cli
  key: prompt
  pattern: "("
`

func TestFile(t *testing.T) {
	f, err := policyfile.ParseYAML([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSet(f)
	for tool, want := range map[string][]string{
		"shell": {policyfile.DenyList}, "read_file": nil, "other": {policyfile.AllowList}, "drive_cli": {"broken"},
	} {
		if got := violated(s, Call{Tool: tool}); !cmp.Equal(got, want) {
			t.Errorf("%s: violations %q, want %q", tool, got, want)
		}
		if got := s.Forbidden(tool); got != (tool == "shell" || tool == "other") {
			t.Errorf("Forbidden(%s) = %v", tool, got)
		}
	}
	if !s.Granted("fs.read") || s.Granted("net") {
		t.Error("capabilities are not those of the file")
	}
	if len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "broken") {
		t.Errorf("warnings %q", f.Warnings)
	}
	if err := s.Add(policyfile.Rule{Name: "mine", Rule: policyfile.DenyTool, Target: "read_file"}, 7); err != nil {
		t.Fatal(err)
	}
	if got := violated(s, Call{Tool: "read_file"}); !cmp.Equal(got, []string{"mine"}) {
		t.Errorf("violations %q after adding a rule", got)
	}
	doc, ok := s.Document("run_1")
	if !ok {
		t.Fatal("there is nothing to tell")
	}
	data, err := schema.Document(doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(schema.PolicyV0, data); err != nil {
		t.Errorf("%v\n%s", err, data)
	}
	if doc.Digest == nil || *doc.Digest != f.Digest || len(doc.Rules) != 3 || len(doc.ClientRules) != 1 ||
		doc.Model == nil || doc.Model.ProviderTools != "deny" || doc.Rules[1].Limit != 10 ||
		doc.Rules[1].WindowMS != 30000 {
		t.Errorf("document %+v", doc)
	}
	// Sets of one file do not share what they count or what clients added.
	if got := violated(NewSet(f), Call{Tool: "read_file"}); got != nil {
		t.Errorf("violations %q in a second set", got)
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(example), false)
	f.Add([]byte(`{"version":1,"tools":{"allow":["a"],"deny":[]},"rules":[{"name":"k","rule":"deny_keyword","value":["x",1,true]}]}`), true)
	f.Add([]byte("rules:\n- {name: s, rule: require_state, target: t, key: verdict, value: pass}\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		format := config.YAML
		if isJSON {
			format = config.JSON
		}
		p, err := policyfile.Parse(data, format)
		if err != nil {
			return
		}
		s := NewSet(p)
		doc, _ := s.Document("run_1")
		b, err := schema.Document(doc)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(schema.PolicyV0, b); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		for _, tool := range append([]string{"t"}, p.Tools.Deny...) {
			if got := s.Check(&Call{Tool: tool, Params: []byte(`{"a":"b"}`)}); tool != "t" && len(got) == 0 {
				t.Errorf("%q is on the list of denied tools and allowed", tool)
			}
		}
	})
}
