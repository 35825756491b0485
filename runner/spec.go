package runner

import (
	"cmp"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/miekg/dns"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/evalfile"
	"github.com/assay-run/assay-run/schema/modelfile"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/redact"
	"github.com/assay-run/assay-run/schema/specfile"
)

// Preload starts in the background what Run will need and what depends on no other work. Run calls it first. Call it
// earlier if there is other work to do before Run.
func Preload(s *specfile.Spec) {
	if usesBPF(s) {
		kernel.Preload(int(s.KernelBuffer))
	}
}

// usesBPF reports whether Run tries the eBPF observer.
func usesBPF(s *specfile.Spec) bool {
	return s.Kernel != specfile.KernelOff && s.Kernel != specfile.KernelNotify
}

// refused is Run's result for a run that it does not start.
func refused(s *specfile.Spec, code string, err error) (*schema.Result, error) {
	return &schema.Result{
		Schema: schema.ResultV0, RunID: s.RunID, Outcome: schema.OutcomeInfraError,
		ErrorSource: new(string(schema.SourceRunner)),
		Error:       &schema.ResultError{Code: code, Message: err.Error()}, RunnerExitCode: new(int(schema.ExitRunner)),
		LimitsHit: []string{}, Stdio: schema.Stdio{Mode: schema.StdioNone},
	}, err
}

// files are what is read of the files that a spec names.
type files struct {
	policy     *policyfile.File
	evaluation *schema.Evaluation
	unusable   error // see Options.unusable
}

// readFiles returns opt with the policy's file and that of the evaluation, unless it has them or Contain has read them.
// An evaluation file that cannot be used changes nothing: the run is refused when it is to be kept.
func readFiles(s *specfile.Spec, opt Options) (_ Options, err error) {
	if c := opt.Contained; c != nil {
		opt.Policy, opt.Evaluation = cmp.Or(opt.Policy, c.read.policy), cmp.Or(opt.Evaluation, c.read.evaluation)
		opt.unusable = c.read.unusable
	}
	if opt.Policy == nil && s.Policy != "" {
		if opt.Policy, err = policyfile.Load(s.Policy); err != nil {
			return opt, err
		}
	}
	if opt.Evaluation == nil && opt.unusable == nil && s.Evaluation != "" {
		opt.Evaluation, opt.unusable = evalfile.Load(s.Evaluation)
	}
	return opt, nil
}

// under returns the spec, completed by the files in opt where it says nothing.
func under(s *specfile.Spec, opt Options) *specfile.Spec {
	return s.Limited(opt.Policy).Evaluated(opt.Evaluation)
}

// Profile is the sandbox of a run that would start now. It lacks the directories of its evidence, which do not exist
// yet.
func Profile(s *specfile.Spec, file *policyfile.File) (*sandbox.Profile, error) {
	dir, err := s.Dir()
	if err != nil {
		return nil, err
	}
	c := sandbox.Context{Dir: dir, Env: environ(s), IsolatePID: s.Isolate == specfile.IsolatePID,
		Listened: s.Kernel == specfile.KernelNotify}
	c.Home, _ = os.UserHomeDir()
	if s.Policy != "" {
		at, err := filepath.Abs(s.Policy)
		if err != nil {
			return nil, err
		}
		c.Protect = append(c.Protect, at)
	}
	settings := s.SandboxSettings(file)
	return sandbox.Resolve(&settings, c)
}

// Record returns what run.json says of a run, without the values of environment variables. file is the policy, or nil
// without one. startedAt is the wall clock time of the start.
func Record(s *specfile.Spec, startedAt time.Time, recorder, output string, file *policyfile.File) (schema.Run, error) {
	at, err := s.Absolute()
	if err != nil {
		return schema.Run{}, err
	}
	under := s.Limited(file)
	spec, err := at.WithoutEnv()
	if err != nil {
		return schema.Run{}, err
	}
	turns := s.Turns.Effective()
	providers, err := s.Model.Providers()
	if err != nil {
		return schema.Run{}, err
	}
	prices, err := s.Model.PriceList()
	if err != nil {
		return schema.Run{}, err
	}
	return schema.Run{
		Schema: schema.RunV0, RunID: s.RunID, Platform: cmp.Or(s.Platform, runtime.GOOS), AgentShim: s.AgentShim,
		Command: s.Command, CommandRaw: rawArgs(s.Command), EnvKeys: s.EnvKeys(), Workdir: at.Workdir,
		Homes: homesOf(s), Resolvers: resolvers(),
		TimeoutMS: under.Timeout.Milliseconds(), GraceMS: s.Grace.Milliseconds(),
		Limits: schema.Limits{MemoryBytes: int64(under.Limits.Memory), Pids: under.Limits.Pids,
			CPUMilli: int64(under.Limits.CPUs)},
		Applied:  at.Applied(file),
		Contract: at.Contract, ContractBaseline: s.ContractBaseline,
		Labels: s.Labels, Capture: s.Capture, CaptureBytes: int64(s.CaptureBytes),
		Kernel: s.Kernel, KernelBufferBytes: int64(s.KernelBuffer), Compat: s.Compat, SDKEventLog: at.SDKEventLog,
		PolicyDecisionLog: at.PolicyDecisionLog,
		Policy:            at.Policy, Gateway: s.Gateway, Turns: &schema.RunTurns{
			CLITool: turns.CLITool, CheckTool: turns.CheckTool, FieldBytes: int(turns.FieldBytes),
			TurnBytes: int(turns.TurnBytes),
		},
		Model:     modelRecord(&s.Model, providers, prices),
		Spec:      spec,
		StartedAt: schema.Wall(startedAt), Recorder: recorder, Output: output,
	}, nil
}

// resolvers are the name servers in resolv.conf, none if it cannot be read.
func resolvers() []string {
	config, err := dns.ClientConfigFromFile("/etc/resolv.conf")
	if err != nil {
		return nil
	}
	return config.Servers
}

// homesOf are the directories where the command and known agents keep their own files.
func homesOf(s *specfile.Spec) map[string]string {
	homes := map[string]string{}
	for _, kv := range environ(s) {
		name, dir, _ := strings.Cut(kv, "=")
		if filepath.IsAbs(dir) && utf8.ValidString(dir) && agents.LocatesHome(name) {
			homes[name] = filepath.Clean(dir)
		}
	}
	if s.User == "" || s.Env["HOME"] != "" {
		return homes
	}
	delete(homes, "HOME") // the command has another user
	name, _, _ := strings.Cut(s.User, ":")
	u, err := user.Lookup(name)
	if err != nil {
		u, err = user.LookupId(name)
	}
	if err == nil && filepath.IsAbs(u.HomeDir) {
		homes["HOME"] = filepath.Clean(u.HomeDir)
	}
	return homes
}

// rawArgs returns the arguments that are not valid JSON strings.
func rawArgs(argv []string) map[int][]byte {
	var raw map[int][]byte
	for i, arg := range argv {
		if !utf8.ValidString(arg) {
			if raw == nil {
				raw = map[int][]byte{}
			}
			raw[i] = []byte(arg)
		}
	}
	return raw
}

// Secrets adds to r the model gateway's keys and the secrets of the command's environment: the values of variables
// whose names match one of the patterns, such as redact.DefaultEnv. It returns the names of those variables whose
// values are too short to be recognized in text.
func Secrets(s *specfile.Spec, r *redact.Redactor, patterns []string) (tooShort []string) {
	if providers, err := s.Model.Providers(); err == nil {
		for _, p := range providers {
			r.Add(redact.RuleGiven, p.Key)
		}
	}
	return r.AddEnv(environ(s), patterns)
}

// modelRecord is the form of m in run.json; nil without a model gateway.
func modelRecord(m *modelfile.Settings, providers []modelfile.Provider, prices *modelfile.Prices) *schema.RunModel {
	if !m.On() {
		return nil
	}
	r := &schema.RunModel{Routes: []string{}, Bodies: m.Bodies}
	if prices != nil {
		r.Prices = prices.Digest
	}
	for _, p := range providers {
		r.Routes = append(r.Routes, p.Name)
	}
	return r
}
