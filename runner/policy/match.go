package policy

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// denied is how a deny_tool_param looks at a text: it equals a value, contains the
// pattern, or is a path at or below one of the rule's.
func (r Rule) denied() func(text any) bool {
	values := make([]string, len(r.Value))
	for i, v := range r.Value {
		values[i] = folded(v)
	}
	var pattern []string
	if r.Pattern != "" {
		pattern = []string{folded(r.Pattern)}
	}
	return func(text any) bool {
		for i, v := range values {
			for _, form := range forms(text) {
				if folded(form) == v || sameNumber(form, r.Value[i]) {
					return true
				}
			}
		}
		path, _ := text.(string)
		return containsAny(text, pattern) || len(r.ValuePath) > 0 && (climbs(path) ||
			slices.ContainsFunc(r.ValuePath, func(dir string) bool {
				return below(path, dir) || below(composed(path), dir)
			}))
	}
}

// allowed tells whether a value is one of those that an allow_tool_param lists:
// the same text, the same number, or a path at or below one of the rule's. Case
// counts, since what is alike may still be something else.
func (r Rule) allowed(v any) bool {
	if text, ok := v.(string); ok {
		return slices.ContainsFunc(r.Value, func(w string) bool {
			return norm.NFC.String(text) == norm.NFC.String(w)
		}) ||
			slices.ContainsFunc(r.ValuePath, func(dir string) bool { return below(text, dir) })
	}
	text := string(v.(literal))
	return slices.ContainsFunc(r.Value, func(w string) bool { return text == w || sameNumber(text, w) })
}

// containsAny tells whether a text contains one of words, which are folded.
func containsAny(text any, words []string) bool {
	for _, form := range forms(text) {
		s := folded(form)
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) }) {
			return true
		}
	}
	return false
}

// compilePattern bounds the work of a match: it is linear in the text times
// the size of the program.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("the pattern has %d bytes, at most %d are allowed", len(pattern), maxPattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("the pattern is not valid RE2: %w", err)
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, fmt.Errorf("the pattern cannot be compiled: %w", err)
	}
	if len(prog.Inst) > maxProgram {
		return nil, fmt.Errorf("the pattern compiles to %d instructions, at most %d are allowed: use "+
			"smaller repeat counts", len(prog.Inst), maxProgram)
	}
	return regexp.Compile(pattern)
}
