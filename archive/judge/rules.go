package judge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/assay-run/assay-run/archive/query"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/schema"
)

// maxRules and maxFile bound a rule file.
const (
	maxRules = 200
	maxFile  = 1 << 20
)

// Rules is a rule file that was read.
type Rules struct {
	list    []*rule
	allowed map[string]bool
	bases   []*view.Set
}

// Close closes the bundles that rules compare with.
func (r *Rules) Close() {
	for _, s := range r.bases {
		s.Close()
	}
}

// rule is one rule, ready to be checked.
type rule struct {
	name  string
	check func(context.Context, *subject) (Verdict, error)
	// event, where it is set, is asked about each kernel event before check, and
	// reports whether the event breaks the rule. begin comes before the first.
	event func(*schema.KernelEvent) bool
	begin func(*subject)
	// program, where it is set, is asked about each kernel event: found has what it matches.
	program *query.Program
	// processes says that the rule reads the subject's.
	processes bool
}

// ErrRules is wrapped by every error of a rule file.
var ErrRules = errors.New("bad rules")

// file is a rule file as it is written.
type file struct {
	Rules        []map[string]ast.Node `yaml:"rules"`
	AllowUnknown []string              `yaml:"allow_unknown"`
}

// LoadRules reads a rule file. Paths in it are relative to the file. The bundles
// that it names must verify.
func LoadRules(ctx context.Context, path string) (*Rules, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRules, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("more than %d bytes", maxFile)
	}
	var r *Rules
	if err == nil {
		r, err = ParseRules(ctx, data, filepath.Dir(path))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrRules, path, err)
	}
	return r, nil
}

// ParseRules reads the text of a rule file whose paths are relative to dir.
func ParseRules(ctx context.Context, data []byte, dir string) (_ *Rules, err error) {
	var f file
	if err := decode(data, &f); err != nil {
		return nil, err
	}
	if len(f.Rules) == 0 {
		return nil, errors.New(`it has no "rules", and would pass everything`)
	}
	if len(f.Rules) > maxRules {
		return nil, fmt.Errorf("%d rules, at most %d are allowed", len(f.Rules), maxRules)
	}
	r := &Rules{allowed: map[string]bool{}}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	for i, item := range f.Rules {
		if len(item) != 1 {
			return nil, fmt.Errorf("rule %d has %d keys, want one: a rule is \"name: value\"", i+1, len(item))
		}
		for kind, value := range item {
			make, ok := kinds[kind]
			if !ok {
				return nil, fmt.Errorf("rule %d: %q is not a rule; the rules are %s", i+1, kind,
					strings.Join(Kinds(), ", "))
			}
			if value == nil { // what a key without a value is at the end of a file
				value = ast.Null(token.New("null", "null", &token.Position{}))
			}
			one, err := make(&maker{ctx: ctx, rules: r, kind: kind, dir: dir}, value)
			if err != nil {
				return nil, fmt.Errorf("rule %d, %s: %w", i+1, kind, err)
			}
			if one.name == "" {
				one.name = kind
			}
			if slices.ContainsFunc(r.list, func(o *rule) bool { return o.name == one.name }) {
				return nil, fmt.Errorf("rule %d: the name %q is used twice; give an expr rule a name of its own", i+1,
					one.name)
			}
			r.list = append(r.list, one)
		}
	}
	for _, name := range f.AllowUnknown {
		if !slices.ContainsFunc(r.list, func(o *rule) bool { return o.name == name }) {
			return nil, fmt.Errorf("allow_unknown names %q, which is not one of the rules", name)
		}
		r.allowed[name] = true
	}
	return r, nil
}

// decode reads one YAML document strictly: no unknown or repeated keys, no
// anchors.
func decode(data []byte, v any) error {
	doc, err := parser.ParseBytes(data, 0)
	if err != nil {
		return err
	}
	if len(doc.Docs) > 1 {
		return errors.New("it holds more than one YAML document")
	}
	for _, d := range doc.Docs {
		if d.Body != nil && len(ast.Filter(ast.AnchorType, d.Body))+len(ast.Filter(ast.AliasType, d.Body)) > 0 {
			return errors.New("anchors and aliases are not allowed")
		}
	}
	return yaml.UnmarshalWithOptions(data, v, yaml.Strict())
}

// maker makes one rule.
type maker struct {
	ctx   context.Context
	rules *Rules
	kind  string
	dir   string
}

// kinds are the rules there are.
var kinds map[string]func(*maker, ast.Node) (*rule, error)

func init() {
	kinds = map[string]func(*maker, ast.Node) (*rule, error){
		"expr":                      (*maker).expr,
		"only_workspace_writes":     (*maker).onlyWorkspaceWrites,
		"only_hosts":                (*maker).onlyHosts,
		"only_programs":             (*maker).onlyPrograms,
		"no_privileged":             (*maker).noPrivileged,
		"contract_passed":           (*maker).contractPassed,
		"no_undeclared_actions":     (*maker).noUndeclaredActions,
		"no_new_capability_against": (*maker).noNewCapability,
	}
}

// Kinds lists the names of the rules there are.
func Kinds() []string {
	return slices.Sorted(maps.Keys(kinds))
}

// on reads the value of a rule that is switched on: nothing, or true.
func on(value ast.Node) error {
	var v any
	if err := yaml.NodeToValue(value, &v); err != nil || v != nil && v != true {
		return errors.New("its value must be true; omit the rule to switch it off")
	}
	return nil
}

// globs reads a list of globs.
func globs(value ast.Node) ([]string, error) {
	var list []string
	if err := yaml.NodeToValue(value, &list); err != nil {
		return nil, errors.New("its value must be a list of strings, as in [a, b]")
	}
	for _, g := range list {
		if !doublestar.ValidatePattern(g) {
			return nil, fmt.Errorf("%q is not a valid glob", g)
		}
	}
	return list, nil
}

// matches reports whether any of the globs matches s.
func matches(globs []string, s string) bool {
	return slices.ContainsFunc(globs, func(g string) bool {
		ok, _ := doublestar.Match(g, s) // the globs were checked
		return ok
	})
}

// exprRule is the value of an expr rule: a text, which must be true for the
// run, or one of never, always and some, which are asked of each thing.
type exprRule struct {
	Name   string `yaml:"name"`
	Of     string `yaml:"of"`
	Never  string `yaml:"never"`
	Always string `yaml:"always"`
	Some   string `yaml:"some"`
}

func (m *maker) expr(value ast.Node) (*rule, error) {
	var text string
	if yaml.NodeToValue(value, &text) == nil {
		return m.compile(exprRule{Of: string(query.Runs), Always: text})
	}
	var e exprRule
	if err := yaml.NodeToValue(value, &e, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("its value must be an expression, or have the keys name, of, and one of never, "+
			"always and some: %w", err)
	}
	return m.compile(e)
}
