package contract

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

	"github.com/assay-run/assay-run/schema"
)

func TestLoadFillsInTheDefaults(t *testing.T) {
	text := "ok"
	want := &Contract{
		Description: "the tests pass",
		Checks: []Check{
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
	for name, data := range map[string]string{"c.json": asJSON, "c.yaml": asYAML, "c.YML": asYAML, "contract": asYAML, "definition": asJSON} {
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
		if digest != Digest([]byte(data)) || len(digest) != 7+64 {
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
		"a huge file":             {write("huge.json", strings.Repeat(" ", MaxFileBytes+1)), "larger than 262144 bytes"},
		"an unknown key":          {write("key.json", "{\n\"cheks\": []}"), "key.json: line 2: cheks: unknown key; allowed are description, checks, protected"},
		"an unknown key in YAML":  {write("key.yaml", "checks:\n- name: a\n  comand: x\n"), "key.yaml: line 3: checks[0].comand: unknown key"},
		"a key given twice":       {write("twice.json", `{"checks":[],"checks":[]}`), "checks: key given twice"},
		"an alias bomb":           {write("bomb.yaml", "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n"), "line 1: a YAML anchor"},
		"a torn file":             {write("torn.json", `{"description": "x", "chec`), "not valid JSON"},
		"an empty file":           {write("empty.yaml", ""), "empty"},
		"NUL bytes":               {write("nul.yaml", "checks: \"\x00\""), "nul.yaml"},
		"NUL bytes in JSON":       {write("nul.json", "{\"description\": \"\x00\"}"), "not valid JSON"},
		"invalid UTF-8":           {write("utf8.json", "{\"description\": \"\xff\"}"), "not valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan error, 1)
			go func() { _, _, err := Load(c.path); done <- err }()
			select {
			case err := <-done:
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("error %v, want one that says %q", err, c.says)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("hangs")
			}
		})
	}
}

func TestEveryProblemIsFound(t *testing.T) {
	good := check("tests_pass", "go test ./...")
	with := func(change func(*Check)) *Contract {
		c := good
		change(&c)
		return &Contract{Checks: []Check{c}}
	}
	empty := ""
	long := strings.Repeat("x", MaxContainsBytes+1)
	for name, c := range map[string]struct {
		contract *Contract
		codes    []string
	}{
		"a good check":                        {with(func(c *Check) {}), nil},
		"no checks":                           {&Contract{Description: "x"}, []string{"no_checks"}},
		"too many checks":                     {&Contract{Checks: numbered(MaxChecks + 1)}, []string{"too_many_checks"}},
		"as many checks as are allowed":       {&Contract{Checks: numbered(MaxChecks)}, nil},
		"an empty name":                       {with(func(c *Check) { c.Name = "" }), []string{"empty_name"}},
		"a blank name":                        {with(func(c *Check) { c.Name = " \t" }), []string{"empty_name"}},
		"a long name":                         {with(func(c *Check) { c.Name = strings.Repeat("n", 81) }), []string{"bad_name"}},
		"a newline in a name":                 {with(func(c *Check) { c.Name = "a\nb" }), []string{"bad_name"}},
		"a NUL in a name":                     {with(func(c *Check) { c.Name = "a\x00b" }), []string{"bad_name"}},
		"a name that is a path":               {with(func(c *Check) { c.Name = "../../etc/passwd" }), nil},
		"a name of several words":             {with(func(c *Check) { c.Name = "the tests pass" }), nil},
		"the placeholder":                     {with(func(c *Check) { c.Name = " unique_snake_case_label " }), []string{"placeholder_name"}},
		"a name like the placeholder":         {with(func(c *Check) { c.Name = "unique_snake_case_label_2" }), nil},
		"an empty command":                    {with(func(c *Check) { c.Command = "" }), []string{"empty_command"}},
		"a blank command":                     {with(func(c *Check) { c.Command = " \n\t" }), []string{"empty_command"}},
		"a NUL in a command":                  {with(func(c *Check) { c.Command = "a\x00b" }), []string{"bad_command"}},
		"a command of invalid UTF-8":          {with(func(c *Check) { c.Command = "a\xff" }), []string{"bad_command"}},
		"a command that is too long":          {with(func(c *Check) { c.Command = strings.Repeat("x", MaxCommandBytes+1) }), []string{"bad_command"}},
		"nothing is asserted":                 {with(func(c *Check) { c.ExpectExitZero = false }), []string{"asserts_nothing"}},
		"only that the output contains \"\"":  {with(func(c *Check) { c.ExpectExitZero = false; c.OutputContains = &empty }), []string{"asserts_nothing"}},
		"a text that is too long":             {with(func(c *Check) { c.OutputContains = &long }), []string{"bad_output_contains"}},
		"no time at all":                      {with(func(c *Check) { c.TimeoutSecs = 0 }), []string{"bad_timeout"}},
		"negative time":                       {with(func(c *Check) { c.TimeoutSecs = -1 }), []string{"bad_timeout"}},
		"more than a day":                     {with(func(c *Check) { c.TimeoutSecs = MaxTimeoutSecs + 1 }), []string{"bad_timeout"}},
		"a name twice":                        {&Contract{Checks: []Check{good, good}}, []string{"duplicate_name"}},
		"a name twice but for spaces":         {&Contract{Checks: []Check{good, check(" tests_pass\t", "make check")}}, []string{"duplicate_name"}},
		"names that differ in case":           {&Contract{Checks: []Check{good, check("Tests_pass", "make check")}}, nil},
		"two empty names are not a duplicate": {&Contract{Checks: []Check{check("", "a b"), check("", "c d")}}, []string{"empty_name", "empty_name"}},
		"a protected path outside":            {&Contract{Checks: []Check{good}, Protected: []string{"../x", "/etc/passwd", "a/../../b"}}, []string{"bad_protected", "bad_protected", "bad_protected"}},
		"a protected glob that is none":       {&Contract{Checks: []Check{good}, Protected: []string{"", "a[", "a\x00"}}, []string{"bad_protected", "bad_protected", "bad_protected"}},
		"good protected globs":                {&Contract{Checks: []Check{good}, Protected: []string{"tests", "**/*_test.go", "./fixtures/", "a..b"}}, nil},
		"everything at once, in order": {&Contract{Checks: []Check{
			unless0(check("", " ")), check("a", "go version"), unless0(check("a", "true")),
		}}, []string{"empty_name", "empty_command", "asserts_nothing", "toolchain_only", "duplicate_name", "asserts_nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			var codes []string
			for _, p := range c.contract.Validate() {
				codes = append(codes, p.Code)
				if p.Message == "" || !strings.Contains(p.String(), p.Message) {
					t.Errorf("problem %+v reads %q", p, p)
				}
			}
			if d := cmp.Diff(c.codes, codes); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

func numbered(n int) []Check {
	var checks []Check
	for i := range n {
		checks = append(checks, check("c"+strings.Repeat("i", i%7)+string(rune('a'+i%26))+string(rune('a'+i/26)), "test -f a"))
	}
	return checks
}

func TestToolchainOnly(t *testing.T) {
	tools := strings.Fields("cargo rustc rustup node npm npx yarn pnpm python python3 pip pip3 go java javac ruby gem dotnet deno bun tsc gcc clang make cmake")
	flags := strings.Fields("--version -V -v --help -h version")
	for _, tool := range tools {
		for _, flag := range flags {
			for _, command := range []string{tool + " " + flag, "  " + tool + "\t " + flag + "\n"} {
				if !toolchainOnly(command) {
					t.Errorf("%q is not flagged", command)
				}
			}
		}
	}
	for _, command := range []string{
		"cargo run -- --version",
		"cargo --version && cargo build",
		"cargo --version; cargo build",
		"cargo --version;ls",
		"cargo --version|grep 1",
		"cargo --version >out",
		"cargo --version>out",
		"cargo --version &",
		"cargo --version&",
		"cargo\n--version",
		"cargo --version\ncargo build",
		"(cargo --version)",
		"! cargo --version",
		"$(cargo --version)",
		"cargo `--version`",
		"cargo $FLAG",
		"cargo build",
		"cargo test",
		"cargo help",
		"cargo",
		"make",
		"make check",
		"make test",
		"npm test",
		"go vet",
		"go build",
		"go version -m ./bin",
		"go env",
		"python --versions",
		"python3 version.py",
		"python -c print(1)",
		"node -e 1",
		"./make --version",
		"./app --version",
		"target/debug/cargo --version",
		"git --version",
		"ls --help",
		"mytool version",
		"Cargo --version",
		"cargo --VERSION",
		"--version cargo",
		"echo cargo --version",
		"env cargo --version",
		"gcc -v hello.c",
		"cargo --version --verbose",
		"java -version",
		"tsc --noEmit",
		"",
	} {
		if toolchainOnly(command) {
			t.Errorf("%q is flagged, but it is a real check", command)
		}
	}
	c := &Contract{Checks: []Check{expecting(check("a", "node --version"), "v20")}}
	if p := c.Validate(); len(p) != 1 || p[0].Code != "toolchain_only" {
		t.Errorf("asking for a text does not make it a check of the task: %v", p)
	}
}

func TestCheckOutputPathsAreSafeAndDistinct(t *testing.T) {
	names := []string{"a", "A", "a b", "a/b", "a%2Fb", "../../etc/passwd", "..", ".", ".hidden", "a..b", "\\x", "é", "a:b", "%", "%25", "CON", strings.Repeat("/", MaxNameBytes)}
	seen := make(map[string]string)
	for _, name := range names {
		path := schema.CheckOutputPath(name)
		if other, twice := seen[path]; twice {
			t.Errorf("%q and %q share %s", name, other, path)
		}
		seen[path] = name
		parts := strings.Split(path, "/")
		if len(parts) != 3 || parts[0] != "checks" || parts[2] != "output" || strings.HasPrefix(parts[1], ".") || len(parts[1]) > 255 || filepath.Clean(path) != path {
			t.Errorf("%q gives the path %q", name, path)
		}
	}
	if got := schema.CheckOutputPath("a_B-9.x/é"); got != "checks/a_B-9.x%2F%C3%A9/output" {
		t.Errorf("path %q", got)
	}
}

func TestRender(t *testing.T) {
	c := &Contract{
		Description: "Mend the parser.\x1b[2J",
		Checks: []Check{
			check("tests_pass", "cd parser\ngo test ./..."),
			unless0(expecting(check("usage", "./parser -h"), "usage:\n")),
		},
		Protected: []string{"**/*_test.go"},
	}
	var b bytes.Buffer
	if err := Render(&b, c); err != nil {
		t.Fatal(err)
	}
	const want = `Mend the parser.\u001b[2J

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
	c := &Contract{Description: "a: b\n#c", Protected: []string{"**/*_test.go", "!x", "- a"}, Checks: []Check{
		check("tests", "set -e\ncd a\n\tgo test ./... # all\n"), expecting(check("yes", "printf 'null'"), "null"), unless0(expecting(check("1", "0x10"), "~")),
	}}
	for _, format := range []Format{JSON, YAML} {
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
		"a: &a [*a]", "{", "- - - -", "? x\n: y", "checks: [{name: a, name: b}]", "a: !!str b\n---\n...\n", "\xff", "\x00",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, isYAML bool) {
		format := JSON
		if isYAML {
			format = YAML
		}
		begin := time.Now()
		c, err := Parse(data, format)
		if took := time.Since(begin); took > 3*time.Second {
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
		for _, format := range []Format{JSON, YAML} {
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
