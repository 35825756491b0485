package policy

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/assay-run/assay-run/schema"
)

func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		rule   Rule
		params string
		denied bool
	}{
		"deny_tool denies its target":   {Rule{Rule: DenyTool, Target: "t"}, `{}`, true},
		"deny_tool leaves others alone": {Rule{Rule: DenyTool, Target: "u"}, `{}`, false},
		"deny_tool of every tool":       {Rule{Rule: DenyTool, Target: "*"}, `{}`, true},
		"a substring in the parameter": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Pattern: "/etc"}, `{"p":"cat /etc/passwd"}`, true},
		"a substring, escaped in JSON": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Pattern: "/etc"}, `{"p":"cat \/\u0065tc"}`, true},
		"a substring, under an escaped key": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Pattern: "/etc"}, `{"\u0070":"/etc"}`, true},
		"a substring in a list in the parameter": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Pattern: "/etc"}, `{"p":["ls",{"x":"/etc"}]}`, true},
		"a substring as a key in the parameter": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Pattern: "/etc"}, `{"p":{"/etc":1}}`, true},
		"a substring of a number": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Pattern: "44"}, `{"p":1443}`, true},
		"a text that equals a value": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Value: Values{"prod"}}, `{"p":"PROD"}`, true},
		"a text that only contains a value": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Value: Values{"prod"}}, `{"p":"production"}`, false},
		"a decomposed letter": {Rule{Rule: DenyKeyword, Value: Values{"passwörd"}},
			`{"p":"passwo\u0308rd"}`, true},
		"a letter that folds to two": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Value: Values{"straße"}}, `{"p":"STRASSE"}`, true},
		"a word with characters that nobody sees": {Rule{Rule: DenyKeyword, Value: Values{"password"}},
			`{"p":"pass\u200bwo\u00adrd\ufe0f"}`, true},
		"a pattern's words with characters nobody sees": {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: "rm -rf"}, `{"p":"rm\u2060 -rf"}`, true},
		"a parameter of a list of arguments": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Value: Values{"x"}}, `[{"q":1},{"p":"x"}]`, true},
		"a number as large as an integer can be": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Value: Values{"9007199254740993"}}, `{"p":9007199254740993.0}`, true},
		"a number beside it": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"9007199254740993"}}, `{"p":9007199254740992}`, true},
		"allow_tool_param with a number in other words": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"80"}}, `{"p":8.0e1}`, false},
		"allow_tool_param in another case": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"prod"}}, `{"p":"PROD"}`, true},
		"a huge exponent": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Value: Values{"1"}}, `{"p":1e999999999}`, false},
		"a path below": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			ValuePath: Values{"/etc"}}, `{"p":"/etc/x"}`, true},
		"the path itself": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			ValuePath: Values{"/etc/"}}, `{"p":"//etc"}`, true},
		"a path that leads there": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			ValuePath: Values{"/etc"}}, `{"p":"/tmp/../etc/x"}`, true},
		"a path that only begins so": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			ValuePath: Values{"/etc"}}, `{"p":"/etcetera"}`, false},
		"a path of another case": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			ValuePath: Values{"/etc"}}, `{"p":"/ETC/x"}`, false},
		"a relative path": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			ValuePath: Values{"/etc"}}, `{"p":"src/etc"}`, false},
		"a relative path that climbs": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			ValuePath: Values{"/etc"}}, `{"p":"a/../../etc/x"}`, true},
		"a file URL": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			ValuePath: Values{"/etc"}}, `{"p":["file:///etc/x"]}`, true},
		"an allowed path": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			ValuePath: Values{"/srv"}}, `{"p":"/srv/a"}`, false},
		"a path that leaves the allowed one": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			ValuePath: Values{"/srv"}}, `{"p":"/srv/../etc"}`, true},
		"a relative path is not allowed": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			ValuePath: Values{"/srv"}}, `{"p":"srv/a"}`, true},
		"a number in another notation": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Value: Values{"22"}}, `{"p":2.2e1}`, true},
		"a pattern for a number in another notation": {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: "^22$"}, `{"p":[220E-1]}`, true},
		"a pattern for a number as it is written": {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: `^22\.0$`}, `{"p":22.0}`, true},
		"a pattern for another number": {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: "^22$"}, `{"p":2.2e2}`, false},
		"a substring in another parameter": {Rule{Rule: DenyToolParam, Target: "t", Key: "p",
			Pattern: "/etc"}, `{"q":"/etc"}`, false},
		"a substring by JSON pointer": {Rule{Rule: DenyToolParam, Target: "t", Key: "/a/1/b",
			Pattern: "x"}, `{"a":[0,{"b":"x"}]}`, true},
		"a JSON pointer to nothing": {Rule{Rule: DenyToolParam, Target: "t", Key: "/a/9/b",
			Value: Values{"x"}}, `{"a":[0,{"b":"x"}]}`, false},
		"a pattern that matches": {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: `^rm\s+-rf`}, `{"p":"rm  -rf /"}`, true},
		"a pattern that does not match": {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: `^rm\s+-rf`}, `{"p":"ls"}`, false},
		"a bad pattern denies": {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: `(`}, `{"p":"ls"}`, true},
		"a bad pattern denies without the parameter": {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: `a{1001}`}, `{}`, true},
		"a pattern too large to match denies": {Rule{Rule: DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: `(a{100}){100}`}, `{}`, true},
		"allow_tool_param with the value": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"a", "b"}}, `{"p":"b"}`, false},
		"allow_tool_param with a number": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"80"}}, `{"p":80}`, false},
		"allow_tool_param, unlisted": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"a", "b"}}, `{"p":"c"}`, true},
		"allow_tool_param, a longer value": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"a"}}, `{"p":"aa"}`, true},
		"allow_tool_param, absent": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"a", ""}}, `{}`, true},
		"allow_tool_param, empty, even when listed": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"a", ""}}, `{"p":""}`, true},
		"allow_tool_param, null": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"null"}}, `{"p":null}`, true},
		"allow_tool_param, a list of allowed values": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"a"}}, `{"p":["a"]}`, true},
		"allow_tool_param when parameters are a list": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"a"}}, `["a"]`, true},
		"allow_tool_param without parameters": {Rule{Rule: AllowToolParam, Target: "t", Key: "p",
			Value: Values{"a"}}, ``, true},
		"a keyword deep down, in another case": {Rule{Rule: DenyKeyword, Value: Values{"Password"}},
			`{"a":[{"b":"my PASSWORD is"}]}`, true},
		"a keyword of another script, in another case": {Rule{Rule: DenyKeyword, Value: Values{"οδος"}},
			`{"a":"ΟΔΟΣ"}`, true},
		"a keyword with a letter's rare other case": {Rule{Rule: DenyKeyword, Value: Values{"PASSKEY"}},
			`{"a":"paſſ\u212aey"}`, true},
		"a keyword as a key": {Rule{Rule: DenyKeyword, Value: Values{"password"}},
			`{"password":1}`, true},
		"a keyword for another tool": {Rule{Rule: DenyKeyword, Target: "u",
			Value: Values{"password"}}, `{"password":1}`, false},
		"a keyword that is not there": {Rule{Rule: DenyKeyword, Value: Values{"password"}},
			`{"a":"pass word"}`, false},
		"a rate limit of none": {Rule{Rule: RateLimitTool, Target: "t", Value: Values{"0"}},
			`{}`, true},
		"the required state": {Rule{Rule: RequireState, Target: "t", Key: "verdict",
			Value: Values{"pass"}}, `{}`, false},
		"another state": {Rule{Rule: RequireState, Target: "t", Key: "verdict",
			Value: Values{"fail"}}, `{}`, true},
		"a state that must only be set": {Rule{Rule: RequireState, Target: "t", Key: "verdict"},
			`{}`, false},
		"a state that is not set": {Rule{Rule: RequireState, Target: "t", Key: "approval"},
			`{}`, true},
		"a state that is not set, and a value is required": {Rule{Rule: RequireState, Target: "t", Key: "approval",
			Value: Values{"yes"}}, `{}`, true},
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

// FuzzRule checks that parameters cannot hide a text from a rule by how they are written.
func FuzzRule(f *testing.F) {
	f.Add("path", "/etc", "a/etc/b")
	f.Add("/a/0", "x", "x")
	f.Add("k", "\u00e9\"", "\u00e9\"\\")
	f.Fuzz(func(t *testing.T, key, value, text string) {
		s := NewSet(nil)
		err := s.Add(Rule{Name: "r", Rule: DenyToolParam, Target: "t", Key: key, Pattern: value}, 0)
		if err != nil || strings.HasPrefix(key, "/") || !utf8.ValidString(key) || !utf8.ValidString(text) {
			return
		}
		line, err := schema.Line(map[string]any{key: []any{1, map[string]string{"x": text}}})
		if err != nil {
			t.Fatal(err)
		}
		got := s.Check(&Call{Tool: "t", Params: line})
		in := func(s string) bool { return strings.Contains(folded(s), folded(value)) }
		if (len(got) > 0) != (in(text) || in("1") || in("x")) {
			t.Errorf("violations %+v of %s with %q", got, line, value)
		}
	})
}
