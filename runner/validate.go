package runner

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unicode"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/schema"
)

// What Validate finds, one error value each, in the order it looks for them.
// Validate returns them wrapped with the value at fault.
var (
	ErrEmptyCommand     = errors.New("no command given")
	ErrEmptyRunID       = errors.New("run id is empty")
	ErrRunIDSeparator   = errors.New(`run id contains ":", which separates policy decisions such as allow:read_file`)
	ErrRunIDCharacter   = errors.New("run id may only contain ASCII letters, digits, _ and -")
	ErrRunIDTooLong     = fmt.Errorf("run id is longer than %d bytes", maxRunID)
	ErrUnsupportedShim  = errors.New("unsupported agent shim")
	ErrShimNeeded       = errors.New("--sdk-event-log needs --agent-shim, which says who writes the log")
	ErrSameLog          = errors.New("the SDK event log and the policy decision log are the same file")
	ErrNUL              = errors.New("NUL byte in a string, which the kernel would end there")
	ErrEmptyProgramName = errors.New("program name is empty")
	ErrEnvKey           = errors.New("malformed environment variable name")
	ErrNegative         = errors.New("limit is negative")
	ErrTooLittle        = errors.New("too little for any command")
	ErrContainers       = errors.New("a command in a sandbox cannot reach a container engine; use mode observe with containers")
	ErrChoice           = errors.New("value is not one of the choices")
	ErrProfile          = errors.New("there is no such profile")
	ErrTurns            = errors.New("turns cannot be recorded with these settings")
	ErrOtherPlatform    = fmt.Errorf("the run is meant for an operating system other than %s", runtime.GOOS)
	ErrNoChecks         = errors.New("there are no checks; name a contract with --contract")
	ErrNoContract       = errors.New("there is no contract to evaluate before the command; name one with --contract")
)

const maxRunID = 128

// minMemory is less than any process needs to start: a lower limit is a unit that
// was forgotten.
const minMemory Bytes = 256 << 10

// Validate reports everything that is wrong with s, in a fixed order, joined
// into one error that errors.Is can take apart. It returns nil for a Spec that
// can be run.
func (s *Spec) Validate() error {
	var errs []error
	add := func(err error, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", err, fmt.Sprintf(format, args...)))
	}

	if len(s.Command) == 0 {
		errs = append(errs, ErrEmptyCommand)
	}
	s.validateRunID(add)
	if s.Platform != "" && s.Platform != runtime.GOOS {
		add(ErrOtherPlatform, "platform %q", s.Platform)
	}
	if !slices.Contains(Shims, s.AgentShim) {
		add(ErrUnsupportedShim, "agent shim %q (supported: %s)", s.AgentShim, strings.Join(Shims, ", "))
	}
	s.validateLogs(add)
	for i, arg := range s.Command {
		if strings.ContainsRune(arg, 0) {
			add(ErrNUL, "command argument %d", i)
		}
	}
	if len(s.Command) > 0 && s.Command[0] == "" {
		errs = append(errs, ErrEmptyProgramName)
	}
	if strings.ContainsRune(s.Workdir, 0) {
		add(ErrNUL, "working directory %q", s.Workdir)
	}
	if strings.ContainsRune(s.Contract, 0) {
		add(ErrNUL, "contract %q", s.Contract)
	}
	if s.ContractBaseline && s.Contract == "" {
		add(ErrNoContract, "contract baseline")
	}
	if s.StrictChecks && s.Contract == "" {
		add(ErrNoChecks, "strict checks")
	}
	s.validateEnv(add)
	s.validateNumbers(add)
	if !slices.Contains(Kernels, s.Kernel) {
		add(ErrChoice, "kernel layer %q (%s)", s.Kernel, strings.Join(Kernels, ", "))
	}
	if s.DenyIOUring && s.Kernel != KernelNotify {
		add(ErrChoice, "deny io_uring with kernel layer %q (it needs notify; the sandbox's modes refuse io_uring by themselves)", s.Kernel)
	}
	if n := s.KernelBuffer; n != 0 && (n < kernel.MinRing || n > kernel.MaxRing) {
		add(ErrChoice, "kernel buffer of %d bytes (%d to %d)", int64(n), kernel.MinRing, kernel.MaxRing)
	}
	if s.KeepObserver < 0 {
		add(ErrChoice, "keep observer for %v", s.KeepObserver)
	}
	s.validateRequire(add)
	s.validateGateway(add)
	s.validateSandbox(add)
	if s.Compat != "" && s.Compat != "v0" {
		add(ErrChoice, "compat form %q (v0)", s.Compat)
	}
	return errors.Join(errs...)
}

func (s *Spec) validateLogs(add addError) {
	if s.SDKEventLog != "" && s.AgentShim == ShimNone {
		add(ErrShimNeeded, "choose one of %s for %q", strings.Join(Shims[1:], ", "), s.SDKEventLog)
	}
	if s.SDKEventLog != "" && s.SDKEventLog == s.PolicyDecisionLog {
		add(ErrSameLog, "log %q", s.SDKEventLog)
	}
	for _, log := range []string{s.SDKEventLog, s.PolicyDecisionLog} {
		if strings.ContainsRune(log, 0) {
			add(ErrNUL, "log %q", log)
		}
	}
}

func (s *Spec) validateGateway(add addError) {
	if strings.ContainsRune(s.Policy, 0) {
		add(ErrNUL, "policy %q", s.Policy)
	}
	if s.Gateway != "" && s.Gateway != GatewayUnix && s.Gateway != GatewayWS {
		add(ErrChoice, "gateway %q (unix, ws)", s.Gateway)
	}
	if err := s.Turns.Gateway().Check(); err != nil {
		add(ErrTurns, "%v", err)
	}
}

type addError func(err error, format string, args ...any)

func (s *Spec) validateRunID(add addError) {
	switch {
	case s.RunID == "":
		add(ErrEmptyRunID, "run id %q", s.RunID)
		return
	case strings.Contains(s.RunID, ":"):
		add(ErrRunIDSeparator, "run id %q", s.RunID)
	}
	for _, c := range []byte(s.RunID) {
		word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
		if !word && c != ':' {
			add(ErrRunIDCharacter, "run id %q", s.RunID)
			break
		}
	}
	if len(s.RunID) > maxRunID {
		add(ErrRunIDTooLong, "run id of %d bytes", len(s.RunID))
	}
}

func (s *Spec) validateEnv(add addError) {
	for _, k := range sortedKeys(s.Env) {
		switch {
		case k == "" || strings.ContainsFunc(k, func(r rune) bool { return r == '=' || unicode.IsSpace(r) || unicode.IsControl(r) }):
			add(ErrEnvKey, "environment variable %q", k)
		case strings.ContainsRune(s.Env[k], 0):
			add(ErrNUL, "value of environment variable %q", k)
		}
	}
}

func (s *Spec) validateNumbers(add addError) {
	for _, n := range []struct {
		name     string
		negative bool
		value    any
	}{
		{"timeout", s.Timeout < 0, s.Timeout},
		{"grace", s.Grace < 0, s.Grace},
		{"memory", s.Limits.Memory < 0, int64(s.Limits.Memory)},
		{"pids", s.Limits.Pids < 0, s.Limits.Pids},
		{"cpus", s.Limits.CPUs < 0, s.Limits.CPUs},
		{"capture bytes", s.CaptureBytes < 0, int64(s.CaptureBytes)},
	} {
		if n.negative {
			add(ErrNegative, "%s %v", n.name, n.value)
		}
	}
	switch n := s.Limits.Memory; {
	case n > 0 && n < minMemory && n%1024 != 0:
		add(ErrTooLittle, "memory %d (did you mean %dM?)", int64(n), int64(n))
	case n > 0 && n < minMemory:
		add(ErrTooLittle, "memory %v (at least %v)", n, minMemory)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// refused is what Run returns for a run that it does not begin.
func refused(s *Spec, code string, err error) (*schema.Result, error) {
	return &schema.Result{
		Schema: schema.ResultV0, RunID: s.RunID, Outcome: schema.OutcomeInfraError, ErrorSource: new(string(schema.SourceRunner)),
		Error: &schema.ResultError{Code: code, Message: err.Error()}, RunnerExitCode: new(int(ExitRunner)),
		LimitsHit: []string{}, Stdio: schema.Stdio{Mode: schema.StdioNone},
	}, err
}
