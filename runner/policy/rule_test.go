package policy

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/policyfile"
)

func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		rule   policyfile.Rule
		params string
		denied bool
	}{
		"deny_tool denies its target":   {policyfile.Rule{Rule: policyfile.DenyTool, Target: "t"}, `{}`, true},
		"deny_tool leaves others alone": {policyfile.Rule{Rule: policyfile.DenyTool, Target: "u"}, `{}`, false},
		"deny_tool of every tool":       {policyfile.Rule{Rule: policyfile.DenyTool, Target: "*"}, `{}`, true},
		"a substring in the parameter": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			Pattern: "/etc"}, `{"p":"cat /etc/passwd"}`, true},
		"a substring, escaped in JSON": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			Pattern: "/etc"}, `{"p":"cat \/\u0065tc"}`, true},
		"a substring, under an escaped key": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			Pattern: "/etc"}, `{"\u0070":"/etc"}`, true},
		"a substring in a list in the parameter": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t",
			Key:     "p",
			Pattern: "/etc"}, `{"p":["ls",{"x":"/etc"}]}`, true},
		"a substring as a key in the parameter": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			Pattern: "/etc"}, `{"p":{"/etc":1}}`, true},
		"a substring of a number": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			Pattern: "44"}, `{"p":1443}`, true},
		"a text that equals a value": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"prod"}}, `{"p":"PROD"}`, true},
		"a text that only contains a value": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"prod"}}, `{"p":"production"}`, false},
		"a decomposed letter": {policyfile.Rule{Rule: policyfile.DenyKeyword, Value: policyfile.Values{"passwörd"}},
			`{"p":"passwo\u0308rd"}`, true},
		"a letter that folds to two": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"straße"}}, `{"p":"STRASSE"}`, true},
		"a word with characters that nobody sees": {policyfile.Rule{Rule: policyfile.DenyKeyword,
			Value: policyfile.Values{"password"}},
			`{"p":"pass\u200bwo\u00adrd\ufe0f"}`, true},
		"a pattern's words with characters nobody sees": {policyfile.Rule{Rule: policyfile.DenyToolParamMatching,
			Target: "t", Key: "p",
			Pattern: "rm -rf"}, `{"p":"rm\u2060 -rf"}`, true},
		"a parameter of a list of arguments": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"x"}}, `[{"q":1},{"p":"x"}]`, true},
		"a number as large as an integer can be": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t",
			Key:   "p",
			Value: policyfile.Values{"9007199254740993"}}, `{"p":9007199254740993.0}`, true},
		"a number beside it": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"9007199254740993"}}, `{"p":9007199254740992}`, true},
		"allow_tool_param with a number in other words": {policyfile.Rule{Rule: policyfile.AllowToolParam,
			Target: "t", Key: "p",
			Value: policyfile.Values{"80"}}, `{"p":8.0e1}`, false},
		"allow_tool_param in another case": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"prod"}}, `{"p":"PROD"}`, true},
		"a huge exponent": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"1"}}, `{"p":1e999999999}`, false},
		"a path below": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			ValuePath: policyfile.Values{"/etc"}}, `{"p":"/etc/x"}`, true},
		"the path itself": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			ValuePath: policyfile.Values{"/etc/"}}, `{"p":"//etc"}`, true},
		"a path that leads there": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			ValuePath: policyfile.Values{"/etc"}}, `{"p":"/tmp/../etc/x"}`, true},
		"a path that only begins so": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			ValuePath: policyfile.Values{"/etc"}}, `{"p":"/etcetera"}`, false},
		"a path of another case": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			ValuePath: policyfile.Values{"/etc"}}, `{"p":"/ETC/x"}`, false},
		"a relative path": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			ValuePath: policyfile.Values{"/etc"}}, `{"p":"src/etc"}`, false},
		"a relative path that climbs": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			ValuePath: policyfile.Values{"/etc"}}, `{"p":"a/../../etc/x"}`, true},
		"a file URL": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			ValuePath: policyfile.Values{"/etc"}}, `{"p":["file:///etc/x"]}`, true},
		"an allowed path": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p",
			ValuePath: policyfile.Values{"/srv"}}, `{"p":"/srv/a"}`, false},
		"a path that leaves the allowed one": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p",
			ValuePath: policyfile.Values{"/srv"}}, `{"p":"/srv/../etc"}`, true},
		"a relative path is not allowed": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p",
			ValuePath: policyfile.Values{"/srv"}}, `{"p":"srv/a"}`, true},
		"a number in another notation": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"22"}}, `{"p":2.2e1}`, true},
		"a pattern for a number in another notation": {policyfile.Rule{Rule: policyfile.DenyToolParamMatching,
			Target: "t", Key: "p",
			Pattern: "^22$"}, `{"p":[220E-1]}`, true},
		"a pattern for a number as it is written": {policyfile.Rule{Rule: policyfile.DenyToolParamMatching,
			Target: "t", Key: "p",
			Pattern: `^22\.0$`}, `{"p":22.0}`, true},
		"a pattern for another number": {policyfile.Rule{Rule: policyfile.DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: "^22$"}, `{"p":2.2e2}`, false},
		"a substring in another parameter": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p",
			Pattern: "/etc"}, `{"q":"/etc"}`, false},
		"a substring by JSON pointer": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "/a/1/b",
			Pattern: "x"}, `{"a":[0,{"b":"x"}]}`, true},
		"a JSON pointer to nothing": {policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "/a/9/b",
			Value: policyfile.Values{"x"}}, `{"a":[0,{"b":"x"}]}`, false},
		"a pattern that matches": {policyfile.Rule{Rule: policyfile.DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: `^rm\s+-rf`}, `{"p":"rm  -rf /"}`, true},
		"a pattern that does not match": {policyfile.Rule{Rule: policyfile.DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: `^rm\s+-rf`}, `{"p":"ls"}`, false},
		"a bad pattern denies": {policyfile.Rule{Rule: policyfile.DenyToolParamMatching, Target: "t", Key: "p",
			Pattern: `(`}, `{"p":"ls"}`, true},
		"a bad pattern denies without the parameter": {policyfile.Rule{Rule: policyfile.DenyToolParamMatching,
			Target: "t", Key: "p",
			Pattern: `a{1001}`}, `{}`, true},
		"a pattern too large to match denies": {policyfile.Rule{Rule: policyfile.DenyToolParamMatching, Target: "t",
			Key:     "p",
			Pattern: `(a{100}){100}`}, `{}`, true},
		"allow_tool_param with the value": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"a", "b"}}, `{"p":"b"}`, false},
		"allow_tool_param with a number": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"80"}}, `{"p":80}`, false},
		"allow_tool_param, unlisted": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"a", "b"}}, `{"p":"c"}`, true},
		"allow_tool_param, a longer value": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"a"}}, `{"p":"aa"}`, true},
		"allow_tool_param, absent": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"a", ""}}, `{}`, true},
		"allow_tool_param, empty, even when listed": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t",
			Key:   "p",
			Value: policyfile.Values{"a", ""}}, `{"p":""}`, true},
		"allow_tool_param, null": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"null"}}, `{"p":null}`, true},
		"allow_tool_param, a list of allowed values": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t",
			Key:   "p",
			Value: policyfile.Values{"a"}}, `{"p":["a"]}`, true},
		"allow_tool_param when parameters are a list": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t",
			Key:   "p",
			Value: policyfile.Values{"a"}}, `["a"]`, true},
		"allow_tool_param without parameters": {policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p",
			Value: policyfile.Values{"a"}}, ``, true},
		"a keyword deep down, in another case": {policyfile.Rule{Rule: policyfile.DenyKeyword,
			Value: policyfile.Values{"Password"}},
			`{"a":[{"b":"my PASSWORD is"}]}`, true},
		"a keyword of another script, in another case": {policyfile.Rule{Rule: policyfile.DenyKeyword,
			Value: policyfile.Values{"οδος"}},
			`{"a":"ΟΔΟΣ"}`, true},
		"a keyword with a letter's rare other case": {policyfile.Rule{Rule: policyfile.DenyKeyword,
			Value: policyfile.Values{"PASSKEY"}},
			`{"a":"paſſ\u212aey"}`, true},
		"a keyword as a key": {policyfile.Rule{Rule: policyfile.DenyKeyword, Value: policyfile.Values{"password"}},
			`{"password":1}`, true},
		"a keyword for another tool": {policyfile.Rule{Rule: policyfile.DenyKeyword, Target: "u",
			Value: policyfile.Values{"password"}}, `{"password":1}`, false},
		"a keyword that is not there": {policyfile.Rule{Rule: policyfile.DenyKeyword,
			Value: policyfile.Values{"password"}},
			`{"a":"pass word"}`, false},
		"a rate limit of none": {policyfile.Rule{Rule: policyfile.RateLimitTool, Target: "t",
			Value: policyfile.Values{"0"}},
			`{}`, true},
		"the required state": {policyfile.Rule{Rule: policyfile.RequireState, Target: "t", Key: "verdict",
			Value: policyfile.Values{"pass"}}, `{}`, false},
		"another state": {policyfile.Rule{Rule: policyfile.RequireState, Target: "t", Key: "verdict",
			Value: policyfile.Values{"fail"}}, `{}`, true},
		"a state that must only be set": {policyfile.Rule{Rule: policyfile.RequireState, Target: "t", Key: "verdict"},
			`{}`, false},
		"a state that is not set": {policyfile.Rule{Rule: policyfile.RequireState, Target: "t", Key: "approval"},
			`{}`, true},
		"a state that is not set, and a value is required": {policyfile.Rule{Rule: policyfile.RequireState,
			Target: "t", Key: "approval",
			Value: policyfile.Values{"yes"}}, `{}`, true},
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
		policyfile.Rule{Rule: policyfile.DenyToolParam, Target: "t", Key: "p", Value: policyfile.Values{secret}},
		policyfile.Rule{Rule: policyfile.DenyToolParamMatching, Target: "t", Key: "p", Pattern: "hun.*"},
		policyfile.Rule{Rule: policyfile.AllowToolParam, Target: "t", Key: "p", Value: policyfile.Values{"a"}},
		policyfile.Rule{Rule: policyfile.DenyKeyword, Value: policyfile.Values{secret}},
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
	s := setOf(t, policyfile.Rule{Rule: policyfile.DenyKeyword, Value: policyfile.Values{"x"}})
	(*s.rules.Load())[0].eval = func(*Call) (string, bool) { panic("boom") }
	if got := violated(s, Call{Tool: "t"}); len(got) != 1 {
		t.Errorf("violations %q, want one", got)
	}
	// The same by way of parameters that are no JSON.
	s = setOf(t, policyfile.Rule{Rule: policyfile.DenyKeyword, Value: policyfile.Values{"x"}})
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
		err := s.Add(policyfile.Rule{Name: "r", Rule: policyfile.DenyToolParam, Target: "t", Key: key,
			Pattern: value}, 0)
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
