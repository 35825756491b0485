package runner

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/assay-run/assay-run/runner/hook"
	"github.com/assay-run/assay-run/runner/model"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// ErrAgent is wrapped by errors about Spec.Agent and Spec.AgentFile.
var ErrAgent = errors.New("agent")

// LoadAgent reads the recipe of the agent, and sets what the recipe sets and the spec does not: Command, AgentShim and
// Model.Gateway. What else the recipe says applies below the policy. LoadAgent does nothing the second time.
func (s *Spec) LoadAgent() (err error) {
	switch {
	case s.Recipe != nil || s.Agent == "" && s.AgentFile == "":
		return nil
	case s.Agent != "" && s.AgentFile != "":
		return fmt.Errorf("%w: both a name and a file are given; give one", ErrAgent)
	case s.Agent != "":
		s.Recipe, err = agents.ByName(s.Agent)
	default:
		s.Recipe, err = agents.Load(s.AgentFile)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAgent, err)
	}
	r := s.Recipe
	if len(s.Command) == 0 {
		s.Command = slices.Clone(r.Command)
	}
	if s.AgentShim == ShimNone && r.Reports != "" && !slices.Contains(s.Flags, "agent-shim") {
		s.AgentShim = r.Reports
	}
	if !s.Model.On() && !slices.Contains(s.Flags, "model-gateway") {
		s.Model.Gateway = s.hasRoute()
	}
	return nil
}

// hasRoute reports whether there is a key for one of the recipe's routes.
func (s *Spec) hasRoute() bool { return slices.ContainsFunc(sortedKeys(s.Recipe.Routes), s.hasKey) }

// hasKey reports whether the spec or the environment has a key for a route.
func (s *Spec) hasKey(route string) bool {
	return s.Model.Keys[route] != "" || slices.ContainsFunc(model.KeyVariables(route), func(name string) bool {
		return strings.TrimSpace(os.Getenv(name)) != ""
	})
}

// ownLogin reports whether the agent talks to its provider with a login of its own.
func (s *Spec) ownLogin() bool {
	if s.Model.Replay != "" {
		return false
	}
	return !s.Model.On() || !slices.ContainsFunc(sortedKeys(s.Recipe.Routes), func(route string) bool {
		return s.hasKey(route) && s.Model.Keys[route] != ModelKeyAgent
	})
}

// agentSettings is what the recipe says of the sandbox.
func (s *Spec) agentSettings() (settings sandboxfile.Settings) {
	r := s.Recipe
	if r == nil {
		return settings
	}
	settings = sandboxfile.Settings{Mode: sandboxfile.WorkspaceWrite, Home: sandboxfile.HomePrivate}
	if s.ownLogin() {
		settings.Login = r.Login
		if len(r.Domains) > 0 {
			settings.Network = &sandboxfile.Network{AllowedDomains: r.Domains}
		}
	}
	for _, name := range agents.Names() {
		if other, err := agents.ByName(name); err == nil && other.Login != "" && other.Login != r.Login {
			settings.Hidden = append(settings.Hidden, other.Login)
		}
	}
	return settings
}

// ArgumentsOmitted returns the arguments of the recipe that the command does not get, as no word of it is the agent's
// program.
func (s *Spec) ArgumentsOmitted() []string {
	r := s.Recipe
	if r == nil || r.Program(s.Command) >= 0 {
		return nil
	}
	omitted := slices.Clone(r.Arguments)
	for _, route := range sortedKeys(r.Routes) {
		if s.Model.On() && s.hasKey(route) {
			omitted = append(omitted, r.Routes[route].Arguments...)
		}
	}
	return omitted
}

// appliedAgent is what the recipe sets, for run.json; nil: there is none.
func (s *Spec) appliedAgent(settings *sandboxfile.Settings) *schema.AppliedAgent {
	r := s.Recipe
	if r == nil {
		return nil
	}
	a := &schema.AppliedAgent{Name: r.Name, Path: s.AgentFile, From: schema.FromSpec,
		Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(r.Text)), Mode: settings.Mode, Home: settings.Home,
		Network: settings.NetworkMode(), ModelGateway: s.hasRoute(), ArgumentsOmitted: s.ArgumentsOmitted()}
	if slices.Contains(s.Flags, "agent") || slices.Contains(s.Flags, "agent-file") {
		a.From = schema.FromFlag
	}
	return a
}

// wear sets the command's variables and arguments, and has it started by "assay-run hook", which writes the files, if
// there are any. Call it when the command's environment is complete.
func wear(o hook.Outfit, cmd *exec.Cmd) error {
	value := func(name string) (string, bool) { return lookupEnv(cmd.Env, name) }
	worn, err := o.Wear(value)
	if err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, worn.Env...)
	if program := o.Recipe.Program(cmd.Args); program >= 0 {
		cmd.Args = slices.Insert(slices.Clone(cmd.Args), program+1, worn.Arguments...)
	}
	if worn.Setup == "" {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd.Path, cmd.Args = self, append([]string{"assay-run", "hook", o.Recipe.Name, "--"}, cmd.Args...)
	path, _ := value("PATH")
	// Hooks of the agent call assay-run by its name.
	if found, err := lookPath("assay-run", cmd.Dir, cmd.Env); err != nil || !sameFile(found, self) {
		path = strings.TrimSuffix(filepath.Dir(self)+":"+path, ":")
	}
	cmd.Env = append(cmd.Env, "PATH="+path, hook.EnvSetup+"="+worn.Setup)
	return nil
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
