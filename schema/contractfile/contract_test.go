package contractfile

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/.ci/leaktest"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
)

func check(name, command string) schema.Check {
	return schema.Check{Name: name, Command: command, ExpectExitZero: true, TimeoutSecs: 30}
}

func expecting(c schema.Check, text string) schema.Check {
	c.OutputContains = &text
	return c
}

func unless0(c schema.Check) schema.Check {
	c.ExpectExitZero = false
	return c
}

func TestLoadFillsInTheDefaults(t *testing.T) {
	text := "ok"
	want := &Contract{
		Description: "the tests pass",
		Checks: []schema.Check{
			{Name: "tests", Command: "go test ./...", ExpectExitZero: true, TimeoutSecs: 120},
			{Name: "says_ok", Command: "./run", OutputContains: &text, TimeoutSecs: 5},
		},
		Protected: []string{"**/*_test.go"},
	}
	const asJSON = `{"description": "the tests pass", "checks": [
		{"name": " tests ", "command": "go test ./...", "output_contains": null},
		{"name": "says_ok", "command": "./run", "expect_exit_zero": false, "output_contains": "ok", "timeout_secs": 5}],
		"protected": ["**/*_test.go"]}`
	const asYAML = `description: the tests pass
checks:
  - name: " tests "
    command: go test ./...
  - {name: says_ok, command: ./run, expect_exit_zero: false, output_contains: ok, timeout_secs: 5}
protected:
  - "**/*_test.go"
`
	for name, data := range map[string]string{"c.json": asJSON, "c.yaml": asYAML, "c.YML": asYAML, "contract": asYAML,
		"definition": asJSON} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		got, digest, err := Load(path)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if digest != digestOf([]byte(data)) || len(digest) != 7+64 {
			t.Errorf("%s: digest %s", name, digest)
		}
		if problems := got.Validate(); problems != nil {
			t.Errorf("%s: problems %v", name, problems)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, data string) string {
		if err := os.WriteFile(at(name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	if err := unix.Mkfifo(at("fifo.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, says string }{
		"a missing file":          {at("none.json"), "no such file"},
		"a directory":             {dir, "not a regular file"},
		"a FIFO without a writer": {at("fifo.json"), "not a regular file"},
		"a device":                {"/dev/zero", "not a regular file"},
		"a huge file": {write("huge.json", strings.Repeat(" ", maxFileBytes+1)),
			"larger than 262144 bytes"},
		"an unknown key": {write("key.json", "{\n\"cheks\": []}"),
			"key.json: line 2, column 1: cheks: unknown key; " +
				"did you mean \"checks\"; allowed are description, checks, protected"},
		"an unknown key in YAML": {write("key.yaml", "checks:\n- name: a\n  comand: x\n"),
			"key.yaml: line 3, column 3: checks[0].comand: unknown key"},
		"a key given twice": {write("twice.json", `{"checks":[],"checks":[]}`), "checks: key given twice"},
		"an alias bomb": {write("bomb.yaml", "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n"),
			"line 1, column 4: a: a YAML anchor"},
		"a torn file":       {write("torn.json", `{"description": "x", "chec`), "not valid JSON"},
		"an empty file":     {write("empty.yaml", ""), "empty"},
		"NUL bytes":         {write("nul.yaml", "checks: \"\x00\""), "nul.yaml"},
		"NUL bytes in JSON": {write("nul.json", "{\"description\": \"\x00\"}"), "not valid JSON"},
		"invalid UTF-8":     {write("utf8.json", "{\"description\": \"\xff\"}"), "not valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan error, 1)
			go func() { _, _, err := Load(c.path); done <- err }()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("error %v, want one that says %q", err, c.says)
				}
			case <-time.After(time.Minute):
				t.Fatal("hangs")
			}
		})
	}
}

func TestRender(t *testing.T) {
	c := &Contract{
		Description: "Mend the parser.\x1b[2J",
		Checks: []schema.Check{
			check("tests_pass", "cd parser\ngo test ./..."),
			unless0(expecting(check("usage", "./parser -h"), "usage:\n")),
		},
		Protected: []string{"**/*_test.go"},
	}
	var b bytes.Buffer
	if err := Render(&b, c); err != nil {
		t.Fatal(err)
	}
	const want = `Mend the parser.\x1b[2J

Done means that all of these pass (2):

1. tests_pass
   $ cd parser
     go test ./...
   expects exit status 0, within 30 s

2. usage
   $ ./parser -h
   expects "usage:\n" in the output, within 30 s

Restored to their state at the start before checking:
   **/*_test.go
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestEncodeReadsBack(t *testing.T) {
	c := &Contract{Description: "a: b\n#c", Protected: []string{"**/*_test.go", "!x", "- a"}, Checks: []schema.Check{
		check("tests", "set -e\ncd a\n\tgo test ./... # all\n"), expecting(check("yes", "printf 'null'"), "null"),
		unless0(expecting(check("1", "0x10"), "~")),
	}}
	for _, format := range []config.Format{config.JSON, config.YAML} {
		data, err := Encode(c, format)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(data, format)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if d := cmp.Diff(c, got); d != "" {
			t.Errorf("(-want +got):\n%s\n%s", d, data)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"description":"d","checks":[{"name":"a","command":"go test ./...","expect_exit_zero":false,"output_contains":"ok","timeout_secs":5}],"protected":["**/*_test.go"]}`,
		"description: d\nchecks:\n- name: a\n  command: |\n    go test ./...\n  output_contains: null\n",
		"a: &a [*a]", "{", "- - - -", "? x\n: y", "checks: [{name: a, name: b}]", "a: !!str b\n---\n...\n", "\xff",
		"\x00",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, isYAML bool) {
		format := config.JSON
		if isYAML {
			format = config.YAML
		}
		begin := leaktest.Computed()
		c, err := Parse(data, format)
		if took := leaktest.Computed() - begin; took > 3*time.Second {
			t.Errorf("took %v for %d bytes", took, len(data))
		}
		if err != nil {
			if err.Error() == "" {
				t.Error("an error that says nothing")
			}
			return
		}
		problems := c.Validate()
		if err := Render(&bytes.Buffer{}, c); err != nil {
			t.Error(err)
		}
		if len(problems) > 0 {
			return
		}
		// What is valid survives being written and read again.
		for _, format := range []config.Format{config.JSON, config.YAML} {
			out, err := Encode(c, format)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse(out, format)
			if err != nil {
				t.Fatalf("written as\n%s\n%v", out, err)
			}
			if d := cmp.Diff(c, again, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("(-first +again):\n%s", d)
			}
		}
	})
}
