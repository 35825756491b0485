package contract

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/contractfile"
)

// Limits on what a prompt quotes.
const (
	maxEntries     = 100     // of the repository's top level
	maxListed      = 10_000  // entries read before the list is cut
	maxQuotedReply = 8 << 10 // of the answer to fix
)

const shape = `{
  "description": "one sentence: what is true when the task is done",
  "checks": [
    {
      "name": "` + contractfile.Placeholder + `",
      "command": "shell command, run with sh -c in the repository's top folder",
      "expect_exit_zero": true,
      "output_contains": null,
      "timeout_secs": 120
    }
  ]
}`

const rules = `- Write one to five checks.
- Prefer the test commands that the repository already has (in its Makefile, package.json, CI and the like).
- A check must verify THE TASK ITSELF, not the toolchain: a command such as "rustc --version" proves nothing.
- Use the real names of this repository and give each check a name of its own,
	never the literal contractfile.Placeholder ` +
	contractfile.Placeholder + `.
- Commands run non-interactively, and must be deterministic: same files, same verdict.
- No network access and no destructive commands. Never push, publish or deploy anything, and never use sudo.
- Each check must assert something: expect_exit_zero true, or a text in output_contains, or both.
- Set output_contains only to a text that you are CERTAIN will appear; otherwise null.
- Together the checks must fail now and pass once the task is done.
- Answer with the config.JSON object alone: no prose and no markdown fences.
`

func taskPrompt(intent, repo, summary string) (string, error) {
	var b strings.Builder
	b.WriteString("Write an outcome contract: shell commands that prove that the following task is done.\n\n")
	fmt.Fprintf(&b, "## Task\n\n%s\n\n", strings.TrimSpace(intent))
	if repo != "" && summary == "" {
		var err error
		if summary, err = repoSummary(repo); err != nil {
			return "", fmt.Errorf("summarise the repository: %w", err)
		}
	}
	if summary != "" {
		fmt.Fprintf(&b, "## Repository\n\n%s\n", summary)
	}
	fmt.Fprintf(&b, "## Shape of the answer\n\n%s\n\n## Rules\n\n%s", shape, rules)
	return b.String(), nil
}

// fixPrompt is added to a prompt after an answer without a valid contract.
func fixPrompt(answer string, err error) string {
	var b strings.Builder
	b.WriteString("\n## Your last answer FAILED validation. Fix these issues\n\n")
	var invalid *contractfile.InvalidError
	if errors.As(err, &invalid) {
		for _, p := range invalid.Problems {
			fmt.Fprintf(&b, "- %s\n", p)
		}
	} else {
		fmt.Fprintf(&b, "- %v\n", err)
	}
	quoted, cut := strings.ToValidUTF8(answer, "\uFFFD"), ""
	if len(quoted) > maxQuotedReply {
		quoted, cut = strings.ToValidUTF8(quoted[:maxQuotedReply], ""), "[cut here]\n"
	}
	fmt.Fprintf(&b, "\n## Your last answer\n\n%s\n%s", strings.TrimSpace(quoted), cut)
	return b.String()
}

// buildSystem returns the build system that uses a top-level file.
func buildSystem(name string) string {
	switch name {
	case "go.mod", "go.work":
		return "Go"
	case "Cargo.toml":
		return "Cargo (Rust)"
	case "package.json":
		return "npm (Node.js)"
	case "pnpm-lock.yaml":
		return "pnpm"
	case "yarn.lock":
		return "Yarn"
	case "bun.lockb", "bun.lock":
		return "Bun"
	case "deno.json", "deno.jsonc":
		return "Deno"
	case "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "tox.ini":
		return "Python"
	case "Makefile", "makefile", "GNUmakefile":
		return "Make"
	case "CMakeLists.txt":
		return "CMake"
	case "meson.build":
		return "Meson"
	case "configure.ac", "configure":
		return "Autotools"
	case "pom.xml":
		return "Maven"
	case "build.gradle", "build.gradle.kts":
		return "Gradle"
	case "Gemfile", "Rakefile":
		return "Ruby"
	case "composer.json":
		return "Composer (PHP)"
	case "mix.exs":
		return "Mix (Elixir)"
	case "Package.swift":
		return "Swift"
	case "MODULE.bazel", "WORKSPACE", "WORKSPACE.bazel":
		return "Bazel"
	case "justfile":
		return "just"
	}
	for _, suffix := range []string{".sln", ".csproj", ".fsproj"} {
		if strings.HasSuffix(name, suffix) {
			return ".NET"
		}
	}
	return ""
}

// repoSummary lists the names at the top level of dir, and the build systems that they indicate.
func repoSummary(dir string) (string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return "", err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxListed)
	if err != nil && err != io.EOF {
		return "", err
	}
	var names, systems []string
	for _, e := range entries {
		if s := buildSystem(e.Name()); s != "" && !e.IsDir() && !slices.Contains(systems, s) {
			systems = append(systems, s)
		}
		if e.Name() == ".git" {
			continue
		}
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		if schema.Lines(name) != name || strings.ContainsAny(name, "\n\t") {
			name = fmt.Sprintf("%+q", name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Sort(systems)
	var b strings.Builder
	b.WriteString("Top-level entries:\n")
	for _, n := range names[:min(len(names), maxEntries)] {
		fmt.Fprintf(&b, "- %s\n", n)
	}
	switch {
	case len(names) == 0:
		b.WriteString("(none)\n")
	case len(names) > maxEntries:
		fmt.Fprintf(&b, "(and at least %d more)\n", len(names)-maxEntries)
	}
	if len(systems) == 0 {
		systems = []string{"none found"}
	}
	fmt.Fprintf(&b, "Build systems: %s\n", strings.Join(systems, ", "))
	return b.String(), nil
}
