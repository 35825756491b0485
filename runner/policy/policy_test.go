package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
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

func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		rule   Rule
		params string
		denied bool
	}{
		"deny_tool denies its target":                      {Rule{Rule: DenyTool, Target: "t"}, `{}`, true},
		"deny_tool leaves others alone":                    {Rule{Rule: DenyTool, Target: "u"}, `{}`, false},
		"deny_tool of every tool":                          {Rule{Rule: DenyTool, Target: "*"}, `{}`, true},
		"a substring in the parameter":                     {Rule{Rule: DenyToolParam, Target: "t", Key: "p", Value: Values{"/etc"}}, `{"p":"cat /etc/passwd"}`, true},
		"a substring, escaped in JSON":                     {Rule{Rule: DenyToolParam, Target: "t", Key: "p", Value: Values{"/etc"}}, `{"p":"cat \/\u0065tc"}`, true},
		"a substring, under an escaped key":                {Rule{Rule: DenyToolParam, Target: "t", Key: "p", Value: Values{"/etc"}}, `{"\u0070":"/etc"}`, true},
		"a substring in a list in the parameter":           {Rule{Rule: DenyToolParam, Target: "t", Key: "p", Value: Values{"/etc"}}, `{"p":["ls",{"x":"/etc"}]}`, true},
		"a substring as a key in the parameter":            {Rule{Rule: DenyToolParam, Target: "t", Key: "p", Value: Values{"/etc"}}, `{"p":{"/etc":1}}`, true},
		"a substring of a number":                          {Rule{Rule: DenyToolParam, Target: "t", Key: "p", Value: Values{"44"}}, `{"p":1443}`, true},
		"a substring in another parameter":                 {Rule{Rule: DenyToolParam, Target: "t", Key: "p", Value: Values{"/etc"}}, `{"q":"/etc"}`, false},
		"a substring by JSON pointer":                      {Rule{Rule: DenyToolParam, Target: "t", Key: "/a/1/b", Value: Values{"x"}}, `{"a":[0,{"b":"x"}]}`, true},
		"a JSON pointer to nothing":                        {Rule{Rule: DenyToolParam, Target: "t", Key: "/a/9/b", Value: Values{"x"}}, `{"a":[0,{"b":"x"}]}`, false},
		"a pattern that matches":                           {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p", Pattern: `^rm\s+-rf`}, `{"p":"rm  -rf /"}`, true},
		"a pattern that does not match":                    {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p", Pattern: `^rm\s+-rf`}, `{"p":"ls"}`, false},
		"a bad pattern denies":                             {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p", Pattern: `(`}, `{"p":"ls"}`, true},
		"a bad pattern denies without the parameter":       {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p", Pattern: `a{1001}`}, `{}`, true},
		"a pattern too large to match denies":              {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p", Pattern: `(a{100}){100}`}, `{}`, true},
		"allow_tool_param with the value":                  {Rule{Rule: AllowToolParam, Target: "t", Key: "p", Value: Values{"a", "b"}}, `{"p":"b"}`, false},
		"allow_tool_param with a number":                   {Rule{Rule: AllowToolParam, Target: "t", Key: "p", Value: Values{"80"}}, `{"p":80}`, false},
		"allow_tool_param, unlisted":                       {Rule{Rule: AllowToolParam, Target: "t", Key: "p", Value: Values{"a", "b"}}, `{"p":"c"}`, true},
		"allow_tool_param, a longer value":                 {Rule{Rule: AllowToolParam, Target: "t", Key: "p", Value: Values{"a"}}, `{"p":"aa"}`, true},
		"allow_tool_param, absent":                         {Rule{Rule: AllowToolParam, Target: "t", Key: "p", Value: Values{"a", ""}}, `{}`, true},
		"allow_tool_param, empty, even when listed":        {Rule{Rule: AllowToolParam, Target: "t", Key: "p", Value: Values{"a", ""}}, `{"p":""}`, true},
		"allow_tool_param, null":                           {Rule{Rule: AllowToolParam, Target: "t", Key: "p", Value: Values{"null"}}, `{"p":null}`, true},
		"allow_tool_param, a list of allowed values":       {Rule{Rule: AllowToolParam, Target: "t", Key: "p", Value: Values{"a"}}, `{"p":["a"]}`, true},
		"allow_tool_param when parameters are a list":      {Rule{Rule: AllowToolParam, Target: "t", Key: "p", Value: Values{"a"}}, `["a"]`, true},
		"allow_tool_param without parameters":              {Rule{Rule: AllowToolParam, Target: "t", Key: "p", Value: Values{"a"}}, ``, true},
		"a keyword deep down, in another case":             {Rule{Rule: DenyKeyword, Value: Values{"Password"}}, `{"a":[{"b":"my PASSWORD is"}]}`, true},
		"a keyword as a key":                               {Rule{Rule: DenyKeyword, Value: Values{"password"}}, `{"password":1}`, true},
		"a keyword for another tool":                       {Rule{Rule: DenyKeyword, Target: "u", Value: Values{"password"}}, `{"password":1}`, false},
		"a keyword that is not there":                      {Rule{Rule: DenyKeyword, Value: Values{"password"}}, `{"a":"pass word"}`, false},
		"a rate limit of none":                             {Rule{Rule: RateLimitTool, Target: "t", Value: Values{"0"}}, `{}`, true},
		"the required state":                               {Rule{Rule: RequireState, Target: "t", Key: "verdict", Value: Values{"pass"}}, `{}`, false},
		"another state":                                    {Rule{Rule: RequireState, Target: "t", Key: "verdict", Value: Values{"fail"}}, `{}`, true},
		"a state that must only be set":                    {Rule{Rule: RequireState, Target: "t", Key: "verdict"}, `{}`, false},
		"a state that is not set":                          {Rule{Rule: RequireState, Target: "t", Key: "approval"}, `{}`, true},
		"a state that is not set, and a value is required": {Rule{Rule: RequireState, Target: "t", Key: "approval", Value: Values{"yes"}}, `{}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := setOf(t, c.rule)
			got := s.Check(&Call{Tool: "t", Params: []byte(c.params), State: func(k string) string {
				return map[string]string{"verdict": "pass"}[k]
			}})
			if (len(got) > 0) != c.denied {
				t.Errorf("violations %+v, want denied %v", got, c.denied)
			}
		})
	}
}

func TestAViolationNeverQuotesTheValue(t *testing.T) {
	const secret = "hunter2"
	s := setOf(t,
		Rule{Rule: DenyToolParam, Target: "t", Key: "p", Value: Values{secret}},
		Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p", Pattern: "hun.*"},
		Rule{Rule: AllowToolParam, Target: "t", Key: "p", Value: Values{"a"}},
		Rule{Rule: DenyKeyword, Value: Values{secret}},
	)
	got := s.Check(&Call{Tool: "t", Params: []byte(`{"p":"` + secret + `"}`)})
	if len(got) != 4 {
		t.Fatalf("%d violations, want all 4: %+v", len(got), got)
	}
	for _, v := range got {
		if strings.Contains(v.Reason+v.Param, secret) {
			t.Errorf("%+v quotes the value", v)
		}
	}
}

func TestARuleThatPanicsIsViolated(t *testing.T) {
	s := setOf(t, Rule{Rule: DenyKeyword, Value: Values{"x"}})
	(*s.rules.Load())[0].eval = func(*Call) (string, bool) { panic("boom") }
	if got := violated(s, Call{Tool: "t"}); len(got) != 1 {
		t.Errorf("violations %q, want one", got)
	}
	// The same by way of parameters that are no JSON.
	s = setOf(t, Rule{Rule: DenyKeyword, Value: Values{"x"}})
	if got := violated(s, Call{Tool: "t", Params: []byte(`{`)}); len(got) != 1 {
		t.Errorf("violations %q, want one", got)
	}
}

func TestRateLimitSlides(t *testing.T) {
	s := setOf(t, Rule{Name: "rate", Rule: RateLimitTool, Target: "t", Value: Values{"2/10s"}})
	at := func(sec float64, dry bool) []Violation {
		return s.Check(&Call{Tool: "t", Now: time.Duration(sec * float64(time.Second)), DryRun: dry})
	}
	for i, step := range []struct {
		sec  float64
		dry  bool
		wait time.Duration // 0: allowed
	}{
		{0, false, 0}, {1, true, 0}, {2, true, 0}, {6, false, 0},
		{7, false, 3 * time.Second}, {9.5, false, 500 * time.Millisecond},
		{10, false, 0}, {10.1, false, 5900 * time.Millisecond}, {16, false, 0}, {17, false, 3 * time.Second},
	} {
		got := at(step.sec, step.dry)
		if step.wait == 0 && len(got) > 0 {
			t.Errorf("step %d at %gs: %+v, want allowed", i, step.sec, got)
		}
		if step.wait > 0 && (len(got) != 1 || got[0].RetryAfter != step.wait) {
			t.Errorf("step %d at %gs: %+v, want a wait of %v", i, step.sec, got, step.wait)
		}
	}
}

func TestADeniedCallDoesNotCountAgainstARateLimit(t *testing.T) {
	s := setOf(t,
		Rule{Name: "rate", Rule: RateLimitTool, Target: "t", Value: Values{"1"}},
		Rule{Name: "never", Rule: RateLimitTool, Target: "t", Value: Values{"1"}},
		Rule{Name: "word", Rule: DenyKeyword, Value: Values{"x"}},
	)
	bad, good := Call{Tool: "t", Params: []byte(`{"a":"x"}`)}, Call{Tool: "t"}
	for range 3 {
		if got := violated(s, bad); !cmp.Equal(got, []string{"word"}) {
			t.Fatalf("violations %q", got)
		}
	}
	if got := violated(s, good); got != nil {
		t.Fatalf("violations %q, want none", got)
	}
	if got := violated(s, good); !cmp.Equal(got, []string{"rate", "never"}) {
		t.Fatalf("violations %q", got)
	}
}

const example = `
version: 1
tools:
  allow: [read_file, shell, drive_cli]
  deny: [shell]
capabilities: [fs.read]
rules:
- name: no_etc
  rule: deny_tool_param
  target: read_file
  key: path
  value: /etc
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
	f, err := ParseYAML([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSet(f)
	for tool, want := range map[string][]string{
		"shell": {DenyList}, "read_file": nil, "other": {AllowList}, "drive_cli": {"broken"},
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
	if err := s.Add(Rule{Name: "mine", Rule: DenyTool, Target: "read_file"}, 7); err != nil {
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
	if doc.Digest == nil || *doc.Digest != f.Digest || len(doc.Rules) != 3 || len(doc.ClientRules) != 1 || doc.Rules[1].Limit != 10 || doc.Rules[1].WindowMS != 30000 {
		t.Errorf("document %+v", doc)
	}
	// Sets of one file do not share what they count or what clients added.
	if got := violated(NewSet(f), Call{Tool: "read_file"}); got != nil {
		t.Errorf("violations %q in a second set", got)
	}
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

func TestFileRefuses(t *testing.T) {
	for name, c := range map[string]struct{ data, says string }{
		"an unknown key":           {"version: 1\ntool: {}\n", "line 2"},
		"an unknown key of a rule": {"rules:\n- name: a\n  rule: deny_tool\n  target: x\n  tool: x\n", "line 5"},
		"a key given twice":        {"tools: {}\ntools: {}\n", "line 2"},
		"another version":          {"version: 2\n", "version: found 2"},
		"an unknown rule":          {"rules: [{name: a, rule: allow_tool, target: x}]", "unknown rule"},
		"a rule without a name":    {"rules: [{rule: deny_tool, target: x}]", "needs a name"},
		"a rule without a target":  {"rules: [{name: a, rule: deny_tool}]", "needs a target"},
		"a rule without a key":     {"rules: [{name: a, rule: allow_tool_param, target: x, value: 1}]", "needs a key"},
		"an empty substring":       {"rules: [{name: a, rule: deny_tool_param, target: x, key: k, value: ''}]", "not empty"},
		"a rate that is none":      {"rules: [{name: a, rule: rate_limit_tool, target: x, value: often}]", "10/30s"},
		"a rate of no time":        {"rules: [{name: a, rule: rate_limit_tool, target: x, value: 1/0s}]", "10/30s"},
		"a name given twice":       {"rules: [{name: a, rule: deny_tool, target: x}, {name: a, rule: deny_tool, target: y}]", "rules[1]"},
		"a reserved name":          {"rules: [{name: tools.deny, rule: deny_tool, target: x}]", "reserved"},
		"an object as a value":     {"rules: [{name: a, rule: deny_tool_param, target: x, key: k, value: {a: 1}}]", "line 1"},
		"a tool without a name":    {"tools: {deny: ['']}", "not a tool's name"},
		"a useless pattern":        {"rules: [{name: a, rule: deny_tool, target: x, pattern: y}]", "takes no pattern"},
		"an empty file":            {"", "empty"},
	} {
		_, err := ParseYAML([]byte(c.data))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.says)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, p := range []string{write("p.yaml", example), write("p.json", `{"tools":{"deny":["shell"]}}`), write("p", ` {"tools":{"deny":["shell"]}}`)} {
		f, err := Load(p)
		if err != nil {
			t.Fatal(err)
		}
		if !NewSet(f).Forbidden("shell") {
			t.Errorf("%s does not forbid shell", p)
		}
	}
	for _, p := range []string{dir, filepath.Join(dir, "none"), write("big.yaml", strings.Repeat("#\n", MaxFileBytes)), write("dup.json", `{"tools":{},"tools":{}}`)} {
		if _, err := Load(p); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: error %v, want one that names it", p, err)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte(example), false)
	f.Add([]byte(`{"version":1,"tools":{"allow":["a"],"deny":[]},"rules":[{"name":"k","rule":"deny_keyword","value":["x",1,true]}]}`), true)
	f.Add([]byte("rules:\n- {name: s, rule: require_state, target: t, key: verdict, value: pass}\n"), false)
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		parse := ParseYAML
		if isJSON {
			parse = ParseJSON
		}
		p, err := parse(data)
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

// FuzzRule holds that parameters cannot hide a text from a rule by the way
// they are written.
func FuzzRule(f *testing.F) {
	f.Add("path", "/etc", "a/etc/b")
	f.Add("/a/0", "x", "x")
	f.Add("k", "\u00e9\"", "\u00e9\"\\")
	f.Fuzz(func(t *testing.T, key, value, text string) {
		s := NewSet(nil)
		err := s.Add(Rule{Name: "r", Rule: DenyToolParam, Target: "t", Key: key, Value: Values{value}}, 0)
		if err != nil || strings.HasPrefix(key, "/") || !utf8.ValidString(key) || !utf8.ValidString(text) {
			return
		}
		line, err := schema.Line(map[string]any{key: []any{1, map[string]string{"x": text}}})
		if err != nil {
			t.Fatal(err)
		}
		got := s.Check(&Call{Tool: "t", Params: line})
		in := strings.Contains(text, value) || strings.Contains("1", value) || strings.Contains("x", value)
		if (len(got) > 0) != in {
			t.Errorf("violations %+v of %s with %q", got, line, value)
		}
	})
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
