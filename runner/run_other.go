//go:build !linux

package runner

import (
	"context"
	"errors"

	"github.com/assay-run/assay-run/schema"
)

// ErrPlatform is what Run returns where runs cannot be contained.
var ErrPlatform = errors.New("assay-run runs commands on Linux only; verify, inspect, events and recover work here")

// Run fails with ErrPlatform and records it: the kernel layer is absent, as is
// everything else.
func Run(_ context.Context, spec *Spec, _ Options) (*schema.Result, error) {
	source, exit := schema.SourceRunner, ExitRunner
	return &schema.Result{
		Schema: schema.ResultV0, RunID: spec.RunID, Outcome: schema.OutcomeInfraError, ErrorSource: &source,
		Error: &schema.ResultError{Code: "not_linux", Message: ErrPlatform.Error()}, RunnerExitCode: &exit, LimitsHit: []string{}, Stdio: schema.Stdio{Mode: schema.StdioNone},
	}, ErrPlatform
}
