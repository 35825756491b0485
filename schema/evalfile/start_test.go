package evalfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/evalfile"
)

// TestStart asks what globs lead to, through links, and which can match nothing.
func TestStart(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(dir+"/app/tests", 0o755), os.MkdirAll(dir+"/bin", 0o755),
		os.WriteFile(dir+"/bin/a", nil, 0o755), os.Symlink("a", dir+"/bin/b"), os.Symlink("app", dir+"/link"),
		os.Symlink(dir+"/nowhere", dir+"/dangling")); err != nil {
		t.Fatal(err)
	}
	got := evalfile.Start(&schema.EvaluationDefinition{
		Hidden:       []string{"tests", "tests/hidden_*", "none", "none/**", dir + "/dangling"},
		Protected:    []string{"new", "none/new"},
		Reward:       []string{dir + "/link/reward", dir + "/none/reward"},
		Others:       []string{dir + "/none/other"},
		Deliverables: []string{dir + "/link/*.md"},
	}, dir+"/app", dir+"/bin:relative:"+dir+"/bin:"+dir+"/none", []string{dir + "/link/p", dir + "/none/p"})
	want := &schema.EvaluationStart{
		Protected: []string{dir + "/link/p", dir + "/none/p"},
		Links: map[string]string{dir + "/link/p": dir + "/app/p",
			dir + "/link/reward": dir + "/app/reward", dir + "/link/*.md": dir + "/app/*.md"},
		Absent: []string{dir + "/app/none", dir + "/app/none/**", dir + "/dangling", dir + "/app/none/new",
			dir + "/none/p", dir + "/none/reward"},
		Programs: map[string][]string{dir + "/bin": {"a", "b"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
