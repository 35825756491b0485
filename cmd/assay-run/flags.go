package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/store"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/modelfile"
	"github.com/assay-run/assay-run/schema/sandboxfile"
	"github.com/assay-run/assay-run/schema/specfile"
)

// runFlags are the flags of a run: those of its Spec, and where its evidence goes.
type runFlags struct {
	spec   *specfile.Spec
	ofSpec *pflag.FlagSet
	env    environment
	label  keyValues
	faults faults

	output, spoolDir, result string
	redact                   redactFlags
	sign                     signingKey
	specFile                 string
	dryRun, quiet            bool
	force, store, replace    bool
	audit                    []string
	lifeline                 lifeline
}

// specFlags binds flags to the fields of a Spec. To add an option of a run, add
// a field to [specfile.Spec] and a line here.
func specFlags(fs *pflag.FlagSet, s *specfile.Spec) {
	fs.StringVar(&s.RunID, "run-id", "", "name the run `ID`: letters, digits, _ and - (default random)")
	fs.StringVar(&s.Agent, "agent", "", "set up the agent `NAME` in a sandbox with a private home: "+
		strings.Join(agents.Names(), ", ")+" (see assay-run agents)")
	fs.StringVar(&s.AgentFile, "agent-file", "", "set up an agent by the recipe in `FILE`")
	fs.StringVar(&s.AgentShim, "agent-shim", s.AgentShim, "the `SDK` that writes --sdk-event-log: "+
		strings.Join(specfile.Shims, ", "))
	fs.StringVar(&s.Workdir, "workdir", "", "start the command in `DIR` (default the current directory)")
	fs.Var((*duration)(&s.Timeout), "timeout", "end the run after `TIME`, such as 90s or 10m (default no limit)")
	durationFlag(fs, &s.Grace, "grace", s.Grace, "at the end, wait `TIME` between SIGTERM and SIGKILL")
	fs.Var(&s.Limits.Memory, "memory", "limit memory to `SIZE`, such as 512M or 2G (default no limit)")
	fs.Var((*positive)(&s.Limits.Pids), "pids", "limit processes and threads to `N` (default no limit)")
	fs.Var(&s.Limits.CPUs, "cpus", "limit CPU time to that of `N` CPUs, such as 0.5 or 2 (default no limit)")
	fs.BoolVar(&s.Limits.BestEffort, "best-effort-limits", false,
		"run even if the host cannot enforce a limit, and record that")
	boolFlag(fs, (*negated)(&s.Capture), "no-capture",
		"give the command assay-run's own standard streams and keep no copies")
	fs.Var(&s.CaptureBytes, "capture-bytes", "keep at most `SIZE` of each output stream")
	fs.StringVar(&s.Kernel, "kernel", s.Kernel,
		"`HOW` to observe: auto (the best way that changes nothing for the command), ebpf, notify (seccomp; needs "+
			"no privilege), require (fail where eBPF cannot see everything), off")
	fs.Var(&s.KernelBuffer, "kernel-buffer",
		"kernel event buffer `SIZE`; raise it if events were dropped (default 4MiB)")
	fs.Var((*duration)(&s.KeepObserver), "keep-observer",
		"keep the shared observer for `TIME` after the last run, so that the next one starts faster (default 0)")
	fs.BoolVar(&s.DenyIOUring, "deny-io-uring", false,
		"with --kernel notify, which cannot see io_uring's requests: refuse io_uring to the command")
	fs.Var(&list{to: &s.Require}, "require", "end with 125 unless the evidence is `WHAT`: "+
		strings.Join(specfile.Requirements, ", ")+"; may be repeated")
	fs.StringVar(&s.Contract, "contract", "", "evaluate the outcome contract in `FILE` after the command has ended")
	fs.BoolVar(&s.ContractBaseline, "contract-baseline", false,
		"also evaluate the contract before the command starts: a check that already passes proves nothing")
	fs.BoolVar(&s.StrictChecks, "strict-checks", false,
		"give each check a fresh home, cache and temporary directory, a clean environment and no network")
	fs.StringVar(&s.Evaluation, "evaluation", "",
		"keep the evaluation file `FILE`, which says what the agent must not do, in the bundle")
	fs.BoolVar(&s.WorkspaceChanges, "workspace-changes", false,
		"keep in the bundle what the command changed in its working directory")
	fs.Var((*someBytes)(&s.WorkspaceChangesBytes), "workspace-changes-bytes",
		fmt.Sprintf("keep at most `SIZE` of changed files and artifacts (default %v)",
			config.Bytes(specfile.DefaultWorkspaceChangesBytes)))
	fs.Var((*texts)(&s.Artifacts), "artifact",
		"also keep the files that `GLOB` matches after the command, from anywhere; may be repeated")
	fs.StringVar(&s.Compat, "compat", "",
		"write the bundle's documents in the form of `VERSION`: v0 (see docs/compat.md)")
	fs.StringVar(&s.SDKEventLog, "sdk-event-log", "",
		"import the events that the agent's SDK writes to `FILE`; needs --agent-shim")
	fs.StringVar(&s.PolicyDecisionLog, "policy-decision-log", "", "import the decisions that a policy writes to `FILE`")
	fs.StringVar(&s.Mode, "mode", "",
		"`MODE` of the sandbox: observe (no restriction), read-only, workspace-write "+
			"(default the policy's, or observe)")
	fs.StringVar(&s.Policy, "policy", "",
		"apply the policy in `FILE` to what the command touches and to its tool calls")
	fs.Var((*texts)(&s.Profiles), "profile", "allow what the program `NAME` needs; may be repeated: "+
		strings.Join(sandboxfile.Builtins(), ", "))
	fs.StringVar(&s.Home, "home", "",
		"in a sandbox, the command's `HOME`: private (what it writes there is gone after the run; it cannot change "+
			"files of more than 2 GiB, or of limits.home in a policy or spec), real (default the policy's, or private)")
	fs.StringVar(&s.HomeLayer, "home-layer", "",
		"keep what the command writes to its private home in `DIR`, for the next run with the same flag")
	fs.StringVar((*string)(&s.ClosedBook.Close), "closed-book", "",
		"give the command a repository with only the history that is checked out, and do not start it if it could "+
			"look up its answer elsewhere; `WHAT`: on (the same as no value), try (start it, and record what was "+
			"open), off (default the evaluation file's, or off)")
	fs.Lookup("closed-book").NoOptDefVal = string(schema.BookRequired)
	fs.StringVar(&s.Isolate, "isolate", "",
		"`WHAT` to isolate in every mode: pid (give the command a PID namespace, and no descriptors but "+
			"its standard streams)")
	fs.BoolVar(&s.Containers, "containers", false,
		"put containers that docker and podman make into the run; needs --mode observe")
	fs.StringVar(&s.User, "user", "", "run the command as `USER` (a name, a uid or uid:gid); needs root")
	fs.StringVar(&s.Gateway, "gateway", s.Gateway,
		"`WHERE` the gateway listens: unix (a unix socket), ws (WebSockets as well)")
	turnFlags(fs, &s.Turns)
	fs.BoolVar(&s.Model.Gateway, "model-gateway", false,
		"give the agent an endpoint for its requests to models, which adds the key, passes them on and records them")
	fs.Var((*named)(&s.Model.Keys), "model-key", "read the key of a provider from a file, as `NAME=FILE`: "+
		strings.Join(modelfile.Routes, ", ")+"; NAME=agent passes on the agent's own login; may be repeated")
	fs.Var((*named)(&s.Model.Upstreams), "model-upstream",
		"reach a provider at another address, as `NAME=URL`; may be repeated")
	fs.StringVar(&s.Model.Bodies, "model-bodies", "",
		"`WHAT` to keep of requests to models and their answers: none (only digests; default everything)")
	fs.Var(&s.Model.Budget, "model-budget",
		"refuse requests to models beyond `LIMITS`, such as requests=20,tokens=2M,cost=5")
	fs.BoolVar(&s.Model.Budget.End, "model-budget-end", false, "also end the run once the model budget is spent")
	fs.StringVar(&s.Model.Replay, "model-replay", "",
		"answer requests to models with the answers recorded in `BUNDLE`; needs no key and no network")
	fs.BoolVar(&s.Model.ReplayStrict, "model-replay-strict", false,
		"with --model-replay: refuse requests that differ from the recorded ones in any text")
	fs.StringVar(&s.Model.Prices, "model-prices", "", "compute what requests to models cost by the prices in `FILE`")
}

// turnFlags registers the flags that say how a gateway's calls become turns, for a run and for
// serve.
func turnFlags(fs *pflag.FlagSet, t *specfile.Turns) {
	d := specfile.Turns{}.Effective()
	fs.StringVar(&t.CLITool, "cli-tool", "",
		fmt.Sprintf("`NAME` of the tool whose output is classified by exit code (default %q)", d.CLITool))
	fs.StringVar(&t.CheckTool, "check-tool", "",
		fmt.Sprintf("`NAME` of the tool whose output is a verdict (default %q)", d.CheckTool))
	fs.Var((*someBytes)(&t.FieldBytes), "max-field",
		fmt.Sprintf("keep at most `SIZE` of one text in a turn (default %v)", d.FieldBytes))
	fs.Var((*someBytes)(&t.TurnBytes), "max-turn",
		fmt.Sprintf("keep at most `SIZE` of a turn's values in total (default %v)", d.TurnBytes))
}

func (f *runFlags) register(fs *pflag.FlagSet) {
	f.spec = specfile.New()
	fs.SortFlags = false
	f.registerBundle(fs)
	fs.StringVar(&f.specFile, "spec", "", "read the run's options from `FILE` (YAML or JSON); flags override them")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print the run as a spec file, with the values of --env, and run nothing")
	f.ofSpec = pflag.NewFlagSet("", pflag.ContinueOnError)
	f.ofSpec.SortFlags = false
	specFlags(f.ofSpec, f.spec)
	fs.AddFlagSet(f.ofSpec)
	fs.Var(&f.env, "env", "set the environment variable `K=V`; K alone takes the value it has here; may be repeated")
	fs.Var((*environmentFiles)(&f.env), "env-file", "set the variables in `FILE`, one K=V per line; may be repeated")
	fs.Var(&f.label, "label", "add the label `K=V` to the bundle; may be repeated")
	auditFlag(fs, &f.audit)
	fs.Var(&f.lifeline, "lifeline",
		"cancel the run when the other end of the pipe `FD` is closed, as it is when its holder dies")
	f.redact.register(fs)
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing if all goes well")
	fs.Bool("help-all", false, "help with all flags")
	f.faults.gather(fs)
}

// registerBundle registers the flags that say where a bundle goes and who signs it, for a run and for attach.
func (f *runFlags) registerBundle(fs *pflag.FlagSet) {
	fs.StringVarP(&f.output, "output", "o", "",
		"write the bundle to `FILE`, and make its directory; .tar.zst chooses zstd (default assay-run-<run_id>.tar.gz)")
	fs.BoolVar(&f.store, "store", false, "keep the bundle in the store (see assay-run store --help)")
	fs.BoolVar(&f.force, "force", false,
		"replace any file with the bundle's name (a bundle is replaced without this flag)")
	fs.BoolVar(&f.replace, "replace", false, "discard the evidence of an interrupted run of the same --run-id")
	fs.StringVar(&f.result, "result", "", "also write result.json to `FILE`")
	fs.StringVar(&f.sign.key, "sign", "",
		"sign the bundle with the private key in `FILE`, or with \"agent\" (see assay-run sign --help)")
	fs.StringVar(&f.sign.command, "sign-command", "", "sign the bundle with the shell command `CMD`")
	fs.StringVar(&f.spoolDir, "spool-dir", "",
		"keep the live run's evidence under `DIR` (default $XDG_STATE_HOME/assay-run/spool)")
}

// effective makes the Spec of the run from the defaults, the spec file and the flags, in this
// order. It returns the Spec that the flags are bound to. The error lists every fault.
func (f *runFlags) effective(command []string) (*specfile.Spec, error) {
	var given []func()
	var names []string
	f.ofSpec.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed {
			names = append(names, flag.Name)
			given = append(given, again(flag.Value.(lenient).Value))
		}
	})
	s := f.spec
	*s = *specfile.New()
	if f.specFile != "" {
		if err := s.LoadFile(f.specFile); err != nil {
			return nil, err
		}
	}
	for _, set := range given {
		set()
	}
	s.Flags = names
	if len(command) > 0 {
		s.Command = command
	}
	f.env.overlay(&s.Env)
	f.label.overlay(&s.Labels)
	if err := s.LoadAgent(); err != nil {
		return nil, errors.Join(f.faults.err(), err)
	}
	return s, errors.Join(f.faults.err(), s.Validate(), s.CheckModel())
}

// bundle returns the absolute path of the bundle. The error has a hint.
func (f *runFlags) bundle(runID string) (string, error) {
	path, err := f.named(runID)
	if err == nil {
		if path, err = filepath.Abs(path); err != nil {
			return "", nowhere(err)
		}
		return path, nil
	}
	if errors.Is(err, archive.ErrOtherFormat) {
		return "", console.WithHint(err, "end the name after --output with .tar.gz or .tar.zst")
	}
	return "", console.WithHint(err, "name a file with --output, or omit --store and unset ASSAY_RUN_STORE")
}

// named returns the path of the bundle as the flags name it, or its path in the store.
func (f *runFlags) named(runID string) (string, error) {
	switch {
	case f.store && f.output != "":
		return "", errors.New("--store and --output cannot be used together")
	case f.output != "":
		return f.output, archive.CheckName(f.output)
	case !f.store && !store.IsDefault():
		return "assay-run-" + runID + ".tar.gz", nil
	}
	dir, err := store.DefaultDir()
	if err != nil {
		return "", err
	}
	return store.Path(dir, runID)
}

// runValues returns the values that shell completion offers for flags of a run.
func runValues() map[string][]string {
	return map[string][]string{
		"agent":        agents.Names(),
		"agent-shim":   specfile.Shims,
		"compat":       {"v0"},
		"home":         sandboxfile.Homes,
		"gateway":      {specfile.GatewayUnix, specfile.GatewayWS},
		"closed-book":  {string(schema.BookRequired), string(schema.BookTried), string(schema.BookNot)},
		"isolate":      {specfile.IsolatePID},
		"kernel":       specfile.Kernels,
		"mode":         sandboxfile.Modes,
		"model-bodies": {schema.ModelBodiesNone},
		"profile":      sandboxfile.Builtins(),
		"require":      specfile.Requirements,
	}
}
