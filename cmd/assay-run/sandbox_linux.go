package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/cmd/internal/signals"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/sandboxfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

// sandboxFlags are the flags of the command sandbox.
type sandboxFlags struct {
	mode, policy, user, workdir string
	home, layer                 string
	profiles                    []string
	verbose                     bool
}

func sandboxCommand(a *app) *cobra.Command {
	f := &sandboxFlags{}
	cmd := &cobra.Command{
		Use:   "sandbox [flags] -- CMD [ARG...]",
		Short: "Contain a command without recording it",
		Long: `sandbox runs a command in the sandbox that a run with the same flags would have,
and records nothing: no cgroup, no bundle. Processes that the command leaves behind
end with it. Resource limits and a policy's rules for tool calls apply only in a run.

Exit codes: the command's own, 128+n when signal n ended it, 125 when a layer
that the policy needs is missing, 126 and 127 when the command cannot be run.`,
		Example: `  assay-run sandbox -- make test                  write here and in /tmp only, no network
  assay-run sandbox --mode read-only -- ./audit.sh
  assay-run sandbox --policy settings.json -- claude   srt's settings work unchanged`,
		Args: commandAfterDash,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return console.WithHint(specfile.ErrEmptyCommand,
					"write it after --, as in: assay-run sandbox -- make test")
			}
			return runSandbox(a, f, args)
		},
		DisableFlagsInUseLine: true,
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.mode, "mode", "",
		"`MODE` of the sandbox: read-only or workspace-write (default the policy's, or workspace-write)")
	fs.StringVar(&f.policy, "policy", "",
		"apply the policy, or the srt settings, in `FILE` to what the command touches")
	fs.Var((*texts)(&f.profiles), "profile", "allow what the program `NAME` needs; may be repeated: "+
		strings.Join(sandboxfile.Builtins(), ", "))
	fs.StringVar(&f.home, "home", "", "the command's `HOME`: private (what it writes there is gone afterwards), real "+
		"(default the policy's, or private)")
	fs.StringVar(&f.layer, "home-layer", "",
		"keep what the command writes to its private home in `DIR`, for the next time")
	fs.StringVar(&f.user, "user", "", "run the command as `USER` (a name, a uid or uid:gid); needs root")
	fs.StringVar(&f.workdir, "workdir", "", "start the command in `DIR`")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print the state of each layer")
	console.Completes(cmd, map[string][]string{"home": sandboxfile.Homes,
		"mode":    {sandboxfile.ReadOnly, sandboxfile.WorkspaceWrite},
		"profile": sandboxfile.Builtins()})
	return cmd
}

// sandboxProfile returns what the flags mean in this directory for a command with the environment
// env.
func sandboxProfile(a *app, f *sandboxFlags, env []string) (*sandbox.Profile, error) {
	file, err := loadPolicy(a.say, f.policy)
	if err != nil {
		return nil, console.WithHint(fmt.Errorf("nothing was run: %w", err), "fix the file, or omit --policy")
	}
	spec := specfile.New()
	spec.Mode, spec.Profiles, spec.User = f.mode, f.profiles, f.user
	spec.Home, spec.HomeLayer = f.home, f.layer
	settings, err := spec.Sandbox(file)
	if err != nil {
		return nil, console.WithHint(err, "see assay-run sandbox --help")
	}
	if settings.Mode == "" {
		settings.Mode = sandboxfile.WorkspaceWrite
	}
	dir, err := filepath.Abs(f.workdir)
	if err != nil {
		return nil, nowhere(err)
	}
	home, _ := os.UserHomeDir()
	c := sandbox.Context{Dir: dir, Home: home, Env: env}
	if f.policy != "" {
		if at, err := filepath.Abs(f.policy); err == nil {
			c.Protect = append(c.Protect, at)
		}
	}
	slow := time.AfterFunc(runner.SearchSlow, func() { tellSearch(a.say, dir) })
	p, err := sandbox.Resolve(&settings, c)
	slow.Stop()
	if err != nil {
		return nil, console.WithHint(fmt.Errorf("nothing was run: %w", err),
			"correct the policy; assay-run policy check explains it")
	}
	return p, nil
}

func runSandbox(a *app, f *sandboxFlags, args []string) error {
	env := os.Environ()
	p, err := sandboxProfile(a, f, env)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return cannotRun(args[0], err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return nowhere(err)
	}
	cmd := &exec.Cmd{Path: path, Args: args, Env: env, Dir: p.Dir, Stdin: a.stdin, Stdout: a.stdout, Stderr: a.stderr}
	caught := signals.Catch()
	st, layers, err := sandbox.Run(p, cmd, caught.C, sandbox.Options{Ready: caught.Wait})
	for _, l := range layers {
		switch {
		case l.State != sandbox.Enforced && err == nil:
			a.say.Warning("the layer %s is %s: %s", l.Layer, l.State, l.Reason)
		case f.verbose:
			a.say.Info("%s: %s %s", l.Layer, l.State, l.Reason)
		}
	}
	var missing *sandbox.LayerError
	var port *sandbox.PortError
	var none *sandbox.HomeError
	switch {
	case errors.As(err, &none):
		return console.ExitError{Code: schema.ExitRunner,
			Err: console.WithHint(fmt.Errorf("nothing was run: %w", err), "%s", none.Remedy())}
	case errors.As(err, &port):
		return console.ExitError{Code: schema.ExitRunner,
			Err: console.WithHint(fmt.Errorf("nothing was run: %w", err), "%s", port.Remedy())}
	case errors.As(err, &missing):
		return console.ExitError{Code: schema.ExitRunner,
			Err: console.WithHint(fmt.Errorf("nothing was run: %w", err), "%s", missing.Remedy)}
	case err != nil:
		return cannotRun(args[0], err)
	case st.Signaled():
		return console.ExitError{Code: 128 + int(st.Signal())}
	case st.ExitStatus() != 0:
		return console.ExitError{Code: st.ExitStatus()}
	}
	return nil
}
