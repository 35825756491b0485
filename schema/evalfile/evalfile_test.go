package evalfile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

const whole = `workspace: [/app]
hidden: [/oracle/, "tests/hidden_*.py"]
protected: ["tests/**"]
reward: [/logs/verifier/reward.txt]
forbidden:
  hosts: ["*.github.com"]
  packages: [requests]
  repositories: ["github.com/psf/*"]
others: [/attempts/**]
start_commit: "0a1B2c3d"
servers: [{port: 8080}]
agent: codex
`

func TestAFileIsReadWhole(t *testing.T) {
	doc, err := Parse([]byte(whole))
	if err != nil {
		t.Fatal(err)
	}
	want := schema.EvaluationDefinition{
		Workspace: []string{"/app"}, Hidden: []string{"/oracle", "tests/hidden_*.py"}, Protected: []string{"tests/**"},
		Reward: []string{"/logs/verifier/reward.txt"}, Others: []string{"/attempts/**"}, StartCommit: "0a1b2c3d",
		Agent: "codex", Servers: []schema.EvaluationServer{{Port: 8080}},
		Forbidden: schema.EvaluationForbidden{
			Hosts: []string{"*.github.com"}, Packages: []string{"requests"}, Repositories: []string{"github.com/psf/*"},
		},
	}
	if d := cmp.Diff(want, doc.Evaluation); d != "" {
		t.Error(d)
	}
	doc.RunID = "run_1"
	data, err := schema.Document(doc)
	if err == nil {
		err = schema.Validate(schema.EvaluationV0, data)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestAllFaultsAreToldAtOnce(t *testing.T) {
	_, err := Parse([]byte("workspace: [app]\nhiden: [x]\nhidden: ['[', ../x]\nreward: /x\nreward: " +
		"[/y]\nstart_commit: 12345678\n" +
		"agent: hal\nforbidden: {host: [x], packages: []}\n"))
	for _, want := range []string{
		`line 1, column 13: workspace[0]: "app" is not absolute`,
		`line 2, column 1: hiden: unknown key; did you mean "hidden"`,
		`line 3, column 10: hidden[0]: "[" is not a valid glob`,
		`line 3, column 15: hidden[1]: "../x" leaves the workspace`,
		"line 4, column 1: reward: found a string, want a list",
		"line 5, column 1: reward: key given twice; the first is on line 4",
		"line 6, column 1: start_commit: found a number, want a string (quote it)",
		`line 7, column 1: agent: "hal" is not known; the agents are claude-code`,
		`line 8, column 13: forbidden.host: unknown key; did you mean "hosts"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}

func TestBadFilesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":           {"", "empty"},
		"a list":            {"[x]", "want an object"},
		"a key twice":       {"hidden: [x]\nhidden: [y]", "twice"},
		"two documents":     {"hidden: [x]\n---\nhidden: [y]", "second YAML document"},
		"an alias":          {"hidden: &a [x]\nothers: *a", "not allowed"},
		"a number":          {"hidden: [1]", "found a number"},
		"no value":          {"hidden:", "it has 0 globs"},
		"no UTF-8":          {"hidden: [\xff]", "UTF-8"},
		"deep":              {"hidden: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "deep"},
		"an empty list":     {"forbidden: {packages: []}", "line 1, column 13: forbidden.packages: it has 0 globs"},
		"an empty glob":     {"hidden: ['']", "it is empty"},
		"a climbing path":   {"hidden: [a/../../x]", "leaves the workspace"},
		"no port":           {"servers: [{port: 0}]", "servers[0]: the port is 0"},
		"no server":         {"servers: []", "it has 0 servers"},
		"a commit's tag":    {"start_commit: v1.2", "is not a commit"},
		"more than allowed": {"hidden: [" + strings.Repeat("x, ", maxGlobs+1) + "]", "globs"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error is %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a directory was read")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := Parse(data)
		if err != nil || len(data) > 4096 {
			return
		}
		doc.RunID = "run_1"
		out, err := schema.Document(doc)
		if err == nil {
			err = schema.Validate(schema.EvaluationV0, out)
		}
		if err != nil {
			t.Errorf("%q: %v", data, err)
		}
	})
}
