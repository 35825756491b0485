//go:build !linux

package runner

import (
	"runtime"

	"github.com/assay-run/assay-run/schema"
)

// Diagnose tells that runs need Linux.
func Diagnose(string) Diagnosis {
	findings := []Finding{{
		Subject: "run", Name: "platform", State: StateMissing,
		Reasons: []schema.Reason{{Subject: "run", Code: "not_linux", Message: ErrPlatform.Error(),
			Remedy: "run it on Linux"}},
	}}
	return Diagnosis{Platform: runtime.GOOS, Findings: findings, Fixes: fixes(findings)}
}
