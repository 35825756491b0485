package main

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/assay-run/assay-run/archive"
	"github.com/assay-run/assay-run/archive/store"
	"github.com/assay-run/assay-run/archive/view"
	"github.com/assay-run/assay-run/cmd/internal/console"
	"github.com/assay-run/assay-run/runner"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/model"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
)

// runFlags are the flags of a run: those of its Spec, and where its evidence goes.
type runFlags struct {
	spec   *runner.Spec
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
// a field to [runner.Spec] and a line here.
func specFlags(fs *pflag.FlagSet, s *runner.Spec) {
	fs.StringVar(&s.RunID, "run-id", "", "name the run `ID`: letters, digits, _ and - (default random)")
	fs.StringVar(&s.AgentShim, "agent-shim", s.AgentShim, "the `SDK` that writes --sdk-event-log: "+
		strings.Join(runner.Shims, ", "))
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
		strings.Join(runner.Requirements, ", ")+"; may be repeated")
	fs.StringVar(&s.Contract, "contract", "", "evaluate the outcome contract in `FILE` after the command has ended")
	fs.BoolVar(&s.ContractBaseline, "contract-baseline", false,
		"also evaluate the contract before the command starts: a check that passes then proves nothing")
	fs.BoolVar(&s.StrictChecks, "strict-checks", false,
		"give each check a fresh home, cache and temporary directory, a clean environment and no network")
	fs.StringVar(&s.Evaluation, "evaluation", "",
		"keep the evaluation in `FILE`, which says what the agent must not do, in the bundle")
	fs.BoolVar(&s.WorkspaceChanges, "workspace-changes", false,
		"keep in the bundle what the command changed in its working directory")
	fs.Var((*someBytes)(&s.WorkspaceChangesBytes), "workspace-changes-bytes",
		fmt.Sprintf("keep at most `SIZE` of changed files and artifacts (default %v)",
			runner.Bytes(runner.DefaultWorkspaceChangesBytes)))
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
		strings.Join(sandbox.Builtins(), ", "))
	fs.StringVar(&s.Isolate, "isolate", "", "`WHAT` to isolate in every mode: pid (give the command a PID namespace)")
	fs.BoolVar(&s.Containers, "containers", false,
		"put containers that docker and podman make into the run; needs --mode observe")
	fs.StringVar(&s.User, "user", "", "run the command as `USER` (a name, a uid or uid:gid); needs root")
	fs.StringVar(&s.Gateway, "gateway", s.Gateway,
		"`WHERE` the gateway listens: unix (a unix socket), ws (WebSockets as well)")
	turnFlags(fs, &s.Turns)
	fs.BoolVar(&s.Model.Gateway, "model-gateway", false,
		"pass the agent's requests to models on from an endpoint of assay-run, which keeps the key and records them")
	fs.Var((*named)(&s.Model.Keys), "model-key", "read the key of a provider from a file, as `NAME=FILE`: "+
		strings.Join(model.Routes, ", ")+"; NAME=agent passes on the agent's own login; may be repeated")
	fs.Var((*named)(&s.Model.Upstreams), "model-upstream",
		"reach a provider at another address, as `NAME=URL`; may be repeated")
	fs.StringVar(&s.Model.Bodies, "model-bodies", "",
		"`WHAT` to keep of requests to models and their answers: none (only digests; default everything)")
	fs.Var(&s.Model.Budget, "model-budget",
		"refuse requests to models beyond `LIMITS`, such as requests=20,tokens=2M,cost=5")
	fs.BoolVar(&s.Model.Budget.End, "model-budget-end", false, "also end the run once the model budget is spent")
	fs.StringVar(&s.Model.Replay, "model-replay", "",
		"answer requests to models with what the run in `BUNDLE` was answered; needs no key and no network")
	fs.BoolVar(&s.Model.ReplayStrict, "model-replay-strict", false,
		"with --model-replay: refuse requests that differ from the recorded ones in any text")
	fs.StringVar(&s.Model.Prices, "model-prices", "", "compute what requests to models cost by the prices in `FILE`")
}

// turnFlags say how a gateway's calls become turns, in a run as in serve.
func turnFlags(fs *pflag.FlagSet, t *runner.Turns) {
	d := gateway.Turns{}.Effective()
	fs.StringVar(&t.CLITool, "cli-tool", "",
		fmt.Sprintf("`NAME` of the tool whose output is classified by exit code (default %q)", d.CLITool))
	fs.StringVar(&t.CheckTool, "check-tool", "",
		fmt.Sprintf("`NAME` of the tool whose output is a verdict (default %q)", d.CheckTool))
	fs.Var((*someBytes)(&t.MaxField), "max-field",
		fmt.Sprintf("keep at most `SIZE` of one text in a turn (default %v)", runner.Bytes(d.FieldBytes)))
	fs.Var((*someBytes)(&t.MaxTurn), "max-turn",
		fmt.Sprintf("keep at most `SIZE` of a turn's values in total (default %v)", runner.Bytes(d.TurnBytes)))
}

func (f *runFlags) register(fs *pflag.FlagSet) {
	f.spec = runner.New()
	fs.SortFlags = false
	fs.StringVarP(&f.output, "output", "o", "",
		"write the bundle to `FILE`; .tar.zst chooses zstd (default assay-run-<run_id>.tar.gz)")
	fs.BoolVar(&f.store, "store", false, "keep the bundle in the store (see assay-run store --help)")
	fs.BoolVar(&f.force, "force", false, "replace an existing bundle of that name")
	fs.BoolVar(&f.replace, "replace", false, "discard the evidence of an interrupted run of the same --run-id")
	fs.StringVar(&f.result, "result", "", "also write result.json to `FILE`")
	fs.StringVar(&f.sign.key, "sign", "",
		"sign the bundle with the private key in `FILE`, or with \"agent\" (see assay-run sign --help)")
	fs.StringVar(&f.sign.command, "sign-command", "", "sign the bundle with the shell command `CMD`")
	fs.StringVar(&f.spoolDir, "spool-dir", "",
		"keep the live run's evidence under `DIR` (default $XDG_STATE_HOME/assay-run/spool)")
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
	f.faults.gather(fs)
}

// effective makes the Spec that is run: defaults, then the spec file, then
// flags. It returns the Spec that the flags are bound to. The error lists every
// fault.
func (f *runFlags) effective(command []string) (*runner.Spec, error) {
	var given []func()
	f.ofSpec.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed {
			given = append(given, again(flag.Value.(lenient).Value))
		}
	})
	s := f.spec
	*s = *runner.New()
	if f.specFile != "" {
		if err := s.LoadFile(f.specFile); err != nil {
			return nil, err
		}
	}
	for _, set := range given {
		set()
	}
	if len(command) > 0 {
		s.Command = command
	}
	f.env.overlay(&s.Env)
	f.label.overlay(&s.Labels)
	return s, errors.Join(f.faults.err(), s.Validate(), s.CheckModel())
}

// named is the value of a flag that takes NAME=VALUE and may be repeated.
type named map[string]string

func (named) String() string { return "" }
func (named) Type() string   { return "NAME=VALUE" }

func (m *named) Set(kv string) error {
	k, v, ok := strings.Cut(kv, "=")
	if !ok || k == "" || v == "" {
		return fmt.Errorf("%q is not of the form NAME=VALUE", kv)
	}
	put((*map[string]string)(m), map[string]string{k: v})
	return nil
}

// list is the value of a flag that takes words, separated by commas.
type list struct {
	to  *[]string
	set bool // by this flag, and not only by a spec file
}

func (l *list) String() string {
	if l.to == nil {
		return ""
	}
	return strings.Join(*l.to, ",")
}

func (*list) Type() string { return "WORDS" }

func (l *list) Set(s string) error {
	if !l.set {
		*l.to, l.set = nil, true
	}
	if s != "" {
		*l.to = append(*l.to, strings.Split(s, ",")...)
	}
	return nil
}

// boolFlag registers a flag that may stand without a value.
func boolFlag(fs *pflag.FlagSet, v pflag.Value, name, usage string) {
	fs.VarPF(v, name, "", usage).NoOptDefVal = "true"
}

// negated is the value of a flag that switches a field off.
type negated bool

func (n *negated) String() string { return strconv.FormatBool(!bool(*n)) }
func (*negated) Type() string     { return "bool" }

func (n *negated) Set(s string) error {
	v, err := strconv.ParseBool(s)
	*n = negated(!v)
	return err
}

// someBytes is a size of at least a byte, where zero means a default.
type someBytes runner.Bytes

func (n *someBytes) String() string { return (*runner.Bytes)(n).String() }
func (*someBytes) Type() string     { return runner.Bytes(0).Type() }

func (n *someBytes) Set(s string) error {
	err := (*runner.Bytes)(n).Set(s)
	if err == nil && *n < 1 {
		err = errors.New("must be at least 1 byte")
	}
	return err
}

// duration is the value of a flag that takes a time.
type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }
func (*duration) Type() string     { return "duration" }

func (d *duration) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err == nil {
		*d = duration(v)
		return nil
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return fmt.Errorf("%q has no unit: write %ss for seconds, or %sm for minutes", s, s, s)
	}
	return fmt.Errorf("%q is not a time, such as 90s, 10m or 1h30m", s)
}

// durationFlag registers a flag that takes a time, with a default.
func durationFlag(fs *pflag.FlagSet, to *time.Duration, name string, usual time.Duration, usage string) {
	*to = usual
	fs.Var((*duration)(to), name, usage)
}

// positive is a number of at least one, where zero means no limit and is said by
// omitting the flag.
type positive int64

func (n *positive) String() string { return strconv.FormatInt(int64(*n), 10) }
func (*positive) Type() string     { return "N" }

func (n *positive) Set(s string) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", s)
	}
	if v < 1 {
		return fmt.Errorf("%d is not a limit: give 1 or more, or omit the flag for no limit", v)
	}
	*n = positive(v)
	return nil
}

// flagHint says where "--" belongs, if the flag is one of a command that stands
// without it, else suggests the flag that an unknown one was probably meant to be.
func (a *app) flagHint(cmd *cobra.Command, err error) string {
	help := "see " + cmd.CommandPath() + " --help"
	if words := cmd.Flags().Args(); len(words) > 0 && cmd.Flags().Lookup("spec") != nil {
		at := max(0, slices.Index(a.args, words[0]))
		return "put -- before the command, as in: assay-run -- " + view.QuoteArgs(a.args[at:])
	}
	_, name, ok := strings.Cut(err.Error(), "unknown flag: --")
	if !ok {
		return help
	}
	var known []string
	cmd.Flags().VisitAll(func(fl *pflag.Flag) { known = append(known, fl.Name) })
	nearest, distance := schema.Nearest(name, known)
	if distance > 2 {
		return help
	}
	return fmt.Sprintf("did you mean --%s? %s", nearest, help)
}

// bundle is the absolute path of the bundle. The error says what to do.
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

// named is the path of the bundle as the flags name it, or in the store.
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

// put sets the keys of from in *into.
func put(into *map[string]string, from map[string]string) {
	if *into == nil && len(from) > 0 {
		*into = map[string]string{}
	}
	maps.Copy(*into, from)
}

// keyValues are what a flag says that takes K=V and may be repeated.
type keyValues map[string]string

func (keyValues) String() string { return "" }
func (keyValues) Type() string   { return "K=V" }

func (m *keyValues) Set(kv string) error {
	k, v, ok := strings.Cut(kv, "=")
	if !ok || k == "" {
		return fmt.Errorf("%q is not of the form K=V", kv)
	}
	put((*map[string]string)(m), map[string]string{k: v})
	return nil
}

func (m keyValues) overlay(into *map[string]string) { put(into, m) }

// environment is what --env and --env-file say. The former wins.
type environment struct{ given, files keyValues }

func (environment) String() string { return "" }
func (environment) Type() string   { return "K=V" }

// Set takes K=V, and K for a variable that is passed on. One that is not set
// here stays so, as with docker run.
func (e *environment) Set(kv string) error {
	if !strings.Contains(kv, "=") {
		v, ok := os.LookupEnv(kv)
		if !ok {
			return nil
		}
		kv += "=" + v
	}
	k, v, _ := strings.Cut(kv, "=") // the Spec tells what is wrong with a key
	put((*map[string]string)(&e.given), map[string]string{k: v})
	return nil
}

func (e *environment) overlay(into *map[string]string) {
	put(into, e.files)
	put(into, e.given)
}

// environmentFiles is the value of --env-file.
type environmentFiles environment

func (*environmentFiles) String() string { return "" }
func (*environmentFiles) Type() string   { return "FILE" }

// Set reads K=V lines. Empty lines and those that begin with # are passed over;
// nothing is unquoted or expanded. Messages never quote a value.
func (e *environmentFiles) Set(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok || k == "" {
			return fmt.Errorf("%s:%d: not of the form K=V", path, n)
		}
		put((*map[string]string)(&e.files), map[string]string{k: v})
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
