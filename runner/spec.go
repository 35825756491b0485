package runner

import (
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/schema"
)

// Agent shims: who reports the tool calls.
const (
	ShimNone         = "none"
	ShimOpenAIAgents = "openai-agents"
	ShimGoogleGenAI  = "gemini-google-genai"
	ShimClaudeCode   = "claude-code"
	ShimCodex        = "codex"
	ShimGeminiCLI    = "gemini-cli"
	ShimOpenCode     = "opencode"
	ShimMCP          = "mcp" // an MCP client, whose calls only "assay-run mcp" sees
	ShimLog          = "log" // any program that writes the log by itself
)

// Shims lists the agent shims that a Spec may name.
var Shims = []string{
	ShimNone, ShimOpenAIAgents, ShimGoogleGenAI, ShimClaudeCode, ShimCodex, ShimGeminiCLI, ShimOpenCode, ShimMCP, ShimLog,
}

// shimNames are the sdk_name that each shim writes; one without any may write all.
var shimNames = map[string][]string{
	ShimOpenAIAgents: {"openai-agents", "@openai/agents"},
	ShimGoogleGenAI:  {"google-genai", "@google/genai", "gemini-google-genai"},
	ShimClaudeCode:   {ShimClaudeCode},
	ShimCodex:        {ShimCodex},
	ShimGeminiCLI:    {ShimGeminiCLI},
	ShimOpenCode:     {ShimOpenCode},
}

// writes tells whether a line with this sdk_name may be of the shim.
func writes(shim, name string) bool {
	names := shimNames[shim]
	return len(names) == 0 || slices.Contains(names, name)
}

// How a run treats the kernel layer.
const (
	// KernelAuto observes where the host allows it: through eBPF, else by seccomp
	// notification where that changes nothing for the command.
	KernelAuto = "auto"
	// KernelRequire fails before the command starts where it does not, and after
	// it has ended if the layer is not complete.
	KernelRequire = "require"
	KernelEBPF    = "ebpf"   // as auto, but never by KernelNotify
	KernelNotify  = "notify" // by seccomp notification, which needs no privilege (package kernel/notify)
	KernelOff     = "off"    // do not try
)

// Kernels lists what Spec.Kernel may be.
var Kernels = []string{KernelAuto, KernelEBPF, KernelNotify, KernelRequire, KernelOff}

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

// Spec says what to run and how. It is plain data: nothing in it depends on the
// host. New gives one with the defaults. A spec file is the same as JSON or YAML;
// [encoding/json] reads and writes it too (see UnmarshalJSON).
type Spec struct {
	// RunID names the run in every artifact: ASCII letters, digits, _ and -.
	RunID string `json:"run_id"`
	// Platform is the operating system's name as Go spells it; empty means this
	// one. A spec for another one is refused.
	Platform string `json:"platform"`
	// AgentShim is one of Shims.
	AgentShim string `json:"agent_shim"`
	// Command is the argument vector. Command[0] is looked up in the child's
	// PATH unless it contains a slash.
	Command []string `json:"command"`
	// Env is set on top of the inherited environment. Only its keys are ever
	// recorded.
	Env map[string]string `json:"env"`
	// Workdir is where the command starts; empty means the current directory.
	Workdir string `json:"workdir,omitzero"`
	// Timeout is the wall clock budget; zero means none.
	Timeout time.Duration `json:"timeout,omitzero"`
	// Grace is the time between SIGTERM and SIGKILL.
	Grace  time.Duration `json:"grace"`
	Limits Limits        `json:"limits,omitzero"`
	// Contract is the file of an outcome contract that the runner evaluates
	// once the command and all it started is gone; empty for none. Timeout does
	// not bound the checks: they have timeouts of their own.
	Contract string `json:"contract,omitzero"`
	// ContractBaseline also evaluates it before the command starts.
	ContractBaseline bool `json:"contract_baseline,omitzero"`
	// StrictChecks gives each check directories, an environment and a network of its
	// own; see strictChecks.
	StrictChecks bool `json:"strict_checks,omitzero"`
	// Labels are kept in the bundle and mean nothing to the runner.
	Labels map[string]string `json:"labels,omitzero"`
	// Capture keeps copies of what passes through the standard streams. Without
	// it the command gets our own descriptors.
	Capture bool `json:"capture"`
	// CaptureBytes caps the copy kept of each stream.
	CaptureBytes Bytes `json:"capture_bytes"`
	// Kernel is one of Kernels.
	Kernel string `json:"kernel"`
	// KernelBuffer is how many bytes of events wait between the kernel and the
	// recorder, kernel.MinRing to kernel.MaxRing, rounded up to a power of two;
	// zero means kernel.DefaultRing.
	KernelBuffer Bytes `json:"kernel_buffer,omitzero"`
	// KeepObserver is how long the observer that runs share stays on the host after
	// the last of them; zero: it goes with the last.
	KeepObserver time.Duration `json:"keep_observer,omitzero"`
	// DenyIOUring makes io_uring_setup fail with EPERM, since KernelNotify, which it
	// needs, does not see io_uring's requests.
	DenyIOUring bool `json:"deny_io_uring,omitzero"`
	// Require lists what the evidence must be for the run to count, of
	// Requirements: else it ends with ExitRunner, and the bundle is sealed all the
	// same.
	Require []string `json:"require,omitzero"`
	// Compat is empty, or "v0" for a bundle in the form of the v0 contracts.
	Compat string `json:"compat,omitzero"`
	// SDKEventLog and PolicyDecisionLog are files that the command writes, its
	// SDK's events and the decisions of a policy, which are followed and taken
	// into the bundle. Empty means none. The first needs an AgentShim.
	SDKEventLog       string `json:"sdk_event_log,omitzero"`
	PolicyDecisionLog string `json:"policy_decision_log,omitzero"`
	// Policy is the file that says what the command may touch, and of the rules
	// for the tool calls that come through the gateway; empty for none. It is read
	// once, before the command starts.
	Policy string `json:"policy,omitzero"`
	// Mode is what the command may touch, one of sandbox.Modes; empty is what the
	// policy says, and without that observe.
	Mode string `json:"mode,omitzero"`
	// Profiles are built-in policies that Policy is put on top of.
	Profiles []string `json:"profiles,omitzero"`
	// Isolate is empty, or IsolatePID for a PID namespace in mode observe as well.
	Isolate string `json:"isolate,omitzero"`
	// User is who the command runs as: a name, a uid or uid:gid; empty for us.
	User string `json:"user,omitzero"`
	// Containers makes the clients of container engines put containers into the run.
	// It needs the mode observe, and a cgroup.
	Containers bool `json:"containers,omitzero"`
	// Gateway is where it listens: GatewayUnix, which is also the zero value's
	// meaning, or GatewayWS.
	Gateway string `json:"gateway,omitzero"`
	// Turns says how its calls become turns.
	Turns Turns `json:"turns,omitzero"`
}

// Limits of the whole run: all its processes together. Zero means no limit.
type Limits struct {
	// Memory bounds memory, page cache included.
	Memory Bytes `json:"memory,omitzero"`
	// Pids bounds the number of processes and threads alive at once.
	Pids int64 `json:"pids,omitzero"`
	// CPUs bounds CPU bandwidth.
	CPUs MilliCPUs `json:"cpus,omitzero"`
	// BestEffort records a limit that the host cannot enforce instead of
	// refusing to start.
	BestEffort bool `json:"best_effort,omitzero"`
}

// Turns says how the gateway's calls become turns. Zero fields mean the defaults
// of [gateway.Turns].
type Turns struct {
	CLITool   string `json:"cli_tool,omitzero"`   // whose output is classified by exit code
	CheckTool string `json:"check_tool,omitzero"` // whose output is a verdict
	MaxField  Bytes  `json:"max_field,omitzero"`  // kept of one text
	MaxTurn   Bytes  `json:"max_turn,omitzero"`   // kept of a turn's values together
}

// Gateway is the same for a [gateway.Config].
func (t Turns) Gateway() gateway.Turns {
	return gateway.Turns{CLITool: t.CLITool, CheckTool: t.CheckTool, FieldBytes: int(t.MaxField), TurnBytes: int(t.MaxTurn)}
}

// New returns a Spec for command with a fresh run id and the defaults.
func New(command ...string) *Spec {
	return &Spec{
		RunID:        "run_" + strings.ToLower(schema.NewID()),
		Platform:     runtime.GOOS,
		AgentShim:    ShimNone,
		Command:      command,
		Grace:        DefaultGrace,
		Capture:      true,
		CaptureBytes: DefaultCaptureBytes,
		Kernel:       KernelAuto,
		Gateway:      GatewayUnix,
	}
}

// Preload begins in the background with what Run will need and that depends on
// nothing. Run does the same first thing: call it when there is other work to
// do before that.
func (s *Spec) Preload() {
	if s.usesBPF() {
		kernel.Preload(int(s.KernelBuffer))
	}
}

// usesBPF tells whether Run tries the observer of package kernel.
func (s *Spec) usesBPF() bool { return s.Kernel != KernelOff && s.Kernel != KernelNotify }
