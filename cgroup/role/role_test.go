package role

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryRoleIsListed looks for arguments of helpers in the whole module: each is in this package alone.
func TestEveryRoleIsListed(t *testing.T) {
	words := regexp.MustCompile(`"(__[a-z-]+)"`)
	var found []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "../..":
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range words.FindAllStringSubmatch(string(source), -1) {
			if filepath.Base(path) != "role.go" {
				t.Errorf("%s: %s belongs into package role", path, m[1])
			}
			found = append(found, m[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, r := range All() {
		listed = append(listed, string(r))
	}
	slices.Sort(found)
	slices.Sort(listed)
	if !slices.Equal(found, listed) {
		t.Errorf("the roles are %v, listed are %v", found, listed)
	}
}

func TestArgs(t *testing.T) {
	argv := Guard.Args("id")
	if !slices.Equal(argv, []string{"assay-run", "__guard", "id"}) {
		t.Errorf("arguments %q", argv)
	}
	if !Guard.Is(argv) || Job.Is(argv) || Guard.Is(argv[:1]) || Guard.Is([]string{"other", "__guard"}) {
		t.Error("a guard is not recognised, or something else is")
	}
	if Guard.Available() {
		t.Error("a role that nobody plays is available")
	}
}
