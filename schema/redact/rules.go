package redact

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// Rule is a user's pattern for secrets.
type Rule struct {
	Name    string
	pattern *regexp.Regexp
}

// Bounds of a file of rules. RE2 patterns take time in proportion to the text, and
// to their own length.
const (
	MaxRules     = 64 << 10 // bytes of the file
	maxRuleCount = 100
	maxPattern   = 1 << 10 // bytes of one pattern
	maxRuleName  = 32
)

// ParseRules reads rules, one a line: a name of lower-case letters, digits, '-' and
// '_', white space, and an RE2 pattern. The pattern's first group matches the secret; without a group, the whole
// match is the secret. Empty lines and lines that begin with '#' are ignored. The error names the line.
func ParseRules(text []byte) ([]Rule, error) {
	if len(text) > MaxRules {
		return nil, fmt.Errorf("more than %d bytes of rules", MaxRules)
	}
	var rules []Rule
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, pattern := line, ""
		if cut := strings.IndexAny(line, " \t"); cut > 0 {
			name, pattern = line[:cut], strings.TrimSpace(line[cut:])
		}
		rule, err := ParseRule(name, pattern)
		if err == nil && len(rules) == maxRuleCount {
			err = fmt.Errorf("more than %d rules", maxRuleCount)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// ParseRule makes one rule of its name and its pattern.
func ParseRule(name, pattern string) (Rule, error) {
	switch {
	case pattern == "":
		return Rule{}, fmt.Errorf("%.40q is a name without a pattern", name)
	case !isRule(name) || len(name) > maxRuleName:
		return Rule{}, fmt.Errorf("the name %.40q is not 1 to %d lower-case letters, digits, '-' and '_'", name,
			maxRuleName)
	case len(pattern) > maxPattern:
		return Rule{}, fmt.Errorf("the pattern has %d bytes, at most %d are allowed", len(pattern), maxPattern)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return Rule{}, err
	}
	if re.MatchString("") {
		return Rule{}, fmt.Errorf("the pattern %.80q matches the empty text, and so everywhere", pattern)
	}
	return Rule{name, re}, nil
}

// matches finds a rule's matches in one text.
type matches struct {
	re   *regexp.Regexp
	b    []byte
	all  [][]int // those that are ahead
	read bool
}

func (m *matches) next(from int) (found, bool) {
	if !m.read {
		m.all, m.read = m.re.FindAllSubmatchIndex(m.b, -1), true
	}
	for ; len(m.all) > 0; m.all = m.all[1:] {
		at := m.all[0]
		if len(at) >= 4 && at[2] >= 0 {
			at = at[2:4]
		}
		// What another finding has taken the start of is a finding all the same.
		if start := max(at[0], from); start < at[1] {
			return found{start: start, end: at[1]}, true
		}
	}
	return found{}, false
}

// heldRules is how many bytes at the end of b a rule may still match: its last line.
func heldRules(b []byte) int { return len(b) - bytes.LastIndexByte(b, '\n') - 1 }
