//go:build linux && (amd64 || arm64)

package kernel

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/.ci/layertest"
)

// TestAddingAKind follows the list of CONTRIBUTING.md: a kind that is added in those files,
// and nowhere else, is observed, written, read and told.
func TestAddingAKind(t *testing.T) {
	layertest.Host(t)
	newCgroup(t) // skips where nothing can be observed
	if os.Getenv("KERNEL_TEST_INNER") != "" {
		t.Skip("compiles the module")
	}
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("no go: %v", err)
	}
	// The edits, by file: what is written before a text that is there.
	edits := map[string][][2]string{
		"schema/kernelevent.go": {
			{"\tKindFork       KernelKind = 100", "\tKindExample KernelKind = 239 // example: nothing\n"},
			{"\tcase KindFork, KindExit,", "\tcase KindExample:\n\t\treturn untouched, untouched\n"},
		},
		"kernel/syscalls.go": {{"\t{\"setuid\",",
			"\t{\"sched_yield\", progArgs, schema.KindExample, HookPrivilege, \"\", \"24 158 124\"},\n"}},
		"kernel/event.go":    {{"\tschema.KindExec, schema.KindExecFailed,", "\tschema.KindExample,\n"}},
		"kernel/coverage.go": {{"\"changes of user and group\"", "\"examples\", "}},
		"archive/render/item.go": {{"\tcase schema.KindLeave:",
			"\tcase schema.KindExample:\n\t\treturn \"gave\", \"an example\"\n"}},
		"kernel/variants_test.go": {{"\t{\"setid setuid",
			"\t{\"example sched_yield - -\", func() { raw(\"sched_yield\") }},\n"}},
	}
	guide, err := os.ReadFile("../CONTRIBUTING.md")
	if err != nil {
		t.Skip("the sources are not here")
	}
	_, list, _ := strings.Cut(string(guide), "**A kind of kernel event.**")
	list, _, _ = strings.Cut(list, "\n\nA kind that no system call")
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^\d\. `+"`([^`]+)`").FindAllStringSubmatch(list, -1) {
		listed = append(listed, m[1])
	}
	if want := slices.Sorted(maps.Keys(edits)); !slices.Equal(slices.Sorted(slices.Values(listed)), want) ||
		len(want) > 6 {
		t.Fatalf("the guide lists %q, this test changes %q", listed, want)
	}

	root := must(filepath.Abs(".."))
	dir := t.TempDir()
	replace := map[string]string{}
	copied := func(path string, edit [][2]string) {
		b, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for _, e := range edit {
			if strings.Count(text, e[0]) != 1 {
				t.Fatalf("%s has %q %d times, want once", path, e[0], strings.Count(text, e[0]))
			}
			text = strings.Replace(text, e[0], e[1]+e[0], 1)
		}
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, path)] = to
	}
	for path, edit := range edits {
		copied(path, edit)
	}
	for _, path := range []string{"schema/kernelevent_kindnames.go", "schema/json/kernel_event.v1.schema.json",
		"bpf/kinds.h"} {
		copied(path, nil)
	}
	run := func(in string, args ...string) {
		t.Helper()
		c := exec.Command(goTool, args...)
		c.Dir, c.Env = in, append(os.Environ(), "TMPDIR="+dir)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	kinds := filepath.Join(dir, "kinds")
	run(root, "build", "-o", kinds, "./schema/internal/kinds")
	generate := exec.Command(kinds)
	generate.Dir = filepath.Join(dir, "schema")
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, must(json.Marshal(map[string]any{"Replace": replace})), 0o600); err != nil {
		t.Fatal(err)
	}
	run(root, "build", "-overlay", overlay, "./...")
	run(root, "test", "-overlay", overlay, "./schema", "-run", "Kind|Touch|Line")
	run(root, "test", "-overlay", overlay, "./kernel", "-run", "^TestVariants$")
}
