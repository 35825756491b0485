package runner

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/internal/stdio"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// confinement is what the policy lets the command and the contract's checks
// touch: their sandbox, and the account of what it denied.
type confinement struct {
	log      *evidence.Log
	settings sandbox.Settings
	file     *policy.File
	checked  *policy.Set // for the contract's checks; nil without a policy
	isolate  bool        // a PID namespace in every mode
	shared   bool        // the command has our own terminal
	env      []string
	workdir  func() (string, error)
	hidden   []string // directories of evidence
	protect  []string
	observed func() bool                  // whether there is a kernel layer
	reach    func() []string              // what the agent reports to
	runsAs   func() *sandbox.User         // who the command became; nil: who it was
	cgroup   func() string                // the session's cgroup2 directory, or empty
	rules    func() (schema.Policy, bool) // what is in force in the gateway

	resolved *sandbox.Profile // what the settings mean here
	profile  *sandbox.Profile // the same, or nil where nothing is restricted
	box      *sandbox.Sandbox // the command's
	layers   []sandbox.Layer
	denials  *denials
	reasons  []schema.Reason
}

func newConfinement(log *evidence.Log, opt Options, spec *Spec) *confinement {
	c := &confinement{
		log: log, file: opt.Policy, settings: spec.sandboxSettings(opt.Policy), isolate: spec.Isolate == IsolatePID,
		env: spec.environ(), workdir: spec.workdir, hidden: opt.Evidence,
	}
	c.shared = !spec.Capture && slices.ContainsFunc([]*os.File{opt.Stdin, opt.Stdout, opt.Stderr}, stdio.IsTerminal)
	if len(c.hidden) == 0 && opt.ScratchDir != "" {
		c.hidden = []string{opt.ScratchDir}
	}
	if spec.Policy != "" {
		if at, err := filepath.Abs(spec.Policy); err == nil {
			c.protect = append(c.protect, at)
		}
	}
	if opt.Policy != nil {
		c.checked = policy.NewSet(opt.Policy)
	}
	c.denials = newDenials(log, opt.OnDenied)
	return c
}

// open decides what the policy means here, before anything of the run's own
// could change it.
func (c *confinement) open(context.Context) error {
	dir, err := c.workdir()
	if err != nil {
		return sandboxError("workdir_unusable", err)
	}
	home, _ := os.UserHomeDir()
	c.profile, err = c.settings.Resolve(sandbox.Context{
		Dir: dir, Home: home, Env: c.env, Evidence: c.hidden, Protect: c.protect, IsolatePID: c.isolate,
		NoTyping: c.shared && sandbox.CanType(),
	})
	if err != nil {
		hint := "correct the policy; assay-run policy check FILE explains it"
		if unknown := new(sandbox.UserError); errors.As(err, &unknown) {
			hint = "name a user of this host, or give a uid, with --user or in the policy"
		}
		return &runError{source: schema.SourceSandbox, exit: ExitRunner, ResultError: schema.ResultError{
			Code: "policy_unusable", Message: err.Error(), Hint: hint,
		}}
	}
	c.resolved = c.profile
	if !c.profile.Restricted() {
		c.openToAll()
		if !c.profile.NoTyping {
			c.profile = nil
			return nil
		}
		c.profile.OnUnavailable = sandbox.Degrade // nobody asked for it
	}
	c.denials.profile = c.profile
	if err := c.document(); err != nil {
		return sandboxError("policy_not_recorded", err)
	}
	return nil
}

// shape gives the command its environment.
func (c *confinement) shape(cmd *exec.Cmd) (err error) {
	if c.profile == nil {
		if c.file != nil {
			cmd.Env = c.settings.Env.Apply(cmd.Env)
		}
		return nil
	}
	if c.reach != nil {
		c.profile.Reach(c.reach()...)
	}
	if c.box, err = sandbox.New(c.profile, sandbox.Options{
		Decided: c.denials.decided, Needs: c.needs(), Cgroup: c.cgroup(), Blocked: c.denials.blocked, Audit: true,
	}); err != nil && !c.profile.Restricted() {
		c.reasons = append(c.reasons, schema.Reason{
			Subject: "sandbox", Code: "terminal_exposed", Message: "the command could type into the terminal that it shared with the runner: " + err.Error(),
			Remedy: "run without --no-capture",
		})
		c.profile, c.box = nil, nil
		return nil
	} else if err != nil {
		return sandboxError("sandbox_failed", err)
	}
	cmd.Env = c.box.Environ(cmd.Env)
	return nil
}

// user is who the command and the checks run as; nil is the user of the runner.
func (c *confinement) user() *sandbox.User {
	if c.profile == nil {
		return nil
	}
	return c.profile.User
}

// checkUser is who the checks of a contract run as; nil is the user of the runner.
func (c *confinement) checkUser() *sandbox.User {
	if c.resolved == nil { // nothing ran
		return nil
	}
	return c.checkProfile().User
}

// checkProfile is what checks run in. They run as who the command became: what that
// user wrote is not for root to execute.
func (c *confinement) checkProfile() *sandbox.Profile {
	if u := c.runsAs(); u != nil && !c.resolved.Restricted() {
		return c.resolved.As(u)
	}
	return c.resolved
}

// needs are what a command of another user is to be able to use: its workspace,
// what the agent reports to, and this program, which agents call.
func (c *confinement) needs() []sandbox.Need {
	needs := []sandbox.Need{{Path: c.profile.Dir, Mode: unix.R_OK | unix.X_OK}}
	if c.profile.Mode != sandbox.ReadOnly {
		needs[0].Mode |= unix.W_OK
	}
	if c.reach != nil {
		for _, path := range c.reach() {
			needs = append(needs, sandbox.Need{Path: path, Mode: unix.W_OK})
		}
	}
	if self, err := os.Executable(); err == nil {
		needs = append(needs, sandbox.Need{Path: self, Mode: unix.X_OK})
	}
	return needs
}

// start starts the command, inside where there is an inside.
func (c *confinement) start(cmd *exec.Cmd, start func(*exec.Cmd) error, detached bool) (*exec.Cmd, error) {
	if c.box == nil {
		return cmd, start(cmd)
	}
	inner, err := c.box.Start(cmd, start, detached)
	c.layers = c.box.Layers()
	c.unusable()
	if err != nil && inner != nil && !detached {
		_ = inner.Wait()
	}
	return inner, confined(err)
}

// confined sorts what the sandbox lacks from other reasons not to start.
func confined(err error) error {
	var missing *sandbox.LayerError
	if errors.As(err, &missing) {
		return &runError{source: schema.SourceSandbox, exit: ExitRunner, ResultError: schema.ResultError{
			Code: "layer_unavailable", Message: "nothing was run: " + err.Error(), Hint: missing.Remedy,
		}}
	}
	var port *sandbox.PortError
	if errors.As(err, &port) {
		return &runError{source: schema.SourceSandbox, exit: ExitRunner, ResultError: schema.ResultError{
			Code: "local_port_unavailable", Message: "nothing was run: " + err.Error(), Hint: port.Remedy(),
		}}
	}
	return err
}

// bind tells of kernel events whether the policy denied them, after next.
func (c *confinement) bind(next func(*kernel.Event, *schema.KernelEvent)) func(*kernel.Event, *schema.KernelEvent) {
	return func(ev *kernel.Event, e *schema.KernelEvent) {
		next(ev, e)
		c.denials.event(e)
	}
}

// close ends what serves the command, and writes down what was enforced.
func (c *confinement) close(*schema.Result) error {
	if c.box != nil {
		c.box.Close()
		c.denials.settle(c.box.Untold())
		c.denials.refused(c.box.Refusals())
	}
	if c.profile == nil {
		return nil
	}
	c.explain()
	missing := c.denials.close()
	return errors.Join(missing, c.document())
}
