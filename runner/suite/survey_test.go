//go:build linux

package suite

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWhatNamesThePlaceOfAWorkspace looks for the workspace's path in files that contain it, and in others.
func TestWhatNamesThePlaceOfAWorkspace(t *testing.T) {
	root := filepath.Join(t.TempDir(), "ws")
	long := strings.Repeat("x", 32<<10-len(root)/2) // so that the path is in two reads
	for name, text := range map[string]string{
		"yes-line":           root + "\n",
		"yes-end":            "a=" + root,
		"yes-below":          `"` + root + `/bin"`,
		"yes-long":           long + " " + root + "\n" + long,
		"no-longer":          root + "2/bin",
		"no-other":           "/home" + root,
		"no-binary":          "\x00" + root + "\n",
		"__pycache__/no.txt": root,
		".git/objects/no":    root,
		".git/hooks/yes":     "#!" + root + "/bin/python\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"yes-link": root + "/nowhere", "yes-up": "../other", "no-dangling": "../nowhere", "no-down": "yes-line",
		"shared": "/bin/sh",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(root), "other"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := surveyed(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{".git/hooks/yes", "yes-below", "yes-end", "yes-line", "yes-link", "yes-long", "yes-up"}
	if !slices.Equal(s.naming, want) || s.place != root || !slices.Equal(s.shared, []string{"shared"}) {
		t.Errorf("%q name the place %q, want %q; shared are %q", s.naming, s.place, want, s.shared)
	}
	if digest, err := digestTree(root); err != nil || digest != s.digest {
		t.Errorf("its digest is %s, and that of the tree %s, %v", s.digest, digest, err)
	}
}
