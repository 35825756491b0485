package tape

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema/redact"
)

// texts maps names of members to their texts. A text that is not such a name stands for itself.
type texts map[string]string

func (t texts) of(s string) string {
	if text, ok := t[s]; ok {
		return text
	}
	return s
}

// parsed returns a JSON value as a Go value; nil if body is not valid JSON.
func parsed(body []byte) (v any) {
	if len(body) == 0 || json.Unmarshal(body, &v, jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true)) != nil {
		return nil
	}
	return v
}

// feature is one item of a conversation's shape.
type feature struct {
	at   jsontext.Pointer
	what string
}

// conversations are the members of requests that hold the conversation, by API.
var conversations = []string{"messages", "input", "contents"}

// inside are the members of messages and parts that belong to the shape.
var inside = []string{"content", "parts", "tool_calls", "function", "custom", "functionCall", "functionResponse",
	"output"}

// ids are the members that hold ids.
var ids = []string{"id", "call_id", "tool_use_id", "tool_call_id"}

// shapeOf returns the shape of a request's conversation: who speaks, the kinds of parts, the names of tools, and
// which ids are equal.
func shapeOf(request any) []feature {
	doc, _ := request.(map[string]any)
	if inner, ok := doc["generateContentRequest"].(map[string]any); ok { // Gemini's countTokens
		doc = inner
	}
	s := &shaper{numbers: map[string]int{}}
	for _, name := range conversations {
		if v, ok := doc[name]; ok {
			s.value(jsontext.Pointer("").AppendToken(name), v)
		}
	}
	return s.features
}

type shaper struct {
	features []feature
	numbers  map[string]int // of ids
}

func (s *shaper) add(at jsontext.Pointer, format string, args ...any) {
	s.features = append(s.features, feature{at, fmt.Sprintf(format, args...)})
}

func (s *shaper) value(at jsontext.Pointer, v any) {
	switch v := v.(type) {
	case string:
		s.add(at, "text")
	case []any:
		for i, one := range v {
			s.value(at.AppendToken(strconv.Itoa(i)), one)
		}
	case map[string]any:
		s.object(at, v)
	}
}

func (s *shaper) object(at jsontext.Pointer, o map[string]any) {
	role, _ := o["role"].(string)
	kind, typed := o["type"].(string)
	if role != "" {
		s.add(at, "message of %q", role)
	}
	switch {
	case typed && kind != "message":
		s.add(at, "%s", kind)
	case !typed && role == "":
		s.add(at, "%s", untyped(o))
	}
	if name, ok := o["name"].(string); ok {
		s.add(at.AppendToken("name"), "name %q", name)
	}
	for _, key := range ids {
		if id, ok := o[key].(string); ok && id != "" {
			n, known := s.numbers[id]
			if !known {
				n = len(s.numbers)
				s.numbers[id] = n
			}
			s.add(at.AppendToken(key), "%s number %d", key, n)
		}
	}
	for _, key := range inside {
		if v, ok := o[key]; ok && (key != "output" || !isText(v)) {
			s.value(at.AppendToken(key), v)
		}
	}
}

func isText(v any) bool {
	_, ok := v.(string)
	return ok
}

// untyped is the kind of a part without a type: the names of its members. Gemini has such parts.
func untyped(o map[string]any) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(o)), func(name string) bool {
		return name == "thoughtSignature" || name == "name" || name == "arguments" || name == "args" ||
			name == "response" ||
			slices.Contains(ids, name)
	})
	return strings.Join(names, "+")
}

// toolsOf returns the tools that a request declares, without their descriptions, sorted.
func toolsOf(request any, known texts) []string {
	doc, _ := request.(map[string]any)
	list, _ := doc["tools"].([]any)
	var all []string
	for _, tool := range list {
		b, err := json.Marshal(undescribed(tool, known), json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
		if err == nil {
			all = append(all, string(b))
		}
	}
	slices.Sort(all)
	return all
}

// undescribed returns a value without descriptions and cache marks.
func undescribed(v any, known texts) any {
	switch v := v.(type) {
	case string:
		return known.of(v)
	case []any:
		out := make([]any, len(v))
		for i, one := range v {
			out[i] = undescribed(one, known)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, one := range v {
			if name == "cache_control" || name == "description" && isText(one) {
				continue
			}
			out[name] = undescribed(one, known)
		}
		return out
	}
	return v
}

// toolName is the name of a tool from toolsOf.
func toolName(text string) string {
	doc, _ := parsed([]byte(text)).(map[string]any)
	for _, from := range []map[string]any{doc, object(doc, "function"), object(doc, "custom")} {
		if name, ok := from["name"].(string); ok {
			return name
		}
	}
	if kind, ok := doc["type"].(string); ok {
		return kind
	}
	return strings.Join(slices.Sorted(maps.Keys(doc)), "+")
}

func object(o map[string]any, name string) map[string]any {
	inner, _ := o[name].(map[string]any)
	return inner
}

// saidBy returns the user's texts in a conversation.
func saidBy(request any, known texts) []string {
	doc, _ := request.(map[string]any)
	var all []string
	for _, name := range conversations {
		switch v := doc[name].(type) {
		case string:
			all = append(all, shown(known.of(v)))
		case []any:
			for _, m := range v {
				message, _ := m.(map[string]any)
				if message["role"] != "user" {
					continue
				}
				for _, part := range []any{message["content"], message["parts"]} {
					all = append(all, textsOf(part, known)...)
				}
			}
		}
	}
	return all
}

// textsOf returns the texts of a message's content: of its parts, or the content itself.
func textsOf(content any, known texts) (all []string) {
	switch v := content.(type) {
	case string:
		return []string{shown(known.of(v))}
	case []any:
		for _, p := range v {
			if part, ok := p.(map[string]any); ok && isText(part["text"]) {
				all = append(all, shown(known.of(part["text"].(string))))
			}
		}
	}
	return all
}

// shown returns a text without redaction tags, which differ between runs.
func shown(s string) string { return redact.Untag(s) }

// differ calls each with every place where two requests differ.
func differ(at jsontext.Pointer, recorded, now any, known texts, each func(jsontext.Pointer)) {
	switch r := recorded.(type) {
	case string:
		if n, ok := now.(string); !ok || shown(known.of(r)) != shown(n) {
			each(at)
		}
	case []any:
		n, ok := now.([]any)
		if !ok {
			each(at)
			return
		}
		for i := range max(len(r), len(n)) {
			if here := at.AppendToken(strconv.Itoa(i)); i < len(r) && i < len(n) {
				differ(here, r[i], n[i], known, each)
			} else {
				each(here)
			}
		}
	case map[string]any:
		n, ok := now.(map[string]any)
		if !ok {
			each(at)
			return
		}
		names := slices.Collect(maps.Keys(r))
		for name := range n {
			if _, both := r[name]; !both {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			a, inR := r[name]
			b, inN := n[name]
			if here := at.AppendToken(name); inR && inN {
				differ(here, a, b, known, each)
			} else {
				each(here)
			}
		}
	default:
		if recorded != now {
			each(at)
		}
	}
}

// whole returns a body with the texts that were stored as members.
func whole(body jsontext.Value, known texts) ([]byte, error) {
	var out bytes.Buffer
	in, enc := jsontext.NewDecoder(bytes.NewReader(body)), jsontext.NewEncoder(&out)
	for in.PeekKind() != 0 {
		isName := false
		if k, n := in.StackIndex(in.StackDepth()); k == '{' && n%2 == 0 {
			isName = true
		}
		tok, err := in.ReadToken()
		if err != nil {
			return nil, err
		}
		if tok.Kind() == '"' && !isName {
			tok = jsontext.String(known.of(tok.String()))
		}
		if err := enc.WriteToken(tok); err != nil {
			return nil, err
		}
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
