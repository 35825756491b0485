package policyfile

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-run/assay-run/schema/config"
)

// Kinds of rules, the "rule" key.
const (
	DenyTool              = "deny_tool"                // the target must not be called
	DenyToolParam         = "deny_tool_param"          // not with this value in the parameter
	DenyToolParamMatching = "deny_tool_param_matching" // not with a parameter that matches
	AllowToolParam        = "allow_tool_param"         // only with one of the values
	DenyKeyword           = "deny_keyword"             // not with the word anywhere
	RateLimitTool         = "rate_limit_tool"          // not more often than this
	RequireState          = "require_state"            // only in this state of the run
)

// kinds lists the kinds of rules.
var kinds = []string{DenyTool, DenyToolParam, DenyToolParamMatching, AllowToolParam, DenyKeyword, RateLimitTool,
	RequireState}

// Limits of a rule, in bytes unless noted.
const (
	MaxName       = 128 // of a rule, a tool or a parameter
	maxPattern    = 4 << 10
	maxProgram    = 4096 // instructions of a compiled pattern
	maxValue      = 4 << 10
	maxValues     = 1024
	maxRateLimit  = 100_000 // calls in a window
	defaultWindow = time.Minute
	maxWindow     = 24 * time.Hour
)

// ErrRule is wrapped by every error about a rule that cannot be used at all.
var ErrRule = errors.New("bad rule")

// Rule forbids calls. Which fields it uses depends on Rule:
//
//	deny_tool                 target
//	deny_tool_param           target, key; value: a text in the parameter equals it;
//	                          pattern: one contains it; value_path: one is a path at
//	                          or below it
//	deny_tool_param_matching  target, key, pattern (RE2)
//	allow_tool_param          target, key; value: the parameter must be one of them;
//	                          value_path: or a path at or below one of them
//	deny_keyword              value, target (every tool when empty)
//	rate_limit_tool           target, value: "10" a minute, or "10/30s"
//	require_state             target, key, value: the state must be one of them
//
// Target is a tool's name or "*". Key names a parameter, or is a JSON pointer if it starts with a slash. If the
// parameters are a list, a name is looked up in each element. Texts and keys in lists and objects below the parameter
// count as part of it.
//
// A target is compared without regard to case, surrounding space and invisible characters, since a server may do so.
// To deny, texts are compared without invisible characters, after Unicode normalisation (NFC) and case folding, and
// numbers as numbers. To allow, a text must be equal after normalisation. A path is compared by its parts, with "."
// and ".." resolved; links and mounts are not followed, and a relative path that leaves its directory with ".." is
// denied.
type Rule struct {
	Name      string `json:"name"`
	Rule      string `json:"rule"`
	Target    string `json:"target"`
	Key       string `json:"key"`
	Pattern   string `json:"pattern"`
	Value     Values `json:"value"`
	ValuePath Values `json:"value_path"`
}

// Check returns what makes a rule unusable. The error wraps ErrRule. A pattern that cannot be used is not a fault: such
// a rule denies every call of its target.
func (r *Rule) Check() error {
	err := r.faults()
	if err == nil && r.Rule == RateLimitTool {
		_, _, err = r.Rate()
	}
	if err != nil {
		return fmt.Errorf("%w %.*q: %w", ErrRule, MaxName, r.Name, err)
	}
	return nil
}

// faults returns what makes a rule unusable.
func (r *Rule) faults() error {
	needs := func(what string, ok bool) error {
		if ok {
			return nil
		}
		return fmt.Errorf("%s needs %s", r.Rule, what)
	}
	var errs []error
	if r.Name == "" || len(r.Name) > MaxName {
		errs = append(errs, fmt.Errorf("a rule needs a name of 1 to %d bytes", MaxName))
	}
	if !slices.Contains(kinds, r.Rule) {
		return errors.Join(append(errs,
			fmt.Errorf("unknown rule %.100q; the rules are %s", r.Rule, strings.Join(kinds, ", ")))...)
	}
	if r.Rule != DenyKeyword {
		errs = append(errs, needs("a target: a tool's name or \"*\"", r.Target != ""))
	}
	switch r.Rule {
	case DenyToolParam:
		errs = append(errs, needs("a key", r.Key != ""),
			needs("a value, a value_path or a pattern", len(r.Value)+len(r.ValuePath)+len(r.Pattern) > 0))
	case AllowToolParam:
		errs = append(errs, needs("a key", r.Key != ""),
			needs("a value or a value_path", len(r.Value)+len(r.ValuePath) > 0))
	case DenyToolParamMatching:
		errs = append(errs, needs("a key", r.Key != ""), needs("a pattern", r.Pattern != ""))
	case DenyKeyword:
		errs = append(errs, needs("a value", len(r.Value) > 0))
	case RequireState:
		errs = append(errs, needs("a key", r.Key != ""))
	}
	if r.Rule == DenyToolParam || r.Rule == DenyKeyword {
		errs = append(errs, needs("values that are not empty", !slices.Contains(r.Value, "")))
	}
	if r.Pattern != "" && r.Rule != DenyToolParamMatching && r.Rule != DenyToolParam {
		errs = append(errs, fmt.Errorf("%s does not use pattern", r.Rule))
	}
	if len(r.ValuePath) > 0 && r.Rule != DenyToolParam && r.Rule != AllowToolParam {
		errs = append(errs, fmt.Errorf("%s does not use value_path", r.Rule))
	}
	if slices.ContainsFunc(r.ValuePath, func(p string) bool { return !path.IsAbs(p) }) {
		errs = append(errs, errors.New("a value_path must be an absolute path"))
	}
	if r.Rule == DenyToolParam && len(r.Pattern) > maxPattern {
		errs = append(errs, fmt.Errorf("a pattern must have at most %d bytes", maxPattern))
	}
	if r.Rule == DenyTool && (r.Key != "" || len(r.Value) > 0) {
		errs = append(errs, fmt.Errorf("%s does not use key or value", r.Rule))
	}
	if len(r.Value)+len(r.ValuePath) > maxValues ||
		slices.ContainsFunc(slices.Concat(r.Value, r.ValuePath), func(v string) bool {
			return len(v) > maxValue
		}) {
		errs = append(errs, fmt.Errorf("a rule must have at most %d values of %d bytes each", maxValues, maxValue))
	}
	if len(r.Target) > MaxName || len(r.Key) > MaxName {
		errs = append(errs, fmt.Errorf("target and key must have at most %d bytes", MaxName))
	}
	return errors.Join(errs...)
}

// Rate parses the value of a rate_limit_tool: "10" (a minute) or "10/30s".
func (r *Rule) Rate() (limit int, every time.Duration, err error) {
	const want = `rate_limit_tool needs a value such as 10 (a minute) or "10/30s"`
	if len(r.Value) != 1 {
		return 0, 0, errors.New(want)
	}
	count, per, given := strings.Cut(r.Value[0], "/")
	limit, err = strconv.Atoi(strings.TrimSpace(count))
	if err != nil || limit < 0 || limit > maxRateLimit {
		return 0, 0, fmt.Errorf("%s, with 0 to %d calls", want, maxRateLimit)
	}
	every = defaultWindow
	if given {
		every, err = config.ParseDuration(strings.TrimSpace(per))
		if err != nil || every < time.Millisecond || every > maxWindow {
			return 0, 0, fmt.Errorf("%s, with a window of 1ms to %v", want, maxWindow)
		}
	}
	return limit, every, nil
}

// CompilePattern compiles the pattern of a deny_tool_param_matching. It limits the work of a match, which is linear in
// the text's size times the program's size.
func CompilePattern(pattern string) (*regexp.Regexp, error) {
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
