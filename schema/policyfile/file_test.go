package policyfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
		"an empty substring": {"rules: [{name: a, rule: deny_tool_param, target: x, key: k, value: ''}]",
			"not empty"},
		"a rate that is none": {"rules: [{name: a, rule: rate_limit_tool, target: x, value: often}]", "10/30s"},
		"a rate of no time":   {"rules: [{name: a, rule: rate_limit_tool, target: x, value: 1/0s}]", "10/30s"},
		"a name given twice": {"rules: [{name: a, rule: deny_tool, target: x}, {name: a, rule: " +
			"deny_tool, target: y}]", "rules[1]"},
		"a reserved name": {"rules: [{name: tools.deny, rule: deny_tool, target: x}]", "reserved"},
		"an object as a value": {"rules: [{name: a, rule: deny_tool_param, target: x, key: k, value: {a: 1}}]",
			"line 1"},
		"a list as a value's item": {"rules: [{name: a, rule: deny_tool_param, target: x, key: k, value: [[1]]}]",
			"value: a list of values may hold only strings"},
		"a tool without a name": {"tools: {deny: ['']}", "a name must"},
		"a useless pattern":     {"rules: [{name: a, rule: deny_tool, target: x, pattern: y}]", "does not use pattern"},
		"an empty file":         {"", "empty"},
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
	for _, p := range []string{write("p.yaml", example), write("flow.yaml", `{tools: {deny: [shell]}}`),
		write("p.json", `{"tools":{"deny":["shell"]}}`), write("p", ` {"tools":{"deny":["shell"]}}`)} {
		f, err := Load(p)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(f.Tools.Deny, "shell") {
			t.Errorf("%s does not deny shell", p)
		}
	}
	for _, p := range []string{dir, filepath.Join(dir, "none"), write("big.yaml", strings.Repeat("#\n", maxFileBytes)),
		write("dup.json", `{"tools":{},"tools":{}}`)} {
		if _, err := Load(p); err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("%s: error %v, want one that names it", p, err)
		}
	}
}

func TestModelKey(t *testing.T) {
	f, err := ParseYAML([]byte("model: {provider_tools: deny}\n"))
	if err != nil || !f.DeniesProviderTools() {
		t.Fatalf("the policy is %+v, %v", f, err)
	}
	if d := f.Denials(); len(d) != 1 || !strings.Contains(d[0], "which the provider runs") {
		t.Errorf("it is explained by %q", d)
	}
	for _, text := range []string{"tools: {}", "model: {}", "model: {provider_tools: allow}"} {
		if f, err := ParseYAML([]byte(text)); err != nil || f.DeniesProviderTools() {
			t.Errorf("%q denies tools of providers, or %v", text, err)
		}
	}
	for _, text := range []string{"model: {provider_tools: no}", "model: {tools: deny}", "model: deny"} {
		if _, err := ParseYAML([]byte(text)); err == nil || !strings.Contains(err.Error(), "model") {
			t.Errorf("%q is a policy, or the error is without its key: %v", text, err)
		}
	}
	if (*File)(nil).DeniesProviderTools() {
		t.Error("no policy denies tools of providers")
	}
}
