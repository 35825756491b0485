package runner

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNoFieldIsSetFromOutside checks that a part of a run gets everything that it needs from its constructor: only a
// type's methods set its fields, and functions only set fields of values that they have just made.
func TestNoFieldIsSetFromOutside(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	source := map[string]string{}
	for _, name := range files {
		use, err := build.Default.MatchFile(".", name)
		if err != nil {
			t.Fatal(err)
		}
		if use && !strings.HasSuffix(name, "_test.go") {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			source[name] = string(text)
		}
	}
	for _, at := range setFromOutside(t, source) {
		t.Errorf("%s: give it to the constructor, or write a method", at)
	}
}

// TestFieldsSetFromOutsideAreFound sets fields in every forbidden way, and in the allowed ways.
func TestFieldsSetFromOutsideAreFound(t *testing.T) {
	const source = `package p

type part struct {
	field int
	list  map[string]int
	inner *part
}

func newPart() *part {
	p := &part{}
	p.field = 1 // a constructor may
	return p
}

func (p *part) method(other *part) {
	p.field++ // so may a method
	other.field++      // want 1
	p.inner.field = 1  // want 2
	p.inner.list[""]++ // want 3
}

type whole struct{ *part }

func (w *whole) method() {
	w.field = 1
	w.part.field = 1
	func() { w.field = 1 }()
}

func set(p *part, w *whole) {
	p.field = 1 // want 4
	w.field = 1 // want 5
	made := newPart()
	made.field, _ = 1, 2 // want 6
	var value struct{ field int }
	value.field = 1
}

type failure struct{ part }

func (f *failure) Error() string { return "" }

func fail(f *failure) { f.field = 1 }
`
	got := setFromOutside(t, map[string]string{"p.go": source})
	var want []string
	for i, line := range strings.Split(source, "\n") {
		if strings.Contains(line, "// want") {
			want = append(want, fmt.Sprintf("p.go:%d", i+1))
		}
	}
	for i := range got {
		got[i] = strings.Join(strings.Split(got[i], ":")[:2], ":")
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

// setFromOutside lists where a function of a package sets a field of a value that is not its own. It checks values of
// unexported types with methods, except errors: exported types are for callers to fill.
func setFromOutside(t *testing.T, source map[string]string) (list []string) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	for name, text := range source {
		f, err := parser.ParseFile(fset, name, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{},
		Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}} // other packages' types do not matter
	pkg, _ := config.Check("p", fset, files, info)
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				for _, at := range foreignFields(info, pkg, fn) {
					list = append(list, fset.Position(at.Pos()).String()+": "+types.ExprString(at))
				}
			}
		}
	}
	slices.Sort(list)
	return list
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }

// foreignFields lists the fields that fn sets and that belong neither to its receiver nor to a value that it made.
func foreignFields(info *types.Info, pkg *types.Package, fn *ast.FuncDecl) (found []ast.Expr) {
	own := map[types.Object]bool{}
	if fn.Recv != nil && len(fn.Recv.List[0].Names) > 0 {
		own[info.Defs[fn.Recv.List[0].Names[0]]] = true
	}
	set := func(e ast.Expr) {
		if index, ok := e.(*ast.IndexExpr); ok {
			e = index.X
		}
		field, ok := e.(*ast.SelectorExpr)
		if !ok {
			return
		}
		of := info.Selections[field]
		if of == nil || of.Kind() != types.FieldVal || !isPart(of.Recv(), pkg) {
			return
		}
		base := field.X
		for { // an embedded field belongs to the value
			embedded, ok := base.(*ast.SelectorExpr)
			if !ok {
				break
			}
			s := info.Selections[embedded]
			if v, ok := s.Obj().(*types.Var); s == nil || !ok || !v.Embedded() {
				break
			}
			base = embedded.X
		}
		if id, ok := base.(*ast.Ident); !ok || !own[info.Uses[id]] {
			found = append(found, field)
		}
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				id, ok := left.(*ast.Ident)
				if ok && n.Tok == token.DEFINE && len(n.Lhs) == len(n.Rhs) && makes(n.Rhs[i]) {
					own[info.Defs[id]] = true
				}
				set(left)
			}
		case *ast.IncDecStmt:
			set(n.X)
		}
		return true
	})
	return found
}

// makes reports whether e makes a value: T{} or &T{}.
func makes(e ast.Expr) bool {
	if address, ok := e.(*ast.UnaryExpr); ok {
		e = address.X
	}
	_, ok := e.(*ast.CompositeLit)
	return ok
}

// isPart reports whether t is an unexported type of pkg, or a pointer to one, that has methods and is not an error.
func isPart(t types.Type, pkg *types.Package) bool {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() != pkg || named.Obj().Exported() && named.Obj().Name() != "Contained" {
		return false
	}
	methods := types.NewMethodSet(types.NewPointer(named))
	return methods.Len() > 0 && methods.Lookup(pkg, "Error") == nil
}
