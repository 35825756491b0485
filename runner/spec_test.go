package runner_test

import (
	"testing"

	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/specfile"
)

// TestRunValidates: a library user need not call Validate first.
func TestRunValidates(t *testing.T) {
	for _, s := range []*specfile.Spec{{},
		{RunID: "x", Command: []string{"true"}, AgentShim: "nothing-like-it", Kernel: specfile.KernelOff}} {
		res, err := runner.Run(t.Context(), s, runner.Options{})
		if err == nil || res == nil || res.Outcome != "infra_error" || *res.RunnerExitCode != schema.ExitRunner ||
			res.Error.Message != err.Error() {
			t.Errorf("%+v: %+v, %v", s, res, err)
		}
	}
}
