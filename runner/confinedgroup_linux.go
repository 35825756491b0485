package runner

import (
	"context"
	"os/exec"

	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/sandbox"
)

// group puts the checks that start in g into a sandbox of the same profile, each
// in one of its own.
func (c *confinement) group(g contract.Group) contract.Group {
	if c.profile == nil {
		return g
	}
	return &confinedGroup{Group: g, profile: c.profile}
}

type confinedGroup struct {
	contract.Group
	profile *sandbox.Profile
	box     *sandbox.Sandbox
}

func (g *confinedGroup) Start(cmd *exec.Cmd) (err error) {
	if g.box, err = sandbox.New(g.profile, sandbox.Options{EndWithCommand: true}); err != nil {
		return err
	}
	cmd.Env = g.box.Environ(cmd.Env)
	inner, err := g.box.Start(cmd, g.Group.Start, false)
	if err != nil {
		g.box.Close()
		if inner != nil {
			_ = inner.Wait()
		}
		return err
	}
	*cmd = *inner
	return nil
}

func (g *confinedGroup) Wait(ctx context.Context) error {
	err := g.Group.Wait(ctx)
	g.box.Close()
	return err
}
