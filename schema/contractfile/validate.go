package contractfile

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
)

// Limits of a contract. The limits on names keep the directory of a check's output within 255 bytes; see
// schema.CheckOutputPath.
const (
	maxChecks         = 256
	maxNameBytes      = 80
	maxCommandBytes   = 64 << 10
	maxContainsBytes  = 16 << 10
	maxTimeoutSecs    = 24 * 60 * 60
	maxProtectedGlobs = 64
)

// Placeholder is the name in the example that a model gets.
const Placeholder = "unique_snake_case_label"

// Problem is a reason why a contract cannot be used.
type Problem struct {
	// Check is the check's index, or -1 for the contract as a whole.
	Check int
	// Name is the check's name; it may be empty.
	Name string
	// Code is stable: no_checks, too_many_checks, empty_name, bad_name, placeholder_name, duplicate_name,
	// empty_command, bad_command, toolchain_only, asserts_nothing, bad_output_contains, bad_timeout, bad_protected,
	// bad_tests or, for a model's contract, no_description.
	Code string
	// Message says what was found and what to do.
	Message string
}

func (p Problem) String() string {
	switch {
	case p.Check < 0:
		return p.Message
	case p.Name == "":
		return fmt.Sprintf("check %d: %s", p.Check+1, p.Message)
	}
	return fmt.Sprintf("check %d (%s): %s", p.Check+1, schema.Lines(p.Name), p.Message)
}

// InvalidError lists the problems of a contract.
type InvalidError struct{ Problems []Problem }

func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return "invalid contract: " + strings.Join(lines, "; ")
}

// validation collects problems. check and label identify the current check.
type validation struct {
	problems []Problem
	check    int
	label    string
	first    map[string]int
}

func (v *validation) add(code, format string, args ...any) {
	v.problems = append(
		v.problems, Problem{Check: v.check, Name: v.label, Code: code, Message: fmt.Sprintf(format, args...)},
	)
}

func (v *validation) name() {
	switch name := v.label; {
	case name == "":
		v.add("empty_name", "empty name; give the check a short label such as tests_pass")
		return
	case len(name) > maxNameBytes:
		v.add("bad_name", "the name has %d bytes; at most %d are allowed", len(name), maxNameBytes)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		v.add("bad_name", "the name %+q has control characters; use letters, digits and _", name)
	case name == Placeholder:
		v.add("placeholder_name", "the name is the placeholder name %s; name what the check proves", Placeholder)
	}
	if first, ok := v.first[v.label]; ok {
		v.add("duplicate_name", "duplicate of the name of check %d; give each its own", first+1)
		return
	}
	v.first[v.label] = v.check
}

func (v *validation) command(command string) {
	switch {
	case strings.TrimSpace(command) == "":
		v.add("empty_command", "empty command; write the shell command that must pass")
	case len(command) > maxCommandBytes:
		v.add(
			"bad_command", "the command has %d bytes; at most %d are allowed: move it into a script", len(command),
			maxCommandBytes,
		)
	case strings.ContainsRune(command, 0):
		v.add("bad_command", "the command contains a NUL character, which no command line can")
	case !utf8.ValidString(command):
		v.add("bad_command", "the command is not valid UTF-8")
	case toolchainOnly(command):
		v.add(
			"toolchain_only",
			"%q is a toolchain-only no-op: it proves that a tool is installed, not that the task is done; run the "+
				"tool on the result",
			strings.TrimSpace(command),
		)
	}
}

func (v *validation) expectations(c schema.Check) {
	if !c.ExpectExitZero && (c.OutputContains == nil || *c.OutputContains == "") {
		v.add(
			"asserts_nothing", "asserts nothing: expect_exit_zero is false and there is no "+
				"output_contains; set one of them",
		)
	}
	if c.OutputContains != nil {
		switch text := *c.OutputContains; {
		case len(text) > maxContainsBytes:
			v.add("bad_output_contains", "output_contains has %d bytes; at most %d are allowed", len(text),
				maxContainsBytes)
		case !utf8.ValidString(text):
			v.add("bad_output_contains", "output_contains is not valid UTF-8")
		}
	}
	if c.TimeoutSecs < 1 || c.TimeoutSecs > maxTimeoutSecs {
		v.add("bad_timeout", "timeout_secs is %d; allowed are 1 to %d", c.TimeoutSecs, maxTimeoutSecs)
	}
}

func (v *validation) protected(globs []string) {
	if len(globs) > maxProtectedGlobs {
		v.add("bad_protected", "%d protected globs; at most %d are allowed", len(globs), maxProtectedGlobs)
	}
	for _, g := range globs {
		switch {
		case g == "" || strings.ContainsFunc(g, unicode.IsControl) || !utf8.ValidString(g) ||
			config.CheckGlob(g) != nil:
			v.add("bad_protected", "protected: %+q is not a glob", g)
		case slices.Contains(strings.Split(g, "/"), ".."):
			v.add("bad_protected", "protected: %q leaves the working directory; write an absolute path", g)
		}
	}
}

func (v *validation) tests(dir string) {
	if dir == "." || dir == "/" || strings.HasPrefix(dir, "..") || strings.ContainsFunc(dir, unicode.IsControl) ||
		!utf8.ValidString(dir) {
		v.add("bad_tests", "tests: %+q is neither a directory in the working directory nor an absolute path", dir)
	}
}

// toolchainOnly reports whether command only asks a build tool for its version or help: exactly two words, so without
// shell syntax.
func toolchainOnly(command string) bool {
	command = strings.TrimSpace(command)
	if strings.ContainsAny(command, "\r\n") {
		return false // the shell sees more than one command
	}
	words := strings.Fields(command)
	if len(words) != 2 {
		return false
	}
	switch words[0] {
	case "cargo", "rustc", "rustup", "node", "npm", "npx", "yarn", "pnpm", "python", "python3", "pip", "pip3",
		"go", "java", "javac", "ruby", "gem", "dotnet", "deno", "bun", "tsc", "gcc", "clang", "make", "cmake":
	default:
		return false
	}
	switch words[1] {
	case "--version", "-V", "-v", "--help", "-h", "version":
		return true
	}
	return false
}
