package policy

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func setOf(t testing.TB, rules ...Rule) *Set {
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
	f, err := ParseYAML([]byte("tools: {allow: [a], deny: [a]}\nrules:\n- {name: n, rule: deny_tool, target: b}\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSet(f)
	if got := violated(s, Call{Tool: "a"}); !cmp.Equal(got, []string{DenyList}) {
		t.Errorf("violations %q", got)
	}
	for _, name := range []string{"n", AllowList, DenyList, "gateway.tool"} {
		if err := s.Add(Rule{Name: name, Rule: DenyTool, Target: "zzz"}, 0); !errors.Is(err, ErrRule) {
			t.Errorf("adding %s: %v, want ErrRule", name, err)
		}
	}
}

func TestAnEmptyAllowListAllowsNothing(t *testing.T) {
	f, err := ParseYAML([]byte("tools: {allow: []}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if !NewSet(f).Forbidden("a") {
		t.Error("a is allowed by an empty list")
	}
}

func BenchmarkCheck(b *testing.B) {
	f, err := ParseYAML([]byte(example))
	if err != nil {
		b.Fatal(err)
	}
	s := NewSet(f)
	b.ReportAllocs()
	for b.Loop() {
		s.Check(&Call{Tool: "read_file", Params: []byte(`{"path":"/home/user/project/main.go","limit":100}`)})
	}
}
