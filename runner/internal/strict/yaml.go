package strict

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// maxDepth limits the nesting of a YAML file, since the YAML parser recurses without a limit. Real files are nested
// four deep.
const maxDepth = 32

// maxColumn limits the column of a list's dash, and so the nesting of lists in block form.
const maxColumn = 4 * maxDepth

// document is a YAML document as JSON, with the line of each value.
type document struct {
	json  []byte
	lines map[jsontext.Pointer]int
}

// lineOf returns the line of the value at p, or of the nearest value that contains it.
func (d *document) lineOf(p jsontext.Pointer) int {
	for {
		if line, ok := d.lines[p]; ok {
			return line
		}
		if p == "" {
			return 0
		}
		p = p.Parent()
	}
}

func translate(data []byte) (doc *document, err error) {
	// The parser may panic on malformed input, which must only be an error.
	defer func() {
		if r := recover(); r != nil {
			doc, err = nil, &Error{Problem: "not valid YAML: the parser could not make sense of it"}
		}
	}()
	if !utf8.Valid(data) {
		return nil, &Error{Line: firstInvalid(data), Problem: "not valid UTF-8"}
	}
	tokens := lexer.Tokenize(string(data))
	if err := screen(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, yamlError(err)
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			return nil, &Error{Line: lineOfNode(d.Body), Problem: "a second YAML document; write one file for each"}
		}
		body = d.Body
	}
	if body == nil {
		return nil, &Error{Problem: "the file is empty"}
	}
	doc = &document{lines: make(map[jsontext.Pointer]int)}
	return doc, doc.value(body, "", 0)
}

func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return lineAt(data, int64(i))
		}
		i += n
	}
	return 0
}

// screen refuses tokens that real files never need, and deep nesting, before anything recurses over them.
func screen(tokens token.Tokens) error {
	flow := 0
	for _, t := range tokens {
		refuse := func(what string) error {
			return &Error{Line: t.Position.Line, Problem: what + " is not allowed here; write the value out"}
		}
		switch t.Type {
		case token.AnchorType:
			return refuse("a YAML anchor (&)")
		case token.AliasType:
			return refuse("a YAML alias (*); quote text that begins with one. It")
		case token.TagType:
			return refuse("a YAML tag (!); quote text that begins with one. It")
		case token.MergeKeyType:
			return refuse("a YAML merge key (<<)")
		case token.MappingKeyType:
			return refuse("a YAML complex key (?)")
		case token.DirectiveType:
			return refuse("a YAML directive (%)")
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		}
		structural := t.Type == token.SequenceEntryType || t.Type == token.MappingValueType && startsLine(t.Prev)
		if flow > maxDepth || structural && column(t) > maxColumn {
			return &Error{Line: t.Position.Line, Problem: "nested too deep"}
		}
	}
	return nil
}

// column returns the column at which a structural token nests: that of the dash itself, or of the key before a colon.
func column(t *token.Token) int {
	if t.Type == token.MappingValueType && t.Prev != nil {
		return t.Prev.Position.Column
	}
	return t.Position.Column
}

func startsLine(t *token.Token) bool {
	return t != nil && (t.Prev == nil || t.Prev.Position.Line < t.Position.Line)
}

func yamlError(err error) *Error {
	var y yaml.Error
	if errors.As(err, &y) && y.GetToken() != nil {
		return &Error{Line: y.GetToken().Position.Line, Problem: "not valid YAML: " + y.GetMessage()}
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return &Error{Problem: "not valid YAML: " + first}
}

func lineOfNode(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

// value appends n, which is at p, to the JSON text.
func (d *document) value(n ast.Node, p jsontext.Pointer, depth int) error {
	if depth > maxDepth {
		return &Error{Line: lineOfNode(n), Key: keyPath(p), Problem: "nested too deep"}
	}
	if _, ok := d.lines[p]; !ok { // prefer the line of the key
		d.lines[p] = lineOfNode(n)
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		return d.object(n.Values, p, depth)
	case *ast.MappingValueNode:
		return d.object([]*ast.MappingValueNode{n}, p, depth)
	case *ast.SequenceNode:
		d.json = append(d.json, '[')
		for i, item := range n.Values {
			if i > 0 {
				d.json = append(d.json, ',')
			}
			if err := d.value(item, p.AppendToken(strconv.Itoa(i)), depth+1); err != nil {
				return err
			}
		}
		d.json = append(d.json, ']')
		return nil
	case *ast.StringNode:
		return d.text(n.Value, n, p)
	case *ast.LiteralNode:
		return d.text(n.Value.Value, n, p)
	case *ast.BoolNode:
		d.json = strconv.AppendBool(d.json, n.Value)
	case *ast.NullNode:
		d.json = append(d.json, "null"...)
	case *ast.IntegerNode:
		d.json = fmt.Append(d.json, n.Value)
	case *ast.FloatNode:
		d.json = strconv.AppendFloat(d.json, n.Value, 'g', -1, 64)
	default:
		return &Error{Line: lineOfNode(n), Key: keyPath(p), Problem: "a YAML " + n.Type().YAMLName() +
			" is not allowed here"}
	}
	return nil
}

func (d *document) object(pairs []*ast.MappingValueNode, p jsontext.Pointer, depth int) error {
	d.json = append(d.json, '{')
	for i, pair := range pairs {
		key, ok := pair.Key.(*ast.StringNode)
		if !ok {
			return &Error{Line: lineOfNode(pair.Key), Key: keyPath(p), Problem: "a key must be a plain string"}
		}
		at := p.AppendToken(key.Value)
		d.lines[at] = lineOfNode(key)
		if i > 0 {
			d.json = append(d.json, ',')
		}
		if err := d.text(key.Value, key, at); err != nil {
			return err
		}
		d.json = append(d.json, ':')
		if err := d.value(pair.Value, at, depth+1); err != nil {
			return err
		}
	}
	d.json = append(d.json, '}')
	return nil
}

func (d *document) text(s string, n ast.Node, p jsontext.Pointer) error {
	out, err := jsontext.AppendQuote(d.json, s)
	if err != nil {
		return &Error{Line: lineOfNode(n), Key: keyPath(p), Problem: "not valid UTF-8"}
	}
	d.json = out
	return nil
}
