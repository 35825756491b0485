package runner

import "github.com/assay-run/assay-run/schema/redact"

// Secrets makes the secrets of the command's environment known to r: the values
// of variables whose names match one of the patterns, such as
// redact.DefaultEnv. It names those variables whose values are too short to be
// told from other text.
func (s *Spec) Secrets(r *redact.Redactor, patterns []string) (tooShort []string) {
	return r.AddEnv(s.environ(), patterns)
}
