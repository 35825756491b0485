package facts

import (
	"io/fs"
	"maps"
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

// stillRead are the files that decide for themselves until they read facts, with how often they look.
var stillRead = map[string]int{
	"archive/evaluation/files.go":   1, // words for what was done
	"archive/evaluation/grader.go":  3, // follows what was prepared for the grader
	"archive/evaluation/history.go": 1, // names of variables that were cut
	"archive/evaluation/judge.go":   2, // follows former names; a program in memory
	"archive/query/activate.go":     1, // which kinds change files
	"runner/binding/correlator.go":  1, // arguments that were cut
	"runner/observation_linux.go":   4, // workspace programs
	"runner/workspace_linux.go":     2, // which program changed a file
	"schema/surface/class.go":       7, // noise of a program's start
	"schema/surface/surface.go":     8, // what made a name by chance
}

// TestOnlyFactsSaysWhatIsSure holds the number of readers that decide for themselves whether a line is sure and where
// a file went. It may only fall.
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
	if !maps.Equal(found, stillRead) {
		t.Errorf("these files decide for themselves whether a line is sure: %v; they were %v", found, stillRead)
	}
}
