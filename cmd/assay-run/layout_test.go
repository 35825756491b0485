package main

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayImport are the folders, or packages, of this module that a folder imports besides itself.
var mayImport = map[string][]string{
	"schema":  nil,
	"bpf":     nil,
	"cgroup":  nil,
	"kernel":  {"bpf", "schema", "cgroup/steps", "cgroup/role"},
	"archive": {"schema"},
	"runner":  {"cgroup", "kernel", "schema"},
	"cmd":     {"archive", "cgroup", "kernel", "runner", "schema"},
}

// standardJSON are the files that import encoding/json. All others import github.com/go-json-experiment/json, or its
// package v1 where names match in any case, or where what is written keeps the form that encoding/json gives it.
var standardJSON = []string{filepath.Join("..", "..", "runner", "engine", "relay_linux.go")}

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
				if name == "encoding/json" && !slices.Contains(standardJSON, path) {
					t.Errorf("%s imports encoding/json; see standardJSON", path)
				}
				if ours, ok := strings.CutPrefix(name, module); ok {
					if strings.HasSuffix(ours, "/reexec") && f.Name.Name != "main" {
						t.Errorf("%s imports %s, after which its users may never come to main; only a main package may",
							path, name)
					}
					if top, _, _ := strings.Cut(ours, "/"); top != folder && !slices.Contains(may, top) &&
						!slices.Contains(may, ours) {
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

// plain are the packages that have no part in how a run is contained and observed: nothing that they import, or that
// those import, is one of the kernel, its programs and cgroups.
var plain = []string{"runner/contract", "runner/policy", "runner/repository", "cmd/assay-suite"}

// beside are the packages of runner that assay-suite links beside its own, runner/suite and those below it, each for a
// reason. No other part of a run may be among them: a suite starts assay-run, and needs its files as data alone.
var beside = map[string]string{
	"runner/harbor":             "tasks in folders have Harbor's format",
	"runner/internal/listening": "which servers of a container are kept for the judge",
	"runner/repository":         "a workspace for many attempts holds repositories made anew",
	"runner/sandbox/startup":    "which files of a repository git obeys, for runner/repository",
	"runner/workspace":          "a workspace is copied for each attempt",
}

// TestPlainDataReachesNoKernel follows the imports of what is plain data, on all platforms.
func TestPlainDataReachesNoKernel(t *testing.T) {
	for _, pkg := range plain {
		for linked, by := range linkedBy(t, pkg) {
			if top, _, _ := strings.Cut(linked, "/"); slices.Contains([]string{"bpf", "cgroup", "kernel"}, top) {
				t.Errorf("%s imports %s", by, linked)
			}
		}
	}
}

// TestSuitesLinkNoPartOfARun follows the imports of assay-suite.
func TestSuitesLinkNoPartOfARun(t *testing.T) {
	linked := linkedBy(t, "cmd/assay-suite")
	for pkg, by := range linked {
		if top, rest, _ := strings.Cut(pkg, "/"); top == "runner" && rest != "suite" &&
			!strings.HasPrefix(rest, "suite/") && beside[pkg] == "" {
			t.Errorf("%s imports %s", by, pkg)
		}
	}
	for pkg := range beside {
		if linked[pkg] == "" {
			t.Errorf("nothing imports %s: remove it from the list", pkg)
		}
	}
}

// linkedBy returns the packages of this module that one imports, and those that they import, on all platforms, with the
// way to each.
func linkedBy(t *testing.T, root string) map[string]string {
	t.Helper()
	const module = "github.com/assay-run/assay-run/"
	by := map[string]string{}
	var follow func(pkg string)
	follow = func(pkg string) {
		files, err := filepath.Glob(filepath.Join("..", "..", pkg, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pkg, len(files), err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.Imports {
				name, _ := strconv.Unquote(i.Path.Value)
				if ours, ok := strings.CutPrefix(name, module); ok && by[ours] == "" {
					by[ours] = strings.TrimPrefix(by[pkg]+" > "+pkg, " > ")
					follow(ours)
				}
			}
		}
	}
	follow(root)
	return by
}

// spread are the types whose methods stand in several files, each for a reason. Others have parts in the files of the
// platforms alone.
var spread = map[string]string{
	"cmd/assay-suite.app": "the program",
	"schema.lineReader":   "each kind of line is read beside its type",

	"kernel.Event":           "what system calls are and which places they name is read beside the table of all calls",
	"kernel.decoder":         "the same",
	"runner/sandbox.Profile": "the private home is one idea, which a profile, a plan and a sandbox have a part of",
	"runner/sandbox.Sandbox": "the same",

	"runner/sandbox/startup.searcher": "git's configuration is searched as git reads it",
}

// A type and its methods stand in one file, but for what only one platform has.
func TestATypeLivesInOneFile(t *testing.T) {
	files := map[string][]string{} // of the methods of each type, apart for each choice of platforms
	for folder := range mayImport {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			dir, err := filepath.Rel(filepath.Join("..", ".."), filepath.Dir(path))
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Recv == nil {
					continue
				}
				receiver := fn.Recv.List[0].Type
				if p, ok := receiver.(*ast.StarExpr); ok {
					receiver = p.X
				}
				if i, ok := receiver.(*ast.IndexExpr); ok {
					receiver = i.X
				}
				name := filepath.ToSlash(dir) + "." + receiver.(*ast.Ident).Name + platforms(path, f)
				if !slices.Contains(files[name], filepath.Base(path)) {
					files[name] = append(files[name], filepath.Base(path))
				}
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	for name, in := range files {
		typ, _, _ := strings.Cut(name, " ")
		if len(in) > 1 && spread[typ] == "" {
			t.Errorf("%s has methods in %q; keep them in one file, or say in spread why not", name, in)
		}
	}
}

// platforms says on which platforms alone a file is compiled, after a space; "" for all.
func platforms(path string, f *ast.File) string {
	for _, c := range f.Comments {
		for _, line := range c.List {
			if on, ok := strings.CutPrefix(line.Text, "//go:build"); ok {
				return on
			}
		}
	}
	base := strings.TrimSuffix(filepath.Base(path), ".go")
	for _, suffix := range []string{"linux", "darwin", "unix"} {
		if strings.HasSuffix(base, "_"+suffix) {
			return " " + suffix
		}
	}
	return ""
}

// A run id is held by one run at a time on a host, so one that a test spells
// out makes two test suites that run at the same time refuse each other's runs.
var fixedID = []*regexp.Regexp{
	regexp.MustCompile(`--run-id[= ][^\s$]*(?:\s|$)`),         // scripts: without $ID
	regexp.MustCompile(`"--run-id(?:=\w|", ")[^"]*"[,})]`),    // Go tests: nothing but a literal
	regexp.MustCompile(`\bNewSession\("[^"]*",`),              // Go tests of sessions
	regexp.MustCompile(`(?m)^\s*(?:- )?run_id: *[^\s$]+\s*$`), // spec files in scripts
}

// refusedID is an id that no run can have.
var refusedID = regexp.MustCompile(`--run-id (?:a:b) `)

func TestRunIDsOfTestsAreUnique(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		script := strings.HasSuffix(path, ".txtar")
		if err != nil || d.IsDir() || !script && !strings.HasSuffix(path, "_test.go") ||
			filepath.Base(path) == "layout_test.go" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range bytes.Split(b, []byte("\n")) {
			line = refusedID.ReplaceAll(append(line, '\n'), nil)
			for n, r := range fixedID {
				if (script || n == 1 || n == 2) && r.Match(line) {
					t.Errorf("%s:%d: the run id is the same in every test process; use $ID or uniqueID: %s", path, i+1,
						line)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
