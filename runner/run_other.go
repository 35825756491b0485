//go:build !linux

package runner

import (
	"context"
	"io"
	"runtime"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// Run fails with ErrPlatform. Nothing is recorded.
func Run(_ context.Context, spec *specfile.Spec, _ Options) (*schema.Result, error) {
	return refused(spec, "not_linux", ErrPlatform)
}

// RecoverBooks does nothing.
func RecoverBooks(context.Context, string) ([]string, error) { return nil, nil }

// Contained is empty on this operating system.
type Contained struct{ read files }

// Contain does nothing.
func Contain(*specfile.Spec, Options) *Contained { return &Contained{} }

// Begin does nothing.
func (*Contained) Begin() {}

// Close does nothing.
func (*Contained) Close() {}

// StrictExecutor is unavailable on this operating system.
type StrictExecutor struct{}

// NewStrictExecutor fails with ErrPlatform.
func NewStrictExecutor(*specfile.Spec, *cgroup.Session, *cgroup.Guard, *sandbox.Away) (*StrictExecutor, error) {
	return nil, ErrPlatform
}

// Run fails with ErrPlatform.
func (e *StrictExecutor) Run(context.Context, schema.Check, int, io.Writer) (contract.ExitStatus, error) {
	return contract.ExitStatus{}, ErrPlatform
}

// Close does nothing.
func (e *StrictExecutor) Close() {}

// Diagnose reports that runs need Linux.
func Diagnose(string) Diagnosis {
	findings := []Finding{{
		Subject: "run", Name: "platform", State: StateMissing,
		Reasons: []schema.Reason{{Subject: "run", Code: "not_linux", Message: ErrPlatform.Error(),
			Remedy: "run it on Linux"}},
	}}
	return Diagnosis{Platform: runtime.GOOS, Findings: findings, Fixes: fixes(findings)}
}

// CheckDescriptors checks nothing on this operating system.
func CheckDescriptors(bool) error { return nil }
