package policy

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// check finds what makes a rule unusable.
func (r *Rule) check() error {
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
	if !slices.Contains(Kinds, r.Rule) {
		return errors.Join(append(errs,
			fmt.Errorf("unknown rule %.100q; the rules are %s", r.Rule, strings.Join(Kinds, ", ")))...)
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
