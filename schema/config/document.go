package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v4"
)

// maxDepth limits the nesting of a file. Real files are nested four deep.
const maxDepth = 32

// byteOrderMark is what some editors write at the start of a file.
const byteOrderMark = "\ufeff"

// Document is a file's values, and where each of them is.
type Document struct {
	json     []byte // the values, without those whose key is a repeated one
	root     value
	repeated []*Error // keys that are given twice
}

// value is where a value of the file is, and what it contains.
type value struct {
	place
	parent  *value            // nil for the whole file
	key     string            // its name in parent, if that is an object
	index   int               // its index in parent, if that is a list
	members map[string]*value // of an object
	items   []*value          // of a list
}

// item adds an item of a list, whose place is not known yet.
func (v *value) item() *value {
	n := &value{parent: v, index: len(v.items)}
	v.items = append(v.items, n)
	return n
}

// child returns the member or item that token names, or nil.
func (v *value) child(token string) *value {
	if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(v.items) {
		return v.items[i]
	}
	return v.members[token]
}

// pointer returns the way from the whole file.
func (v *value) pointer() jsontext.Pointer {
	switch {
	case v.parent == nil:
		return ""
	case v.parent.items != nil:
		return v.parent.pointer().AppendToken(strconv.Itoa(v.index))
	}
	return v.parent.pointer().AppendToken(v.key)
}

// depth is how many values contain it.
func (v *value) depth() (n int) {
	for ; v.parent != nil; v = v.parent {
		n++
	}
	return n
}

// place is a position in a file. Both numbers count from 1; zero if unknown.
type place struct{ line, column int }

// fault returns the fault of the value at p, which is at this place.
func (at place) fault(p jsontext.Pointer, problem string) *Error {
	return &Error{Line: at.line, Column: at.column, Key: keyPath(p), Problem: problem}
}

// Parse reads the text of a file. The error is an *[Error].
func Parse(data []byte, format Format) (*Document, error) {
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	if !utf8.Valid(data) {
		return nil, placeAt(data, firstInvalid(data)).fault("", "not valid UTF-8")
	}
	doc := &Document{}
	var err error
	if format == YAML {
		err = doc.readYAML(data)
	} else {
		err = doc.readJSON(data)
	}
	if err != nil {
		return nil, err
	}
	return doc, nil
}

// Fault returns the fault of the value whose keys and indexes are path. The place is that of the value, or of the
// nearest one that contains it. A nil document knows no places.
func (d *Document) Fault(problem string, path ...string) *Error {
	p := pointer(path)
	return d.placeOf(p).fault(p, problem)
}

// Decode decodes the document into what into points to, by its json tags. It continues after a value that does not fit:
// into gets the rest, and the error joins all faults in the order of lines, each an *[Error].
func (d *Document) Decode(into any) error {
	faults := d.repeated
	if err := d.decode(d.json, into, ""); err != nil {
		faults = slices.Concat(faults, err)
	}
	slices.SortStableFunc(faults, func(a, b *Error) int { return a.Line - b.Line })
	if len(faults) == 1 {
		return faults[0]
	}
	var all []error
	for _, fault := range faults {
		all = append(all, fault)
	}
	return errors.Join(all...)
}

// DecodeValue decodes a value that [Document.Decode] left undecoded, as a [jsontext.Value]. path are the keys and
// indexes that lead to the value. The error is one *[Error], the first.
func (d *Document) DecodeValue(value jsontext.Value, into any, path ...string) error {
	if value == nil {
		value = jsontext.Value("null")
	}
	if faults := d.decode(value, into, pointer(path)); len(faults) > 0 {
		return faults[0]
	}
	return nil
}

// decode decodes the text of the value at p.
func (d *Document) decode(text []byte, into any, p jsontext.Pointer) (faults []*Error) {
	zero := reflect.ValueOf(into).Elem()
	before := reflect.New(zero.Type()).Elem()
	before.Set(zero)
	for {
		zero.Set(before)
		err := json.Unmarshal(text, into, json.RejectUnknownMembers(true), json.WithUnmarshalers(duration()))
		if err == nil {
			return faults
		}
		fault, at := d.explain(err, reflect.TypeOf(into), p)
		faults = append(faults, fault)
		if at == "" || len(faults) == maxFaults {
			return faults
		}
		if text, err = without(text, at); err != nil {
			return faults
		}
	}
}

// explain returns the fault that err tells of, and where in the text of the value at p it is; "" for the whole text.
func (d *Document) explain(err error, into reflect.Type, p jsontext.Pointer) (*Error, jsontext.Pointer) {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return d.placeOf(p).fault(p, err.Error()), ""
	}
	at := semantic.JSONPointer
	fault := d.placeOf(p+at).fault(p+at, "")
	switch {
	case errors.Is(semantic.Err, json.ErrUnknownName):
		fault.Problem = "unknown key" + allowedAt(into, at)
	case errors.As(semantic.Err, new(durationError)):
		fault.Problem = semantic.Err.Error()
	case semantic.Err != nil && ownWords(reflect.PointerTo(orAny(semantic.GoType))):
		fault.Problem = semantic.Err.Error() // the type's own message
	case semantic.GoType != nil && kindName(semantic.GoType) != "":
		fault.Problem = "found " + kindOf(semantic.JSONKind) + ", want " + kindName(semantic.GoType)
	default:
		fault.Problem = err.Error()
	}
	return fault, at
}

// Has reports whether the file has a value at path, null included.
func (d *Document) Has(path ...string) bool {
	v := &d.root
	for _, token := range path {
		if v = v.child(token); v == nil {
			return false
		}
	}
	return true
}

func (d *Document) placeOf(p jsontext.Pointer) (at place) {
	if d == nil {
		return place{}
	}
	v := &d.root
	for token := range p.Tokens() {
		next := v.child(token)
		if next == nil {
			break
		}
		v = next
	}
	return v.place
}

// member writes a member of the object v, whose value read reads. A member whose key the object has already is left
// out, with all faults in it.
func (d *Document) member(v *value, key string, at place, read func(*value) error) error {
	n, before := &value{place: at, parent: v, key: key}, v.members[key]
	if before == nil {
		if v.members == nil {
			v.members = map[string]*value{}
		}
		v.members[key] = n
	}
	length := len(d.json)
	d.comma()
	d.text(key)
	d.json = append(d.json, ':')
	faults := len(d.repeated)
	if err := read(n); err != nil {
		return err
	}
	if before != nil {
		d.json = d.json[:length]
		d.repeated = d.repeated[:faults]
		if faults < maxFaults {
			d.repeated = append(d.repeated, at.fault(n.pointer(),
				fmt.Sprintf("key given twice; the first is on line %d", before.line)))
		}
	}
	return nil
}

// text writes a string. What is not UTF-8 in it becomes the replacement character.
func (d *Document) text(s string) { d.json, _ = jsontext.AppendQuote(d.json, s) }

// comma writes what separates two values.
func (d *Document) comma() {
	if last := d.json[len(d.json)-1]; last != '{' && last != '[' {
		d.json = append(d.json, ',')
	}
}

func (d *Document) readJSON(data []byte) error {
	r := &jsonReader{Document: d, data: data,
		dec: jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true)), at: place{1, 1}}
	if err := r.value(&d.root); err != nil {
		return err
	}
	if _, err := r.dec.ReadToken(); err != io.EOF {
		return r.next().fault("", "not valid JSON: there is text after the value")
	}
	return nil
}

// jsonReader reads a file in JSON into a document.
type jsonReader struct {
	*Document
	data   []byte
	dec    *jsontext.Decoder
	at     place // of data[offset]
	offset int
}

// next returns the place of the next token.
func (r *jsonReader) next() place {
	end := int(r.dec.InputOffset())
	for end < len(r.data) && strings.IndexByte(" \t\r\n,:", r.data[end]) >= 0 {
		end++
	}
	r.moveTo(end)
	return r.at
}

func (r *jsonReader) moveTo(offset int) {
	r.at = r.at.after(r.data[r.offset:max(offset, r.offset)])
	r.offset = max(offset, r.offset)
}

func (r *jsonReader) broken(err error) *Error {
	var syntactic *jsontext.SyntacticError
	if !errors.As(err, &syntactic) {
		return placeAt(r.data, len(r.data)).fault(r.dec.StackPointer(), "not valid JSON: "+err.Error())
	}
	return placeAt(r.data, int(syntactic.ByteOffset)).fault(syntactic.JSONPointer,
		"not valid JSON: "+syntactic.Err.Error())
}

// value reads v.
func (r *jsonReader) value(v *value) error {
	at := r.next()
	if v.place == (place{}) { // prefer the place of the key
		v.place = at
	}
	if v.depth() > maxDepth {
		return at.fault(v.pointer(), "nested too deep")
	}
	t, err := r.dec.ReadToken()
	if err != nil {
		return r.broken(err)
	}
	switch t.Kind() {
	case '{':
		r.json = append(r.json, '{')
		for r.dec.PeekKind() == '"' {
			at := r.next()
			name, err := r.dec.ReadToken()
			if err != nil {
				return r.broken(err)
			}
			if err := r.member(v, name.String(), at, r.value); err != nil {
				return err
			}
		}
		if _, err := r.dec.ReadToken(); err != nil {
			return r.broken(err)
		}
		r.json = append(r.json, '}')
	case '[':
		r.json = append(r.json, '[')
		for r.dec.PeekKind() != ']' && r.dec.PeekKind() != 0 {
			r.comma()
			if err := r.value(v.item()); err != nil {
				return err
			}
		}
		if _, err := r.dec.ReadToken(); err != nil {
			return r.broken(err)
		}
		r.json = append(r.json, ']')
	case '"':
		r.text(t.String())
	default:
		r.json = append(r.json, t.String()...)
	}
	return nil
}

func (d *Document) readYAML(data []byte) error {
	in := yaml.NewDecoder(bytes.NewReader(data))
	var body *yaml.Node
	for {
		var one yaml.Node
		if err := in.Decode(&one); err == io.EOF {
			break
		} else if err != nil {
			return yamlError(err)
		}
		if len(one.Content) == 0 || one.Content[0].IsZero() {
			continue
		}
		if one.Content[0].Tag == "!!null" && one.Content[0].Value == "" {
			continue // nothing between two marks of documents
		}
		if body != nil {
			return at(one.Content[0]).fault("", "a second YAML document; write one file for each")
		}
		body = one.Content[0]
	}
	if body == nil {
		return &Error{Problem: "the file is empty"}
	}
	return d.node(body, &d.root)
}

func firstInvalid(data []byte) int {
	i := 0
	for i < len(data) {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		i += n
	}
	return i
}

// plainWords say what people did whose file the parser refuses with a message that begins so.
var plainWords = []struct{ parser, words string }{
	{"found a tab", "a tab in the indentation; YAML allows only spaces there"},
	{"found character that cannot start", "a tab in the indentation, or text that begins with @ or `; " +
		"indent with spaces, and quote such text"},
	{"mapping values are not allowed", `a second ": " on a line, or a line that is indented too far; quote text that ` +
		`contains ": ", and indent all keys of an object alike`},
	{"did not find expected key", "the indentation matches no line above, or text follows a complete value; " +
		"indent all keys of an object alike"},
	{"did not find expected '-'", "a key where the list above goes on; indent the list's dashes alike, " +
		"and the key as its object"},
	{"found unexpected end of stream", "a quote is not closed"},
	{"did not find expected ',' or ']'", "a list is not closed; write ] at its end, and commas between its values"},
	{"did not find expected ',' or '}'", "an object is not closed; write } at its end, and commas between its keys"},
	{"unknown anchor", "a YAML alias (*) is not allowed here; quote text that begins with *"},
	{"found incompatible YAML", "a YAML directive (%) is not allowed here; remove that line"},
	{"exceeded max depth", "nested too deep"},
	{"did not find expected node content", "a bracket is not closed"},
}

func yamlError(err error) *Error {
	var l *yaml.LoadError
	if !errors.As(err, &l) {
		return &Error{Problem: "not valid YAML: " + err.Error()}
	}
	problem, mark := l.Message, l.Mark
	if strings.HasPrefix(problem, "found unexpected end") && l.ContextMark.Line > 0 {
		mark = l.ContextMark // where the quote was opened
	}
	for _, p := range plainWords {
		if strings.HasPrefix(problem, p.parser) {
			problem = p.words
			break
		}
	}
	return place{mark.Line, mark.Column}.fault("", "not valid YAML: "+problem)
}

// at returns where n is.
func at(n *yaml.Node) place { return place{n.Line, n.Column} }

// unwanted names what real files never need; empty for all else.
func unwanted(n *yaml.Node) string {
	switch {
	case n.Anchor != "":
		return "a YAML anchor (&)"
	case n.Kind == yaml.AliasNode:
		return "a YAML alias (*)"
	case n.Style&yaml.TaggedStyle != 0:
		return "a YAML tag (!)"
	}
	return ""
}

// node reads n, which is v.
func (d *Document) node(n *yaml.Node, v *value) error {
	if what := unwanted(n); what != "" {
		return at(n).fault(v.pointer(), what+" is not allowed here; write the value out, or quote text that begins so")
	}
	if v.depth() > maxDepth {
		return at(n).fault(v.pointer(), "nested too deep")
	}
	if v.place == (place{}) { // prefer the place of the key
		v.place = at(n)
	}
	switch n.Kind {
	case yaml.MappingNode:
		return d.object(n.Content, v)
	case yaml.SequenceNode:
		d.json = append(d.json, '[')
		for _, item := range n.Content {
			d.comma()
			if err := d.node(item, v.item()); err != nil {
				return err
			}
		}
		d.json = append(d.json, ']')
		return nil
	}
	switch n.ShortTag() {
	case "!!bool":
		d.json = append(d.json, strings.ToLower(n.Value)...)
	case "!!null":
		d.json = append(d.json, "null"...)
	case "!!int", "!!float":
		number, ok := number(n)
		if !ok {
			return at(n).fault(v.pointer(), fmt.Sprintf("the number %.40q is not allowed here; quote text", n.Value))
		}
		d.json = append(d.json, number...)
	default: // times too: no file has a value of that kind
		d.text(n.Value)
	}
	return nil
}

// number writes a YAML number as JSON has it.
func number(n *yaml.Node) (string, bool) {
	var whole int64
	if n.ShortTag() == "!!int" && n.Load(&whole) == nil {
		return strconv.FormatInt(whole, 10), true
	}
	var f float64
	if n.Load(&f) != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return "", false
	}
	return strconv.FormatFloat(f, 'g', -1, 64), true
}

func (d *Document) object(pairs []*yaml.Node, v *value) error {
	d.json = append(d.json, '{')
	for i := 0; i+1 < len(pairs); i += 2 {
		name := pairs[i]
		switch what := unwanted(name); {
		case what != "":
			return at(name).fault(v.pointer(), what+" is not allowed here; quote a key that begins so")
		case name.ShortTag() == "!!merge":
			return at(name).fault(v.pointer(), "a YAML merge key (<<) is not allowed here; write the values out")
		case name.Kind != yaml.ScalarNode || name.ShortTag() != "!!str":
			return at(name).fault(v.pointer(), "a key must be a plain string; quote it")
		}
		read := func(v *value) error { return d.node(pairs[i+1], v) }
		if err := d.member(v, name.Value, at(name), read); err != nil {
			return err
		}
	}
	d.json = append(d.json, '}')
	return nil
}

func placeAt(data []byte, offset int) place {
	return place{1, 1}.after(data[:min(max(offset, 0), len(data))])
}

// after returns the place after text that begins at p.
func (p place) after(text []byte) place {
	if n := bytes.Count(text, []byte("\n")); n > 0 {
		p.line, p.column = p.line+n, 1
		text = text[bytes.LastIndexByte(text, '\n')+1:]
	}
	p.column += utf8.RuneCount(text)
	return p
}
