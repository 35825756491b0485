package runner

import (
	"context"
	"io"
	"os"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/sandbox"
)

// StrictExecutor runs checks of a contract without a run, as [Spec.StrictChecks] has
// them run. It is not safe for concurrent use.
type StrictExecutor struct {
	dir     string
	session *cgroup.Session
	profile *sandbox.Profile
	checks  *strictChecks
}

// NewStrictExecutor is for checks in the working directory of spec, with its variables
// and groups of session. The guard removes the checks' directories if we are killed.
func NewStrictExecutor(spec *Spec, session *cgroup.Session, guard *cgroup.Guard) (*StrictExecutor, error) {
	strict := *spec
	strict.RunID, strict.StrictChecks = session.RunID(), true
	dir, err := strict.workdir()
	if err != nil {
		return nil, err
	}
	home, _ := os.UserHomeDir()
	settings := strict.sandboxSettings(nil)
	profile, err := settings.Resolve(sandbox.Context{Dir: dir, Home: home, Env: strict.environ()})
	if err != nil {
		return nil, err
	}
	us := func() *sandbox.User { return nil }
	return &StrictExecutor{dir, session, profile, newStrictChecks(&strict, guard.Inherit, us)}, nil
}

// Run implements [contract.Executor].
func (e *StrictExecutor) Run(ctx context.Context, check contract.Check, index int, out io.Writer) (contract.ExitStatus, error) {
	fresh, env, err := e.checks.open()
	if err != nil {
		return contract.ExitStatus{}, err
	}
	defer e.checks.close(fresh)
	return contract.Shell{Dir: e.dir, Env: env, Group: func(name string) (contract.Group, error) {
		group, err := e.session.NewGroup(name)
		if err != nil {
			return nil, err
		}
		return &confinedGroup{Group: group, profile: e.profile.Strict(fresh)}, nil
	}}.Run(ctx, check, index, out)
}

// Close removes what is left of the checks' directories.
func (e *StrictExecutor) Close() { e.checks.end() }
