package runner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
)

// RequireComplete asks for a complete kernel layer, at the end of the run too.
const RequireComplete = "complete"

// RequireUser and RequireSandbox ask for at least that tamper_resistance.
const (
	RequireUser    = "tamper_resistance=" + schema.ResistsUser
	RequireSandbox = "tamper_resistance=" + schema.ResistsSandbox
)

// Requirements lists what a Spec may require of the evidence.
var Requirements = []string{RequireComplete, RequireUser, RequireSandbox}

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
	for _, want := range []string{RequireSandbox, RequireUser} {
		if slices.Contains(require, want) && h.TamperResistance != schema.ResistsSandbox && "tamper_resistance="+h.TamperResistance != want {
			return &schema.ResultError{
				Code: "evidence_reachable", Hint: "run with --mode workspace-write or read-only, or, as root, with --user",
				Message: fmt.Sprintf("the command could reach the recorder: tamper_resistance is %s, and --require asks for %s", cmp.Or(h.TamperResistance, schema.ResistsNone), want),
			}
		}
	}
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
		Message: fmt.Sprintf("the kernel layer is not complete, but %s requires it: %s", asked, why),
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
