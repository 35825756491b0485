package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"

	"github.com/assay-run/assay-run/runner/contract"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// CheckTool is the tool that a policy's rules for the contract's checks name. Its
// parameter is command.
const CheckTool = "outcome_check"

// permit is nil where the policy lets a check of the contract run. Only rules that name
// CheckTool hold for checks: the others are about what the agent calls.
func (c *confinement) permit(command string) error {
	if c.checked == nil {
		return nil
	}
	params, _ := json.Marshal(map[string]string{"command": command})
	found := c.checked.CheckNamed(&policy.Call{Tool: CheckTool, Params: params, Now: c.log.Elapsed()})
	if len(found) == 0 {
		return nil
	}
	v := found[0]
	c.denials.tell(schema.PolicyEvent{
		SourceEventType: CheckTool, Source: "policy", Tool: CheckTool, Decision: "deny", TNS: c.log.Now(),
		Rule: v.Rule, Operation: sandbox.OpExec, Target: command,
	})
	return fmt.Errorf("the policy denies this check (%s): %s", v.Rule, v.Reason)
}

// group puts the checks that start in g into a sandbox of the same profile, each
// in one of its own.
func (c *confinement) group(g contract.Group) contract.Group {
	p := c.checkProfile()
	if !p.Restricted() { // checks have no terminal
		return g
	}
	return &confinedGroup{Group: g, profile: p.ForCheck()}
}

// strictly puts the checks that start in a group into a sandbox where they find
// nothing of what the command left but what it made of the workspace.
func (c *confinement) strictly(fresh string) func(contract.Group) contract.Group {
	return func(g contract.Group) contract.Group {
		return &confinedGroup{Group: g, profile: c.checkProfile().Strict(fresh)}
	}
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
