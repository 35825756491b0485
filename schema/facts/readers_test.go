package facts

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ofTrust matches what only this package, the codec, the writers and the raw view read of an event.
var ofTrust = regexp.MustCompile(`\b(e|k|ev|Event|Kernel)\.(Claimed|DirectoryClaimed|UserMemory|Marks|Truncated|` +
	`Attempted)\b|schema\.KindRename\b`)

// mayRead are the files that may, with the reason.
var mayRead = map[string]string{
	"schema/kernelevent.go":  "the codec",
	"archive/v0.go":          "writes the closed form",
	"archive/view/write.go":  "shows a line as it is",
	"archive/render/item.go": "shows a line as it is",
}

// exceptions are the files that look at such a member for another reason than to believe a line, with how often.
var exceptions = map[string]struct {
	times  int
	reason string
}{
	"runner/observation_linux.go": {4, "what assay-run's own programs do is known by the exact line; the files that " +
		"checks share are by the names that a check's report has"},
	"runner/workspace_linux.go": {2, "names of changed files as a comparison of the workspace has them"},
	"schema/surface/class.go":   {7, "a line counts as a loader's only if it has no mark at all"},
	"schema/surface/surface.go": {8, "finds names that chance made, by the calls that make them"},
}

// maxExceptions limits the exceptions.
const maxExceptions = 5

// TestOnlyFactsSaysWhatIsSure looks for readers that decide for themselves whether a line is sure and where a file
// went.
func TestOnlyFactsSaysWhatIsSure(t *testing.T) {
	found := map[string]int{}
	for _, top := range []string{"schema", "archive", "runner", "cmd"} {
		err := filepath.WalkDir(filepath.Join("..", "..", top), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			name = strings.TrimPrefix(filepath.ToSlash(name), "../../")
			n := len(ofTrust.FindAll(text, -1))
			if n > 0 && mayRead[name] == "" && !strings.HasPrefix(name, "schema/facts/") &&
				!strings.HasPrefix(name, "archive/verify") {
				found[name] = n
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, e := range exceptions {
		if found[name] > e.times || e.reason == "" {
			t.Errorf("%s decides %d times whether a line is sure, %d are known", name, found[name], e.times)
		}
		delete(found, name)
	}
	if len(found) > 0 || len(exceptions) > maxExceptions {
		t.Errorf("these files decide for themselves whether a line is sure: %v", found)
	}
}
