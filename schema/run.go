package schema

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Wall is a time of the wall clock as documents have it: RFC 3339 in UTC.
func Wall(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Bounds of the kernel layer's buffer, in bytes.
const (
	MinKernelBuffer = 64 << 10
	MaxKernelBuffer = 1 << 30
)

// Run is run.json: the effective spec as it was when the run began.
// It has no values of the environment except those in Homes.
type Run struct {
	Schema string `json:"schema"` // RunV0
	RunID  string `json:"run_id"`
	// Platform is the operating system's name as Go spells it (runtime.GOOS).
	Platform  string   `json:"platform"`
	AgentShim string   `json:"agent_shim"`
	Command   []string `json:"command"`
	// CommandRaw has the bytes of the arguments that are not UTF-8, by index.
	CommandRaw map[int][]byte `json:"command_raw,omitzero"`
	// EnvKeys are the sorted names of the variables the spec set for the
	// child, on top of the inherited environment.
	EnvKeys []string `json:"env_keys"`
	// Workdir is the absolute directory the child starts in.
	Workdir string `json:"workdir"`
	// Homes are the directories that HOME, TMPDIR and the variables of known agents (CODEX_HOME)
	// named for the command, by variable: the only values of the environment that are kept. Absent
	// where somebody else started the command.
	Homes map[string]string `json:"homes,omitempty"`
	// Resolvers are the addresses of the host's servers for names (resolv.conf), when the run
	// began. Absent where there are none.
	Resolvers []string `json:"resolvers,omitempty"`
	// TimeoutMS is the wall clock budget in milliseconds; 0 means none.
	TimeoutMS int64 `json:"timeout_ms"`
	// GraceMS is the time between SIGTERM and SIGKILL in milliseconds.
	GraceMS int64  `json:"grace_ms"`
	Limits  Limits `json:"limits"`
	// Applied says what the run was under, and where each part of it came from. TimeoutMS and Limits have the same
	// values. Spec has what was asked for. Absent where somebody else started the command.
	Applied *Applied `json:"applied,omitempty"`
	// Contract is the absolute path of the outcome contract's file, absent
	// without one; contract.json holds what it said. ContractBaseline tells
	// that it was also evaluated before the command started.
	Contract         string            `json:"contract,omitempty"`
	ContractBaseline bool              `json:"contract_baseline,omitempty"`
	Labels           map[string]string `json:"labels,omitzero"`
	// CaptureBytes caps each captured stream; 0 with Capture false.
	Capture      bool  `json:"capture"`
	CaptureBytes int64 `json:"capture_bytes"`
	// Kernel is auto, require or off, as asked for.
	Kernel string `json:"kernel"`
	// KernelBufferBytes is the size of the kernel layer's buffer that was asked
	// for; absent for the default.
	KernelBufferBytes int64 `json:"kernel_buffer_bytes,omitempty"`
	// Compat is "v0" when the form of the v0 contracts was asked for, else absent.
	Compat string `json:"compat,omitempty"`
	// SDKEventLog and PolicyDecisionLog are the absolute paths of the logs that
	// the command was asked to write; absent when it was not.
	SDKEventLog       string `json:"sdk_event_log,omitempty"`
	PolicyDecisionLog string `json:"policy_decision_log,omitempty"`
	// Policy is the absolute path of the policy's file, absent without one;
	// policy.json holds what it said.
	Policy string `json:"policy,omitempty"`
	// Redaction is "disabled" where secrets were recorded as they are, else absent.
	Redaction string `json:"redaction,omitempty"`
	// Gateway is where the run's gateway listened, unix or ws (both), and Turns
	// how its calls became turns; absent where there was none.
	Gateway string    `json:"gateway,omitempty"`
	Turns   *RunTurns `json:"turns,omitempty"`
	// Model says how the run's model gateway was set up; absent if there was none. If it is present, the bundle has
	// a model layer.
	Model *RunModel `json:"model,omitempty"`
	// Spec is the effective spec, in the form of a spec file without Env. It has also the options that have no field
	// above.
	Spec jsontext.Value `json:"spec,omitempty"`
	// StartedAt is the wall clock at the start, RFC 3339 in UTC. It is
	// information: nothing is ordered by it.
	StartedAt string `json:"started_at"`
	// Recorder names the program and version that recorded the run.
	Recorder string `json:"recorder"`
	// Output is the absolute path that the bundle is to be written to. It is only in the spool; sealing removes it,
	// so that a bundle's identity does not depend on where it was written.
	Output string `json:"output,omitempty"`
	// ResultOutput is the absolute path that result.json is also to be written to (--result); absent without one.
	// It is only in the spool.
	ResultOutput string `json:"result_output,omitempty"`
}

// RunTurns says how the calls of a run's gateway became turns.
type RunTurns struct {
	// CLITool and CheckTool are the tools whose outputs were classified.
	CLITool   string `json:"cli_tool"`
	CheckTool string `json:"check_tool"`
	// FieldBytes was kept of one text, TurnBytes of a turn's values together.
	FieldBytes int `json:"field_bytes"`
	TurnBytes  int `json:"turn_bytes"`
}

// RunModel says how a run's model gateway was set up.
type RunModel struct {
	// Routes are the providers that it reached: anthropic, openai, gemini.
	Routes []string `json:"routes"`
	// Bodies is ModelBodiesNone where bodies were not kept, else absent.
	Bodies string `json:"bodies,omitempty"`
	// Prices is the digest of the price list that costs were computed by: "sha256:" and 64 hex digits. Absent
	// without one.
	Prices string `json:"prices,omitempty"`
	// Replay is the identity of the bundle whose answers the run got. Absent where providers answered.
	Replay string `json:"replay,omitempty"`
}

// ModelBodiesNone means that only the digests of bodies are kept.
const ModelBodiesNone = "none"

// Layers are the layers that the run's bundle has.
func (r *Run) Layers() []string {
	if r.Model != nil {
		return AllLayers
	}
	return Layers
}

// Limits are the resource limits of a run. Zero means no limit.
type Limits struct {
	MemoryBytes int64 `json:"memory_bytes"`
	Pids        int64 `json:"pids"`
	// CPUMilli is the CPU bandwidth in thousandths of one CPU.
	CPUMilli int64 `json:"cpu_milli"`
	// Unenforced names the limits asked for that this host could not enforce
	// (memory, pids, cpus), allowed by --best-effort-limits.
	Unenforced []string `json:"unenforced,omitempty"`
}
