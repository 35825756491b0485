//go:build linux

package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-run/assay-run/schema"
)

// TestAFolderAsksForAClosedBook has a task whose metadata.assay asks for a closed book, which a container cannot be.
func TestAFolderAsksForAClosedBook(t *testing.T) {
	for _, c := range []struct {
		says, refused string
		want          schema.BookWish
	}{
		{"\"try\"", "", schema.BookTried}, {"false", "", schema.BookNot},
		{"{close = \"try\", allow = [\"mirror.example.net\"]}", "", schema.BookTried},
		{"true", "the book cannot be closed; write try to record what is open", ""},
		{"\"perhaps\"", "metadata.assay: ", ""},
	} {
		t.Run(c.says, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{
				"task.toml":              "version = \"1.0\"\n[metadata.assay]\nclosed_book = " + c.says + "\n",
				"instruction.md":         "do it\n",
				"environment/Dockerfile": "FROM scratch\n",
				"tests/test.sh":          "exit 0\n",
			} {
				at := filepath.Join(dir, "task", name)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			f, err := FromFolders(Folders{Dir: dir, Agents: []Agent{{Name: Nop, Command: "true"}}})
			switch {
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("it is refused with %v, want %q", err, c.refused)
			case c.refused == "" && (err != nil || f.Tasks[0].ClosedBook.Close != c.want):
				t.Errorf("it is %+v, %v", f, err)
			}
		})
	}
}
