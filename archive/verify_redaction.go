package archive

import (
	"maps"
	"slices"

	"github.com/assay-run/assay-run/schema"
)

// redaction checks that the receipt adds up, and that what it says was left out is not
// there.
func (v *verifier) redaction(f facts) {
	r := f.health.Redaction
	if r == nil {
		return
	}
	adds := func(what string, total uint64, parts map[string]uint64, by string) {
		if n := sum(slices.Collect(maps.Values(parts))...); n.Cmp(sum(total)) != 0 {
			v.report.add(problem(CodeCounts, schema.HealthPath, "%s is %d, and its %s adds up to %d", what, total, by, n))
		}
	}
	adds("redacted_count", r.RedactedCount, r.ByRule, "by_rule")
	adds("redacted_count", r.RedactedCount, r.ByField, "by_field")
	if f.run != nil && f.run.Redaction == schema.RedactionDisabled && r.Mode == schema.RedactionEnabled {
		v.report.add(problem(CodeHealth, schema.HealthPath, "redaction is enabled, and %s says that it was disabled", schema.RunPath))
	}
	for _, removal := range r.Removals {
		adds("redacted_count of a removal", removal.RedactedCount, removal.ByRule, "by_rule")
		adds("redacted_count of a removal", removal.RedactedCount, removal.ByField, "by_field")
		for _, path := range removal.Dropped {
			if _, there := v.sizes[path]; there && (!isLayer(path) || v.count(path) > 0) {
				v.report.add(problem(CodeHealth, schema.HealthPath, "%.200q was dropped since it held a secret, and is in the bundle", path))
			}
		}
	}
}
