package runner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// unmet returns why the evidence does not meet the run's requirements, or nil.
func unmet(require []string, kernel string, h *schema.ObservationHealth) *schema.ResultError {
	for _, want := range []string{specfile.RequireSandbox, specfile.RequireUser} {
		if slices.Contains(require, want) && h.TamperResistance != schema.ResistsSandbox &&
			"tamper_resistance="+h.TamperResistance != want {
			return &schema.ResultError{
				Code: "evidence_reachable",
				Hint: "run with --mode workspace-write or read-only, or, as root, with --user",
				Message: fmt.Sprintf("the command could reach the recorder: tamper_resistance is %s, and "+
					"--require asks for %s", cmp.Or(h.TamperResistance, schema.ResistsNone), want),
			}
		}
	}
	if slices.Contains(require, specfile.RequireModelPath) && h.ModelPath != schema.ModelPathOnly &&
		h.ModelPath != schema.ModelPathAlone {
		e := &schema.ResultError{
			Code: "model_path_not_alone",
			Message: fmt.Sprintf("model_path is %s, and --require asks for %s", cmp.Or(h.ModelPath, schema.Unknown),
				schema.ModelPathAlone),
		}
		for _, r := range h.Reasons {
			if strings.HasPrefix(r.Code, "model_path_") || strings.HasPrefix(r.Code, "model_bypass_") {
				e.Message, e.Hint = e.Message+": "+r.Message, r.Remedy
				break
			}
		}
		return e
	}
	asked := ""
	switch {
	case slices.Contains(require, specfile.RequireComplete):
		asked = "--require complete"
	case kernel == specfile.KernelRequire:
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

// Incomplete returns in one line why the kernel layer is less than complete, and what to do about it. Both are empty
// for a complete layer.
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
