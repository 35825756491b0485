package view

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// writeSecrets writes the receipt of the redaction.
func (s *Summary) writeSecrets(w io.Writer) {
	r := s.Redaction
	if r == nil { // an older recorder
		return
	}
	switch r.Mode {
	case schema.RedactionEnabled:
		text := "none found"
		if r.RedactedCount > 0 {
			text = fmt.Sprintf("%d redacted%s", r.RedactedCount, counts(r.ByRule))
		}
		if r.KeyID != "" {
			text += fmt.Sprintf("; key %s (%s)", Clean(r.KeyID), Clean(r.KeyScope))
		}
		fmt.Fprintf(w, "%-10s %s\n", "secrets", text)
	case schema.RedactionDisabled:
		fmt.Fprintf(w, "%-10s %s\n", "secrets", "recorded as they were: redaction was disabled")
	default:
		fmt.Fprintf(w, "%-10s %s\n", "secrets", "redaction "+Clean(r.Mode)+": the recorder's own receipt is lost")
	}
	for _, m := range r.Removals {
		when := "before the bundle was sealed"
		if m.From != "" {
			when = "later, out of " + Clean(m.From)
		}
		fmt.Fprintf(w, "%-10s %d redacted %s%s\n", "", m.RedactedCount, when, counts(m.ByRule))
		if len(m.Dropped) > 0 {
			fmt.Fprintf(w, "%-10s dropped, because a secret could not be removed: %s\n", "",
				Clean(strings.Join(m.Dropped, ", ")))
		}
	}
	if len(r.NotSearched) > 0 {
		fmt.Fprintf(w, "%-10s not searched: %s\n", "", Clean(strings.Join(r.NotSearched, ", ")))
	}
}
