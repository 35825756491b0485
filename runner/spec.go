package runner

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/gateway"
)

// What Validate finds, one error value each, in the order it looks for them.
// They come back wrapped with what was found.
var (
	ErrEmptyCommand     = errors.New("no command given")
	ErrEmptyRunID       = errors.New("run id is empty")
	ErrRunIDSeparator   = errors.New(`run id contains ":", which separates policy decisions such as allow:read_file`)
	ErrRunIDCharacter   = errors.New("run id may only contain ASCII letters, digits, _ and -")
	ErrRunIDTooLong     = fmt.Errorf("run id is longer than %d bytes", maxRunID)
	ErrUnsupportedShim  = errors.New("unsupported agent shim")
	ErrShimNeeded       = errors.New("an SDK event log needs an agent shim that writes it")
	ErrSameLog          = errors.New("the SDK event log and the policy decision log are the same file")
	ErrNUL              = errors.New("NUL byte in a string that the kernel ends at NUL")
	ErrEmptyProgramName = errors.New("program name is empty")
	ErrEnvKey           = errors.New("malformed environment variable name")
	ErrNegative         = errors.New("limit is negative")
	ErrChoice           = errors.New("value is not one of the choices")
	ErrTurns            = errors.New("turns cannot be recorded so")
	ErrNoContract       = errors.New("there is no contract to evaluate before the command; name one with --contract")
)

const maxRunID = 128

// Agent shims: how an agent's SDK reports its tool calls.
const (
	ShimNone         = "none"
	ShimOpenAIAgents = "openai-agents"
	ShimGoogleGenAI  = "gemini-google-genai"
)

// Shims lists the agent shims that a Spec may name.
var Shims = []string{ShimNone, ShimOpenAIAgents, ShimGoogleGenAI}

// How a run treats the kernel layer.
const (
	KernelAuto    = "auto"    // observe where the host allows it
	KernelRequire = "require" // fail before the command starts where it does not
	KernelOff     = "off"     // do not try
)

// Where the gateway of a run listens: always on a unix socket.
const (
	GatewayUnix = "unix" // and nowhere else
	GatewayWS   = "ws"   // also for WebSockets, on a port of the loopback address
)

// Defaults of a Spec.
const (
	DefaultGrace        = 5 * time.Second
	DefaultCaptureBytes = 64 << 20
)

// Spec says what to run and how. It is plain data: nothing in it depends on
// the host, and it validates anywhere. New gives one with the defaults.
type Spec struct {
	// RunID names the run in every artifact: ASCII letters, digits, _ and -.
	RunID string
	// Platform is the operating system's name as Go spells it.
	Platform string
	// AgentShim is one of Shims.
	AgentShim string
	// Command is the argument vector. Command[0] is looked up in the child's
	// PATH unless it contains a slash.
	Command []string
	// Env is set on top of the inherited environment. Only its keys are ever
	// recorded.
	Env map[string]string
	// Workdir is where the command starts; empty means the current directory.
	Workdir string
	// Timeout is the wall clock budget; zero means none.
	Timeout time.Duration
	// Grace is the time between SIGTERM and SIGKILL.
	Grace  time.Duration
	Limits Limits
	// Contract is the file of an outcome contract that the runner evaluates
	// once the command and all it started is gone; empty for none. Timeout does
	// not bound the checks: they have timeouts of their own.
	Contract string
	// ContractBaseline also evaluates it before the command starts.
	ContractBaseline bool
	// Labels are kept in the bundle and mean nothing to the runner.
	Labels map[string]string
	// NoCapture hands our descriptors to the command and keeps no copies.
	NoCapture bool
	// CaptureBytes caps the copy kept of each stream, in bytes.
	CaptureBytes int64
	// Kernel is KernelAuto, KernelRequire or KernelOff.
	Kernel string
	// SDKEventLog and PolicyDecisionLog are files that the command writes, its
	// SDK's events and the decisions of a policy, which are followed and taken
	// into the bundle. Empty means none. The first needs an AgentShim.
	SDKEventLog, PolicyDecisionLog string
	// Policy is the file of the rules for the tool calls that come through the
	// gateway; empty for none. It is read once, before the command starts.
	Policy string
	// Gateway is where it listens: GatewayUnix, which is also the zero value's
	// meaning, or GatewayWS.
	Gateway string
	// Turns says how its calls become turns; zero fields are defaults.
	Turns gateway.Turns
	// KernelBuffer is how many bytes of events wait between the kernel and the
	// recorder, kernel.MinRing to kernel.MaxRing, rounded up to a power of two;
	// zero means kernel.DefaultRing.
	KernelBuffer int64
	// Compat is empty, or "v0" for a kernel layer in the closed v0 form.
	Compat string
}

// Limits of the whole run: all its processes together. Zero means no limit.
type Limits struct {
	// MemoryBytes bounds memory, page cache included, in bytes.
	MemoryBytes int64
	// Pids bounds the number of processes and threads alive at once.
	Pids int64
	// CPUMilli bounds CPU bandwidth, in thousandths of one CPU.
	CPUMilli int64
	// BestEffort records a limit that the host cannot enforce instead of
	// refusing to start.
	BestEffort bool
}

// New returns a Spec for command with a fresh run id and the defaults.
func New(command ...string) *Spec {
	return &Spec{
		RunID:        "run_" + strings.ToLower(ulid.Make().String()),
		Platform:     runtime.GOOS,
		AgentShim:    ShimNone,
		Command:      command,
		Grace:        DefaultGrace,
		CaptureBytes: DefaultCaptureBytes,
		Kernel:       KernelAuto,
		Gateway:      GatewayUnix,
	}
}

// Validate reports everything that is wrong with s, in a fixed order, joined
// into one error that errors.Is can take apart. It returns nil for a Spec that
// can be run.
func (s *Spec) Validate() error {
	var errs []error
	add := func(err error, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err))
	}

	if len(s.Command) == 0 {
		errs = append(errs, ErrEmptyCommand)
	}
	s.validateRunID(add)
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
	s.validateEnv(add)
	s.validateNumbers(add)
	if !slices.Contains([]string{KernelAuto, KernelRequire, KernelOff}, s.Kernel) {
		add(ErrChoice, "kernel layer %q (auto, require, off)", s.Kernel)
	}
	if n := s.KernelBuffer; n != 0 && (n < kernel.MinRing || n > kernel.MaxRing) {
		add(ErrChoice, "kernel buffer of %d bytes (%d to %d)", n, kernel.MinRing, kernel.MaxRing)
	}
	s.validateGateway(add)
	if s.Compat != "" && s.Compat != "v0" {
		add(ErrChoice, "compat form %q (v0)", s.Compat)
	}
	return errors.Join(errs...)
}

func (s *Spec) validateLogs(add addError) {
	if s.SDKEventLog != "" && s.AgentShim == ShimNone {
		add(ErrShimNeeded, "agent shim %q with SDK event log %q (name one with --agent-shim: %s)", s.AgentShim, s.SDKEventLog, strings.Join(Shims[1:], ", "))
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
	if err := s.Turns.Check(); err != nil {
		add(ErrTurns, "%v", err)
	}
}

// Preload begins in the background with what Run will need and that depends on
// nothing. Run does the same first thing: call it when there is other work to
// do before that.
func (s *Spec) Preload() {
	if s.Kernel != KernelOff {
		kernel.Preload(int(s.KernelBuffer))
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
		case k == "" || strings.ContainsAny(k, "=\x00"):
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
		{"memory", s.Limits.MemoryBytes < 0, s.Limits.MemoryBytes},
		{"pids", s.Limits.Pids < 0, s.Limits.Pids},
		{"cpus", s.Limits.CPUMilli < 0, float64(s.Limits.CPUMilli) / 1000},
		{"capture bytes", s.CaptureBytes < 0, s.CaptureBytes},
	} {
		if n.negative {
			add(ErrNegative, "%s %v", n.name, n.value)
		}
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
