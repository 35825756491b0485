package runner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// RequireComplete asks for a complete kernel layer, at the end of the run too.
const RequireComplete = "complete"

// Requirements lists what a Spec may require of the evidence.
var Requirements = []string{RequireComplete}

func (s *Spec) validateRequire(add addError) {
	for _, r := range s.Require {
		if !slices.Contains(Requirements, r) {
			add(ErrChoice, "requirement %q (%s)", r, strings.Join(Requirements, ", "))
		}
	}
}

// observes tells whether a run that cannot observe is not to start.
func (s *Spec) observes() bool {
	return s.Kernel == KernelRequire || slices.Contains(s.Require, RequireComplete)
}

// unmet is why the evidence is not what the run required, nil when it is.
func unmet(require []string, kernel string, h *schema.ObservationHealth) *schema.ResultError {
	asked := ""
	switch {
	case slices.Contains(require, RequireComplete):
		asked = "--require complete"
	case kernel == KernelRequire:
		asked = "--kernel require"
	}
	if asked == "" || h.KernelLayer == schema.Complete {
		return nil
	}
	why, hint := Incomplete(h)
	return &schema.ResultError{
		Code: "kernel_layer_incomplete", Hint: hint,
		Message: fmt.Sprintf("the kernel layer is not complete, as %s asks: %s", asked, why),
	}
}

// Incomplete says in one line why the kernel layer is less than complete, and
// what to do about it. Both are empty for a complete layer.
func Incomplete(h *schema.ObservationHealth) (why, remedy string) {
	if h.KernelLayer == schema.Complete {
		return "", ""
	}
	n := 0
	for _, r := range h.Reasons {
		if r.Subject != "kernel" {
			continue
		}
		if n++; n == 1 {
			why = r.Message
		}
		if remedy == "" {
			remedy = r.Remedy
		}
	}
	if n > 1 {
		why += fmt.Sprintf(" (and %d more)", n-1)
	}
	return why, remedy
}
