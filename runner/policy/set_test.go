package policy

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema/policyfile"
)

func setOf(t testing.TB, rules ...policyfile.Rule) *Set {
	t.Helper()
	s := NewSet(nil)
	for i, r := range rules {
		if r.Name == "" {
			r.Name = "r" + string(rune('0'+i))
		}
		if err := s.Add(r, 0); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// names of the violated rules, in order.
func violated(s *Set, c Call) []string {
	var names []string
	for _, v := range s.Check(&c) {
		names = append(names, v.Rule)
	}
	return names
}

func TestDenyWinsAndAClientCannotReplaceARule(t *testing.T) {
	f, err := policyfile.ParseYAML([]byte(
		"tools: {allow: [a], deny: [a]}\nrules:\n- {name: n, rule: deny_tool, target: b}\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSet(f)
	if got := violated(s, Call{Tool: "a"}); !cmp.Equal(got, []string{policyfile.DenyList}) {
		t.Errorf("violations %q", got)
	}
	for _, name := range []string{"n", policyfile.AllowList, policyfile.DenyList, "gateway.tool"} {
		if err := s.Add(policyfile.Rule{Name: name, Rule: policyfile.DenyTool, Target: "zzz"}, 0); !errors.Is(err,
			policyfile.ErrRule) {
			t.Errorf("adding %s: %v, want ErrRule", name, err)
		}
	}
}

func TestAnEmptyAllowListAllowsNothing(t *testing.T) {
	f, err := policyfile.ParseYAML([]byte("tools: {allow: []}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if !NewSet(f).Forbidden("a") {
		t.Error("a is allowed by an empty list")
	}
}

// Rules that name the tool decide. A denied call counts against no rate limit.
func TestCheckNamed(t *testing.T) {
	f, err := policyfile.ParseYAML([]byte(`
tools: {allow: [other], deny: [never]}
rules:
- {name: rate, rule: rate_limit_tool, target: t, value: 1/1h}
- {name: every, rule: deny_tool, target: "*"}
- {name: word, rule: deny_tool_param, target: t, key: a, value: x}
`))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSet(f)
	for i, c := range []struct {
		tool, params string
		want         []string
	}{
		{"t", `{"a":"x"}`, []string{"word"}},
		{"t", `{"a":"x"}`, []string{"word"}},
		{"t", `{"a":"y"}`, nil},
		{"t", `{"a":"y"}`, []string{"rate"}},
		{"never", `{}`, []string{policyfile.DenyList}},
		{"other", `{}`, nil},
	} {
		var got []string
		for _, v := range s.CheckNamed(&Call{Tool: c.tool, Params: []byte(c.params)}) {
			got = append(got, v.Rule)
		}
		if !cmp.Equal(got, c.want) {
			t.Errorf("call %d: violations %q, want %q", i, got, c.want)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	f, err := policyfile.ParseYAML([]byte(example))
	if err != nil {
		b.Fatal(err)
	}
	s := NewSet(f)
	b.ReportAllocs()
	for b.Loop() {
		s.Check(&Call{Tool: "read_file", Params: []byte(`{"path":"/home/user/project/main.go","limit":100}`)})
	}
}

// A server may look a tool up without regard to case, space around the name and invisible characters.
func TestADeniedToolIsDeniedHoweverItsNameIsWritten(t *testing.T) {
	f, err := policyfile.ParseYAML([]byte(`
tools: {deny: [delete_file, "db_*", Mixed]}
prompts: {deny: [secret]}
resources: {deny: ["file:///Secret"]}
rules:
- {name: no-push, rule: deny_tool, target: push}
`))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSet(f)
	for _, name := range []string{
		"delete_file", "Delete_File", "DELETE_FILE", " delete_file", "delete_file\t", "delete_file\u00a0",
		"delete\u200b_file", "\u2800delete_file", "delete_file\ufe0f", "delete_\u3164file", "\u202edelete_file",
		"\ufeffdelete_file", "delete_file\x00", "delete_fi\u00adle", "DB_drop", " db_drop", "mixed", "MIXED", "PUSH",
		"push ",
	} {
		if len(violated(s, Call{Tool: name})) == 0 || !s.Forbidden(name) {
			t.Errorf("%q is allowed", name)
		}
	}
	for _, name := range []string{"delete_files", "delete file", "delete-file", "adb_x", "pushed"} {
		if found := violated(s, Call{Tool: name}); len(found) > 0 {
			t.Errorf("%q violates %q", name, found)
		}
	}
	if len(s.CheckName(Prompts, " SECRET")) == 0 {
		t.Error("the prompt SECRET is allowed")
	}
	if len(s.CheckName(Resources, "file:///secret")) > 0 || len(s.CheckName(Resources, "file:///Secret")) == 0 {
		t.Error("a resource's URI is not compared as it is written")
	}
}

// A name that only looks alike may be another tool: it is not allowed.
func TestAnAllowedToolHasTheListedName(t *testing.T) {
	f, err := policyfile.ParseYAML([]byte("tools: {allow: [read]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSet(f)
	for name, allowed := range map[string]bool{"read": true, "Read": false, "read ": false, "read\u200b": false} {
		if s.Forbidden(name) == allowed {
			t.Errorf("%q is allowed: %t, want %t", name, !allowed, allowed)
		}
	}
}
