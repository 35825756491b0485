package main

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport are the folders of this module that one imports besides itself.
var mayImport = map[string][]string{
	"schema":  nil,
	"bpf":     nil,
	"cgroup":  nil,
	"kernel":  {"bpf", "schema"},
	"archive": {"schema"},
	"runner":  {"cgroup", "kernel", "schema"},
	"cmd":     {"archive", "cgroup", "kernel", "runner", "schema"},
}

// TestImportsPointOneWayAndPackagesAreDocumented looks at the whole module, in
// which each package has one package comment.
func TestImportsPointOneWayAndPackagesAreDocumented(t *testing.T) {
	const module = "github.com/assay-run/assay-run/"
	comments := map[string]int{}
	for folder, may := range mayImport {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
			if err != nil {
				return err
			}
			found := 0
			if f.Doc != nil {
				found = 1
			}
			comments[filepath.Dir(path)] += found
			for _, i := range f.Imports {
				name, err := strconv.Unquote(i.Path.Value)
				if ours, ok := strings.CutPrefix(name, module); ok {
					if top, _, _ := strings.Cut(ours, "/"); top != folder && !slices.Contains(may, top) {
						t.Errorf("%s imports %s; %s may import %q", path, name, folder, may)
					}
				} else if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the tests are also run without the folders that need root
			t.Error(err)
		}
	}
	for dir, n := range comments {
		if n != 1 {
			t.Errorf("%s has %d package comments", dir, n)
		}
	}
	if len(comments) < 10 {
		t.Errorf("%d packages were found", len(comments))
	}
}
