package facts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// exceptions are the files and packages outside of this one that decide something of their own, with the reason.
var exceptions = map[string]string{
	"kernel/layer":               "makes the exec ids, before there are lines",
	"runner/binding/tree.go":     "which processes serve a client, before facts reads the line and its call",
	"schema/surface":             "what chance made, by the names alone; nothing follows from it for a file",
	"archive/evaluation/uses.go": "what checks and the run used under each name, of files that nobody changed",
	"archive/view/gather.go":     "names that were not found: no line says whether a rename made its target",
}

// maxExceptions limits the exceptions.
const maxExceptions = 5

// readers calls read for the files of some directories that are not this package's, a codec's, a writer's, a verifier's
// or the raw view's.
func readers(t *testing.T, read func(name string, text []byte), tops ...string) {
	t.Helper()
	raw := []string{"schema/kernelevent.go", "archive/v0.go", "archive/view/write.go", "archive/render/item.go"}
	for _, top := range tops {
		err := filepath.WalkDir(filepath.Join("..", "..", top), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			at := strings.TrimPrefix(filepath.ToSlash(name), "../../")
			if strings.HasPrefix(at, "schema/facts/") || strings.HasPrefix(at, "archive/verify") ||
				slices.Contains(raw, at) {
				return nil
			}
			text, err := os.ReadFile(name)
			if err == nil {
				read(at, text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// excepted reports whether a file is an exception, and notes that the exception is needed.
func excepted(needed map[string]bool, name string) bool {
	for _, at := range []string{name, filepath.ToSlash(filepath.Dir(name))} {
		if exceptions[at] != "" {
			needed[at] = true
			return true
		}
	}
	return false
}

// ofTrust matches what only this package, the codec, the writers and the raw view read of an event.
var ofTrust = regexp.MustCompile(`\b(e|k|ev|Event|Kernel)\.(Claimed|DirectoryClaimed|UserMemory|Marks|Truncated|` +
	`Attempted)\b|schema\.KindRename\b`)

// TestOnlyFactsDecides looks for readers that decide for themselves whether a line is sure, where a file went, and who
// acted: those that read the members of an event that say so, and those that keep a table by the names, exec ids or
// process ids of events.
func TestOnlyFactsDecides(t *testing.T) {
	needed := map[string]bool{}
	readers(t, func(name string, text []byte) {
		if found := ofTrust.FindAllString(string(text), -1); found != nil && !excepted(needed, name) {
			t.Errorf("%s decides whether a line is sure: %q", name, found)
		}
	}, "schema", "archive", "runner", "cmd")
	readers(t, func(name string, text []byte) {
		for _, table := range tables(t, name, text) {
			if !excepted(needed, name) {
				t.Errorf("%s keeps a table of names or processes: %s", name, table)
			}
		}
	}, "archive/view", "archive/judge", "archive/evaluation", "archive/query", "archive/render", "runner/binding",
		"runner/model", "runner/contract", "schema/surface", "kernel/layer")
	readers(t, func(name string, text []byte) {
		if filepath.ToSlash(filepath.Dir(name)) != "runner" {
			return
		}
		for _, table := range tables(t, name, text) {
			t.Errorf("%s keeps a table of names or processes: %s", name, table)
		}
	}, "runner")
	if len(exceptions) > maxExceptions || len(needed) != len(exceptions) {
		t.Errorf("%d exceptions, %v are needed; at most %d are allowed", len(exceptions),
			slices.Sorted(maps.Keys(needed)), maxExceptions)
	}
}

// otherKeys are the tables whose keys are something else than names of files and ids of processes.
var otherKeys = []string{
	"rules",                       // of an evaluation, by name; of a policy, by target
	"ports", "nameless", "silent", // by endpoint
	"own",                  // endpoints of assay-run, variables of an expression
	"refusals",             // by connection
	"shells",               // names of programs
	"logs",                 // the files to which an agent reports
	"Layers",               // of a bundle
	"files",                // of a spool
	"tools", "pieces", "r", // the surface's sets, and the values of an expression
}

// tables returns the fields with a map in which the functions of a file look for names or ids that events have.
func tables(t *testing.T, name string, text []byte) (found []string) {
	t.Helper()
	if !regexp.MustCompile(`KernelEvent|facts\.|kernel\.Event\b`).Match(text) {
		return nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		names := namesIn(f)
		ast.Inspect(f.Body, func(n ast.Node) bool {
			var table, key ast.Expr
			switch n := n.(type) {
			case *ast.IndexExpr:
				table, key = n.X, n.Index
			case *ast.CallExpr:
				if fn, ok := n.Fun.(*ast.Ident); ok && fn.Name == "delete" {
					table, key = n.Args[0], n.Args[1]
				}
			}
			field := ""
			switch x := table.(type) {
			case *ast.SelectorExpr:
				field = x.Sel.Name
			case *ast.Ident:
				if f.Recv != nil && len(f.Recv.List[0].Names) > 0 && f.Recv.List[0].Names[0].Name == x.Name {
					field = x.Name
				}
			}
			if field != "" && !slices.Contains(otherKeys, field) && isName(key, names) &&
				!slices.Contains(found, field) {
				found = append(found, field)
			}
			return true
		})
	}
	return found
}

// namesIn returns the variables of a function that stand for names of files: its parameters with the usual names, and
// what it gets from an event.
func namesIn(f *ast.FuncDecl) (names []string) {
	for _, p := range f.Type.Params.List {
		if t, ok := p.Type.(*ast.Ident); !ok || t.Name != "string" {
			continue
		}
		for _, n := range p.Names {
			if slices.Contains([]string{"path", "name", "file", "dir", "link", "root", "p"}, n.Name) {
				names = append(names, n.Name)
			}
		}
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if r, ok := n.(*ast.RangeStmt); ok {
			if c, ok := r.X.(*ast.CallExpr); ok {
				if s, ok := c.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Touches" {
					if key, ok := r.Key.(*ast.Ident); ok {
						names = append(names, key.Name)
					}
				}
			}
		}
		return true
	})
	return names
}

// isName reports whether an expression has a name of a file or an id of a process in it.
func isName(key ast.Expr, names []string) (found bool) {
	ast.Inspect(key, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			found = found || slices.Contains([]string{"ExecID", "ParentExecID", "PID", "PPID", "TID", "Value", "Target",
				"Given", "TargetGiven", "path"}, n.Sel.Name)
			return false
		case *ast.Ident:
			found = found || slices.Contains(names, n.Name)
		}
		return true
	})
	return found
}
