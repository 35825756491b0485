package judge

import (
	"strings"
	"testing"
)

func TestBadRulesAreRefusedBeforeAnythingIsRead(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":        {"", "the file is empty"},
		"no rules":       {"allow_unknown: []", `no "rules"`},
		"an empty list":  {"rules: []", "would pass everything"},
		"an unknown key": {"rules: [{no_privileged: true}]\nrulez: 1", "rulez"},
		"an unknown rule": {"rules: [{no_priviledged: true}]",
			`"no_priviledged" is not a rule; did you mean "no_privileged"; allowed are closed_book, contract_passed`},
		"a key twice":           {"rules: [{no_privileged: true}]\nrules: []", "key given twice"},
		"two keys in a rule":    {"rules: [{no_privileged: true, contract_passed: true}]", "has 2 keys"},
		"switched off":          {"rules: [{no_privileged: false}]", "omit the rule"},
		"hosts that are a text": {"rules: [{only_hosts: x}]", "a list of strings"},
		"a bad glob":            {"rules: [{only_programs: ['[']}]", "is not a valid glob"},
		"a bad expression":      {"rules: [{expr: 'nope'}]", "undeclared reference"},
		"an unknown expr key":   {"rules: [{expr: {of: events, nevr: 'true'}}]", "nevr"},
		"two questions":         {"rules: [{expr: {never: 'true', some: 'true'}}]", "want one"},
		"an unknown subject":    {"rules: [{expr: {of: things, never: 'true'}}]", "want one of"},
		"a name twice":          {"rules: [{no_privileged: true}, {no_privileged: true}]", "used twice"},
		"unknown allowed": {"rules: [{no_privileged: true}]\nallow_unknown: [only_hosts]",
			"is not one of the rules"},
		"a base that is not":   {"rules: [{no_new_capability_against: nowhere.tar.gz}]", "cannot be read"},
		"an alias":             {"rules: [&a {no_privileged: true}, *a]", "a YAML anchor"},
		"two documents":        {"rules: [{no_privileged: true}]\n---\nrules: []", "second YAML document"},
		"brackets without end": {strings.Repeat("[", 60<<10), "nested too deep"},
		"a wrong value": {"rules:\n- only_workspace_writes: {alsoo: [a]}",
			"line 2, column 27: rules[0].only_workspace_writes.alsoo: unknown key; did you mean \"also\""},
		"an endless value": {"rules: [{expr: '" + strings.Repeat("!", 1<<15) + "true'}]", "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseRules(t.Context(), []byte(c.text), t.TempDir())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("rules:\n- only_hosts: [a, b]\n- expr: {of: events, never: 'kind == " +
		"\"exec\"'}\nallow_unknown: [only_hosts]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return
		}
		if r, err := ParseRules(t.Context(), data, t.TempDir()); err == nil {
			r.Close()
		}
	})
}

// A rule is allowed to be unknown for the calls that are named, and for nothing beside them.
func TestCallsThatMayBeUnknown(t *testing.T) {
	r, err := ParseRules(t.Context(), []byte("rules: [{no_privileged: true}]\n"+
		"allow_unknown: [call keyctl, call setsockopt IP_TTL]"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for name, c := range map[string]struct {
		calls []string
		want  bool
	}{
		"no reason":           {nil, false},
		"a call":              {[]string{"keyctl"}, true},
		"one operation":       {[]string{"keyctl 3", "setsockopt IP_TTL"}, true},
		"another operation":   {[]string{"setsockopt IP_OPTIONS"}, false},
		"something else, too": {[]string{"keyctl", ""}, false},
	} {
		if got := r.allow("no_privileged", c.calls); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
