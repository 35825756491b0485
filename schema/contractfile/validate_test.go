package contractfile

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
)

func TestEveryProblemIsFound(t *testing.T) {
	good := check("tests_pass", "go test ./...")
	with := func(change func(*schema.Check)) *Contract {
		c := good
		change(&c)
		return &Contract{Checks: []schema.Check{c}}
	}
	empty := ""
	long := strings.Repeat("x", maxContainsBytes+1)
	for name, c := range map[string]struct {
		contract *Contract
		codes    []string
	}{
		"a good check": {with(func(c *schema.Check) {}), nil},
		"no checks":    {&Contract{Description: "x"}, []string{"no_checks"}},
		"too many checks": {&Contract{Checks: numbered(maxChecks + 1)},
			[]string{"too_many_checks"}},
		"as many checks as are allowed": {&Contract{Checks: numbered(maxChecks)}, nil},
		"an empty name":                 {with(func(c *schema.Check) { c.Name = "" }), []string{"empty_name"}},
		"a blank name":                  {with(func(c *schema.Check) { c.Name = " \t" }), []string{"empty_name"}},
		"a long name": {with(func(c *schema.Check) {
			c.Name = strings.Repeat("n", 81)
		}), []string{"bad_name"}},
		"a newline in a name":     {with(func(c *schema.Check) { c.Name = "a\nb" }), []string{"bad_name"}},
		"a NUL in a name":         {with(func(c *schema.Check) { c.Name = "a\x00b" }), []string{"bad_name"}},
		"a name that is a path":   {with(func(c *schema.Check) { c.Name = "../../etc/passwd" }), nil},
		"a name of several words": {with(func(c *schema.Check) { c.Name = "the tests pass" }), nil},
		"the placeholder": {with(func(c *schema.Check) {
			c.Name = " unique_snake_case_label "
		}), []string{"placeholder_name"}},
		"a name like the placeholder": {with(func(c *schema.Check) { c.Name = "unique_snake_case_label_2" }), nil},
		"an empty command":            {with(func(c *schema.Check) { c.Command = "" }), []string{"empty_command"}},
		"a blank command": {with(func(c *schema.Check) {
			c.Command = " \n\t"
		}), []string{"empty_command"}},
		"a NUL in a command":         {with(func(c *schema.Check) { c.Command = "a\x00b" }), []string{"bad_command"}},
		"a command of invalid UTF-8": {with(func(c *schema.Check) { c.Command = "a\xff" }), []string{"bad_command"}},
		"a command that is too long": {with(func(c *schema.Check) {
			c.Command = strings.Repeat("x", maxCommandBytes+1)
		}), []string{"bad_command"}},
		"nothing is asserted": {with(func(c *schema.Check) {
			c.ExpectExitZero = false
		}), []string{"asserts_nothing"}},
		"only that the output contains \"\"": {with(func(c *schema.Check) {
			c.ExpectExitZero = false
			c.OutputContains = &empty
		}), []string{"asserts_nothing"}},
		"a text that is too long": {with(func(c *schema.Check) {
			c.OutputContains = &long
		}), []string{"bad_output_contains"}},
		"no time at all": {with(func(c *schema.Check) { c.TimeoutSecs = 0 }), []string{"bad_timeout"}},
		"negative time":  {with(func(c *schema.Check) { c.TimeoutSecs = -1 }), []string{"bad_timeout"}},
		"more than a day": {with(func(c *schema.Check) {
			c.TimeoutSecs = maxTimeoutSecs + 1
		}), []string{"bad_timeout"}},
		"a name twice": {&Contract{Checks: []schema.Check{good, good}}, []string{"duplicate_name"}},
		"a name twice but for spaces": {&Contract{Checks: []schema.Check{good, check(" tests_pass\t", "make check")}},
			[]string{"duplicate_name"}},
		"names that differ in case": {&Contract{Checks: []schema.Check{good, check("Tests_pass", "make check")}},
			nil},
		"two empty names are not a duplicate": {&Contract{Checks: []schema.Check{check("", "a b"), check("", "c d")}},
			[]string{"empty_name", "empty_name"}},
		"a protected path outside": {&Contract{Checks: []schema.Check{good},
			Protected: []string{"../x", "/etc/passwd", "a/../../b"}},
			[]string{"bad_protected", "bad_protected"}},
		"a protected glob that is none": {&Contract{Checks: []schema.Check{good}, Protected: []string{"", "a[",
			"a\x00"}},
			[]string{"bad_protected", "bad_protected", "bad_protected"}},
		"good protected globs": {&Contract{Checks: []schema.Check{good},
			Protected: []string{"tests", "**/*_test.go", "./fixtures/", "a..b"}}, nil},
		"everything at once, in order": {&Contract{Checks: []schema.Check{
			unless0(check("", " ")), check("a", "go version"), unless0(check("a", "true")),
		}}, []string{"empty_name", "empty_command", "asserts_nothing", "toolchain_only", "duplicate_name",
			"asserts_nothing"}},
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

func numbered(n int) []schema.Check {
	var checks []schema.Check
	for i := range n {
		checks = append(checks, check("c"+strings.Repeat("i", i%7)+string(rune('a'+i%26))+string(rune('a'+i/26)),
			"test -f a"))
	}
	return checks
}

func TestToolchainOnly(t *testing.T) {
	tools := strings.Fields("cargo rustc rustup node npm npx yarn pnpm python python3 pip pip3 go java javac ruby " +
		"gem dotnet deno bun tsc gcc clang make cmake")
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
	c := &Contract{Checks: []schema.Check{expecting(check("a", "node --version"), "v20")}}
	if p := c.Validate(); len(p) != 1 || p[0].Code != "toolchain_only" {
		t.Errorf("asking for a text does not make it a check of the task: %v", p)
	}
}

func TestCheckOutputPathsAreSafeAndDistinct(t *testing.T) {
	names := []string{"a", "A", "a b", "a/b", "a%2Fb", "../../etc/passwd", "..", ".", ".hidden", "a..b", "\\x", "é",
		"a:b", "%", "%25", "CON", strings.Repeat("/", maxNameBytes)}
	seen := make(map[string]string)
	for _, name := range names {
		path := schema.CheckOutputPath(name)
		if other, twice := seen[path]; twice {
			t.Errorf("%q and %q share %s", name, other, path)
		}
		seen[path] = name
		parts := strings.Split(path, "/")
		if len(parts) != 3 || parts[0] != "checks" || parts[2] != "output" || strings.HasPrefix(parts[1], ".") ||
			len(parts[1]) > 255 || filepath.Clean(path) != path {
			t.Errorf("%q gives the path %q", name, path)
		}
	}
	if got := schema.CheckOutputPath("a_B-9.x/é"); got != "checks/a_B-9.x%2F%C3%A9/output" {
		t.Errorf("path %q", got)
	}
}
