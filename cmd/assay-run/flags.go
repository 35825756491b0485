package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/assay-run/assay-run/runner"
)

// runFlags are the flags of a run as they were given.
type runFlags struct {
	output, spoolDir, result string
	sign                     signingKey
	specFile                 string
	dryRun, quiet            bool

	runID, shim, workdir string
	env, envFiles        []string
	labels               []string
	timeout, grace       time.Duration
	memory, cpus         string
	pids                 int64
	bestEffort           bool
	noCapture            bool
	captureBytes         string
	kernel, compat       string
	kernelBuffer         string
	sdkLog, policyLog    string
	policy, gateway      string
	audit                []string
	turns                turnFlags
	contract             string
	baseline             bool
}

func (f *runFlags) register(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVarP(&f.output, "output", "o", "", "write the bundle to `FILE`; .tar.zst chooses zstd (default assay-run-<run_id>.tar.gz)")
	fs.StringVar(&f.result, "result", "", "also write result.json to `FILE`")
	fs.StringVar(&f.sign.key, "sign", "", "sign the bundle with the private key in `FILE`, or with \"agent\" (see assay-run sign --help)")
	fs.StringVar(&f.sign.command, "sign-command", "", "sign the bundle with the shell command `CMD`")
	fs.StringVar(&f.spoolDir, "spool-dir", "", "keep the live run's evidence under `DIR` (default $XDG_STATE_HOME/assay-run/spool)")
	fs.StringVar(&f.specFile, "spec", "", "read the run from `FILE` (YAML or JSON); flags win")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print the effective run as JSON and stop")
	fs.StringVar(&f.runID, "run-id", "", "name the run `ID` (letters, digits, _ and -)")
	fs.StringVar(&f.shim, "agent-shim", runner.ShimNone, "how the agent's SDK reports: "+strings.Join(runner.Shims, ", "))
	fs.StringArrayVar(&f.env, "env", nil, "set an environment variable, `K=V`, or pass K on as it is here")
	fs.StringArrayVar(&f.envFiles, "env-file", nil, "set the variables in `FILE`, a K=V a line")
	fs.StringVar(&f.workdir, "workdir", "", "start the command in `DIR`")
	fs.StringArrayVar(&f.labels, "label", nil, "keep `K=V` in the bundle")
	fs.DurationVar(&f.timeout, "timeout", 0, "end the run after this `TIME` (90s, 10m)")
	fs.DurationVar(&f.grace, "grace", runner.DefaultGrace, "`TIME` between SIGTERM and SIGKILL")
	fs.StringVar(&f.memory, "memory", "", "limit memory to `SIZE` (512M, 2G)")
	fs.Int64Var(&f.pids, "pids", 0, "limit processes and threads to `N`")
	fs.StringVar(&f.cpus, "cpus", "", "limit CPU bandwidth to `N` CPUs (0.5, 2)")
	fs.BoolVar(&f.bestEffort, "best-effort-limits", false, "run also when the host cannot enforce a limit, and record that")
	fs.BoolVar(&f.noCapture, "no-capture", false, "hand our own descriptors to the command and keep no copies")
	fs.StringVar(&f.captureBytes, "capture-bytes", "64MiB", "keep at most `SIZE` of each stream")
	fs.StringVar(&f.kernel, "kernel", runner.KernelAuto, "observe through eBPF: auto, require or off")
	fs.StringVar(&f.kernelBuffer, "kernel-buffer", "8MiB", "let `SIZE` of kernel events wait to be recorded; raise it when some were dropped")
	fs.StringVar(&f.contract, "contract", "", "evaluate the outcome contract in `FILE` once the command is gone")
	fs.BoolVar(&f.baseline, "contract-baseline", false, "evaluate it before the command starts, too: checks that pass then gate nothing")
	fs.StringVar(&f.compat, "compat", "", "write the kernel layer in the closed form `v0`")
	fs.StringVar(&f.sdkLog, "sdk-event-log", "", "take in the events that the agent's SDK writes to `FILE`; needs --agent-shim")
	fs.StringVar(&f.policyLog, "policy-decision-log", "", "take in the decisions that a policy writes to `FILE`")
	fs.StringVar(&f.policy, "policy", "", "put the policy in `FILE` in force for the tool calls that come through the gateway")
	fs.StringVar(&f.gateway, "gateway", runner.GatewayUnix, "where the gateway listens: unix, or ws for WebSockets as well")
	f.turns.register(fs)
	auditFlag(fs, &f.audit)
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing when all goes well")
}

// spec makes the effective Spec: defaults, then the spec file, then flags.
func (f *runFlags) spec(fs *pflag.FlagSet, command []string) (*runner.Spec, error) {
	s := runner.New()
	if f.specFile != "" {
		if err := s.LoadFile(f.specFile); err != nil {
			return nil, err
		}
	}
	if len(command) > 0 {
		s.Command = command
	}
	given := fs.Changed
	var errs []error
	for _, o := range []struct {
		flag string
		set  func() error
	}{
		{"run-id", func() error { s.RunID = f.runID; return nil }},
		{"agent-shim", func() error { s.AgentShim = f.shim; return nil }},
		{"workdir", func() error { s.Workdir = f.workdir; return nil }},
		{"timeout", func() error { s.Timeout = f.timeout; return nil }},
		{"grace", func() error { s.Grace = f.grace; return nil }},
		{"memory", func() (err error) { s.Limits.MemoryBytes, err = runner.ParseBytes(f.memory); return }},
		{"pids", func() error { s.Limits.Pids = f.pids; return nil }},
		{"cpus", func() (err error) { s.Limits.CPUMilli, err = runner.ParseCPUs(f.cpus); return }},
		{"best-effort-limits", func() error { s.Limits.BestEffort = f.bestEffort; return nil }},
		{"no-capture", func() error { s.NoCapture = f.noCapture; return nil }},
		{"capture-bytes", func() (err error) { s.CaptureBytes, err = runner.ParseBytes(f.captureBytes); return }},
		{"kernel", func() error { s.Kernel = f.kernel; return nil }},
		{"kernel-buffer", func() (err error) { s.KernelBuffer, err = runner.ParseBytes(f.kernelBuffer); return }},
		{"compat", func() error { s.Compat = f.compat; return nil }},
		{"contract", func() error { s.Contract = f.contract; return nil }},
		{"contract-baseline", func() error { s.ContractBaseline = f.baseline; return nil }},
		{"sdk-event-log", func() error { s.SDKEventLog = f.sdkLog; return nil }},
		{"policy-decision-log", func() error { s.PolicyDecisionLog = f.policyLog; return nil }},
		{"policy", func() error { s.Policy = f.policy; return nil }},
		{"gateway", func() error { s.Gateway = f.gateway; return nil }},
		{"env-file", func() error { return f.readEnvFiles(s) }},
		{"env", func() error { return f.setEnv(s) }},
		{"label", func() error { return f.setLabels(s) }},
	} {
		if given(o.flag) {
			if err := o.set(); err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", o.flag, err))
			}
		}
	}
	errs = append(errs, f.turns.set(fs, &s.Turns))
	return s, errors.Join(append(errs, s.Validate())...)
}

func (f *runFlags) setEnv(s *runner.Spec) error {
	for _, kv := range f.env {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			if v, ok = os.LookupEnv(k); !ok {
				continue // as docker run does: a variable that is not set stays so
			}
		}
		setKey(&s.Env, k, v)
	}
	return nil
}

func (f *runFlags) setLabels(s *runner.Spec) error {
	for _, kv := range f.labels {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return fmt.Errorf("%q is not of the form K=V", kv)
		}
		setKey(&s.Labels, k, v)
	}
	return nil
}

// readEnvFiles reads K=V lines. Empty lines and those that begin with # are
// passed over; nothing is unquoted or expanded. Messages never quote a value.
func (f *runFlags) readEnvFiles(s *runner.Spec) error {
	for _, path := range f.envFiles {
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
			setKey(&s.Env, k, v)
		}
		if err := lines.Err(); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func setKey(m *map[string]string, k, v string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[k] = v
}

// flagHint suggests the flag that an unknown one was probably meant to be.
func flagHint(cmd *cobra.Command, err error) string {
	help := "see " + cmd.CommandPath() + " --help"
	_, name, ok := strings.Cut(err.Error(), "unknown flag: --")
	if !ok {
		return help
	}
	best, distance := "", 3
	cmd.Flags().VisitAll(func(fl *pflag.Flag) {
		if d := editDistance(name, fl.Name); d < distance {
			best, distance = fl.Name, d
		}
	})
	if best == "" {
		return help
	}
	return fmt.Sprintf("did you mean --%s? %s", best, help)
}

// editDistance counts the insertions, deletions and replacements between a
// and b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, row[j+1]+1, cost)
		}
	}
	return row[len(b)]
}
