// Package evalfile reads evaluation files: what an agent under evaluation must not do, in YAML. An error
// lists all faults of a file, each with its line.
package evalfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
)

// Bounds of a file.
const (
	maxBytes = 256 << 10
	maxGlobs = 1000 // of one key
)

// ErrFile is wrapped by every error of an evaluation file.
var ErrFile = errors.New("bad evaluation file")

// Load reads the file at path, which must be a regular file. The document has no run id.
func Load(path string) (*schema.Evaluation, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "read", Path: path, Err: errors.New("not a regular file")}
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(f, maxBytes+1))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	doc, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrFile, path, err)
	}
	return doc, nil
}

// Parse reads the text of an evaluation file.
func Parse(data []byte) (doc *schema.Evaluation, err error) {
	if len(data) > maxBytes {
		return nil, fmt.Errorf("larger than %d bytes", maxBytes)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("not valid UTF-8")
	}
	defer func() {
		if r := recover(); r != nil { // the parser has been seen to panic on malformed input
			doc, err = nil, errors.New("not valid YAML: the parser could not make sense of it")
		}
	}()
	body, err := parse(data)
	if err != nil {
		return nil, err
	}
	r := &reader{}
	doc = &schema.Evaluation{Schema: schema.EvaluationV0}
	d := &doc.Evaluation
	r.mapping("", body, map[string]func(string, ast.Node){
		"workspace": r.paths(&d.Workspace),
		"hidden":    r.paths(&d.Hidden),
		"protected": r.paths(&d.Protected),
		"reward":    r.paths(&d.Reward),
		"others":    r.paths(&d.Others),
		"forbidden": func(key string, n ast.Node) {
			r.mapping(key, n, map[string]func(string, ast.Node){
				"hosts": r.globs(&d.Forbidden.Hosts), "packages": r.globs(&d.Forbidden.Packages),
				"repositories": r.globs(&d.Forbidden.Repositories),
			})
		},
		"start_commit": func(key string, n ast.Node) {
			d.StartCommit = strings.ToLower(r.text(key, n))
			if s := d.StartCommit; s != "" && (len(s) < 7 || len(s) > 64 || strings.Trim(s, "0123456789abcdef") != "") {
				r.fault(n, key, "%.80q is not a commit: write 7 to 64 hex digits, in quotes", s)
			}
		},
		"agent": func(key string, n ast.Node) {
			d.Agent = r.text(key, n)
			if _, known := agents.Of(d.Agent); d.Agent != "" && !known {
				r.fault(n, key, "agent %.80q is not known; the agents are %s", d.Agent,
					strings.Join(agents.Names(), ", "))
			}
		},
	})
	for _, w := range d.Workspace {
		if !path.IsAbs(w) {
			r.fault(body, "workspace", "%.80q is not absolute", w)
		}
	}
	sum := sha256.Sum256(data)
	doc.Digest = "sha256:" + hex.EncodeToString(sum[:])
	return doc, errors.Join(r.faults...)
}

// parse is the one document of the file.
func parse(data []byte) (ast.Node, error) {
	tokens := lexer.Tokenize(string(data))
	depth := 0
	for _, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.MappingKeyType,
			token.DirectiveType:
			return nil, fmt.Errorf("line %d: %q: anchors, aliases, tags and complex keys are not allowed; quote "+
				"text that begins with one",
				t.Position.Line, t.Value)
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		}
		if depth > 8 || t.Position.Column > 4096 {
			return nil, fmt.Errorf("line %d: nested too deep", t.Position.Line)
		}
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // mapping tells of them
	if err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false))
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body != nil && body != nil {
			return nil, fmt.Errorf("line %d: it holds more than one YAML document", d.Body.GetToken().Position.Line)
		}
		if d.Body != nil {
			body = d.Body
		}
	}
	if body == nil {
		return nil, errors.New("the file is empty")
	}
	return body, nil
}

// reader collects the faults of a file.
type reader struct{ faults []error }

func (r *reader) fault(n ast.Node, key, format string, args ...any) {
	at := fmt.Sprintf("line %d: ", n.GetToken().Position.Line)
	if key != "" {
		at += key + ": "
	}
	r.faults = append(r.faults, errors.New(at+fmt.Sprintf(format, args...)))
}

// mapping reads a node whose keys are those of keys.
func (r *reader) mapping(at string, n ast.Node, keys map[string]func(string, ast.Node)) {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		r.fault(n, at, "found %s, want keys with values", n.Type())
		return
	}
	seen := map[string]bool{}
	for _, v := range values {
		name := v.Key.String()
		if s, ok := v.Key.(*ast.StringNode); ok {
			name = s.Value
		}
		key := strings.TrimPrefix(at+"."+name, ".")
		read := keys[name]
		switch {
		case read == nil:
			r.fault(v.Key, "", "%.80q is not a key; the keys are workspace, hidden, protected, reward, "+
				"forbidden (hosts, packages, repositories), others, start_commit, agent", key)
		case seen[name]:
			r.fault(v.Key, "", "the key %q is there twice", key)
		default:
			seen[name] = true
			read(key, v.Value)
		}
	}
}

func (r *reader) text(key string, n ast.Node) string {
	s, ok := n.(*ast.StringNode)
	if !ok {
		r.fault(n, key, "found %s, want a text; put it in quotes", n.Type())
		return ""
	}
	if s.Value == "" {
		r.fault(n, key, "it is empty; omit the key")
	}
	return s.Value
}

// globs reads a list of globs.
func (r *reader) globs(to *[]string) func(string, ast.Node) {
	return func(key string, n ast.Node) {
		list, ok := n.(*ast.SequenceNode)
		if !ok {
			r.fault(n, key, "found %s, want a list of globs, as in [a, b]", n.Type())
			return
		}
		if len(list.Values) == 0 || len(list.Values) > maxGlobs {
			r.fault(n, key, "it has %d globs, want 1 to %d", len(list.Values), maxGlobs)
			return
		}
		for _, v := range list.Values {
			s := r.text(key, v)
			if !doublestar.ValidatePattern(s) {
				r.fault(v, key, "%.80q is not a valid glob", s)
			}
			*to = append(*to, s)
		}
	}
}

// paths reads a list of globs of paths, and writes them as the kernel names files.
func (r *reader) paths(to *[]string) func(string, ast.Node) {
	return func(key string, n ast.Node) {
		before := len(r.faults)
		r.globs(to)(key, n)
		if len(r.faults) > before {
			return
		}
		for i, glob := range *to {
			if strings.ContainsRune(glob, 0) {
				r.fault(n, key, "%.80q holds a NUL", glob)
			}
			clean := path.Clean(glob)
			if clean == ".." || strings.HasPrefix(clean, "../") {
				r.fault(n, key, "%.80q leaves the workspace; write an absolute path", glob)
			}
			(*to)[i] = clean
		}
	}
}
