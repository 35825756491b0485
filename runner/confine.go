package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/runner/sandbox"
)

// IsolatePID gives the command a PID namespace in every mode.
const IsolatePID = "pid"

// sandboxSettings are what the spec and the policy together say of the sandbox:
// the profiles first, then the policy, then the spec.
func (s *Spec) sandboxSettings(file *policy.File) sandbox.Settings {
	var all []sandbox.Settings
	for _, name := range s.Profiles {
		if p, err := sandbox.Builtin(name); err == nil { // Validate has looked
			all = append(all, p.Settings)
		}
	}
	if file != nil {
		all = append(all, file.Sandbox)
	}
	settings := sandbox.Compose(all...)
	if s.Mode != "" {
		settings.Mode = s.Mode
	}
	if s.User != "" {
		settings.User = sandbox.Scalar(s.User)
	}
	return settings
}

// withPolicy reads the policy's file, unless that has been done, and takes over
// the limits that the spec does not set itself.
func (s *Spec) withPolicy(opt Options) (*Spec, Options, error) {
	if opt.Policy == nil && s.Policy != "" {
		var err error
		if opt.Policy, err = policy.Load(s.Policy); err != nil {
			return s, opt, err
		}
	}
	if opt.Policy == nil || opt.Policy.Sandbox.Limits == nil {
		return s, opt, nil
	}
	with := *s
	return &with, opt, with.limit(opt.Policy.Sandbox.Limits)
}

// limit sets what has no value yet.
func (s *Spec) limit(l *sandbox.Limits) error {
	for _, one := range []struct {
		key   string
		text  sandbox.Scalar
		unset bool
		set   func(string) error
	}{
		{"memory", l.Memory, s.Limits.Memory == 0, s.Limits.Memory.Set},
		{"cpus", l.CPUs, s.Limits.CPUs == 0, s.Limits.CPUs.Set},
		{"pids", l.Pids, s.Limits.Pids == 0, func(t string) (err error) { s.Limits.Pids, err = strconv.ParseInt(t, 10, 64); return err }},
		{"wall", l.Wall, s.Timeout == 0, func(t string) (err error) { s.Timeout, err = time.ParseDuration(t); return err }},
	} {
		if one.text == "" || !one.unset {
			continue
		}
		if err := one.set(string(one.text)); err != nil {
			return fmt.Errorf("limits.%s: %q: %w", one.key, one.text, err)
		}
	}
	if s.Limits.Pids < 0 || s.Timeout < 0 {
		return fmt.Errorf("limits: a limit is negative")
	}
	return nil
}

// Sandbox is what the spec and a policy together say of the sandbox. It is for
// those who contain without recording.
func (s *Spec) Sandbox(file *policy.File) (sandbox.Settings, error) {
	var errs []error
	s.validateSandbox(func(err error, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err))
	})
	return s.sandboxSettings(file), errors.Join(errs...)
}

// Profile is what the spec and a policy mean for a run that starts now, but for the
// directories of its evidence, which it does not have yet.
func (s *Spec) Profile(file *policy.File) (*sandbox.Profile, error) {
	dir, err := s.workdir()
	if err != nil {
		return nil, err
	}
	c := sandbox.Context{Dir: dir, Env: s.environ(), IsolatePID: s.Isolate == IsolatePID}
	c.Home, _ = os.UserHomeDir()
	if s.Policy != "" {
		at, err := filepath.Abs(s.Policy)
		if err != nil {
			return nil, err
		}
		c.Protect = append(c.Protect, at)
	}
	settings := s.sandboxSettings(file)
	return settings.Resolve(c)
}

func (s *Spec) validateSandbox(add addError) {
	if s.Mode != "" && !slices.Contains(sandbox.Modes, s.Mode) {
		add(ErrChoice, "mode %q (observe, read-only, workspace-write)", s.Mode)
	}
	if s.Isolate != "" && s.Isolate != IsolatePID {
		add(ErrChoice, "isolate %q (pid)", s.Isolate)
	}
	if s.Containers && s.Mode != "" && s.Mode != sandbox.Observe {
		add(ErrContainers, "mode %s", s.Mode)
	}
	for _, name := range s.Profiles {
		if _, err := sandbox.Builtin(name); err != nil {
			add(ErrProfile, "%q; the profiles are %s", name, strings.Join(sandbox.Builtins(), ", "))
		}
	}
}
