package runner

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/miekg/dns"

	"github.com/assay-run/assay-run/kernel"
	"github.com/assay-run/assay-run/runner/engine"
	"github.com/assay-run/assay-run/runner/gateway"
	"github.com/assay-run/assay-run/runner/hook"
	"github.com/assay-run/assay-run/runner/model"
	"github.com/assay-run/assay-run/runner/sandbox"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/evalfile"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/redact"
	"github.com/assay-run/assay-run/schema/sandboxfile"
)

// Agent shims: the program that reports the tool calls.
const (
	ShimNone         = "none"
	ShimOpenAIAgents = "openai-agents"
	ShimGoogleGenAI  = "gemini-google-genai"
	ShimClaudeCode   = "claude-code"
	ShimCodex        = "codex"
	ShimGeminiCLI    = "gemini-cli"
	ShimOpenCode     = "opencode"
	ShimQwenCode     = "qwen-code"
	ShimPi           = "pi"
	ShimMCP          = "mcp" // an MCP client, whose calls only "assay-run mcp" sees
	ShimLog          = "log" // any program that writes the log itself
)

// Shims lists the valid values of Spec.AgentShim.
var Shims = []string{
	ShimNone, ShimOpenAIAgents, ShimGoogleGenAI, ShimClaudeCode, ShimCodex, ShimGeminiCLI, ShimOpenCode, ShimQwenCode,
	ShimPi, ShimMCP, ShimLog,
}

// shimNames are the values of sdk_name that each shim writes. A shim without an entry may write any.
var shimNames = map[string][]string{
	ShimOpenAIAgents: {"openai-agents", "@openai/agents"},
	ShimGoogleGenAI:  {"google-genai", "@google/genai", "gemini-google-genai"},
	ShimClaudeCode:   {ShimClaudeCode},
	ShimCodex:        {ShimCodex},
	ShimGeminiCLI:    {ShimGeminiCLI},
	ShimOpenCode:     {ShimOpenCode},
	ShimQwenCode:     {ShimQwenCode},
	ShimPi:           {ShimPi},
}

// writes reports whether a line with this sdk_name may come from shim.
func writes(shim, name string) bool {
	names := shimNames[shim]
	return len(names) == 0 || slices.Contains(names, name)
}

// Values of Spec.Kernel.
const (
	// KernelAuto observes if the host allows it: with eBPF, else with seccomp notification if that changes nothing
	// for the command.
	KernelAuto = "auto"
	// KernelRequire fails before the command starts if the kernel layer is unavailable, and after it if the layer is
	// not complete.
	KernelRequire = "require"
	KernelEBPF    = "ebpf"   // like auto, but never KernelNotify
	KernelNotify  = "notify" // seccomp notification, which needs no privilege (package kernel/notify)
	KernelOff     = "off"    // no kernel layer
)

// Kernels lists the valid values of Spec.Kernel.
var Kernels = []string{KernelAuto, KernelEBPF, KernelNotify, KernelRequire, KernelOff}

// Values of Spec.Gateway. The gateway always listens on a unix socket.
const (
	GatewayUnix = "unix" // only there
	GatewayWS   = "ws"   // also for WebSockets, on a loopback port
)

// Defaults of a Spec.
const (
	DefaultGrace        = 5 * time.Second
	DefaultCaptureBytes = 64 << 20
	// DefaultWorkspaceChangesBytes limits the contents of changed files and artifacts.
	DefaultWorkspaceChangesBytes = 64 << 20
)

// Spec says what to run and how. It is plain data: nothing in it depends on the host. New returns one with the
// defaults. A spec file has the same fields as JSON or YAML; [encoding/json] reads and writes it too (see
// UnmarshalJSON).
type Spec struct {
	// RunID names the run in every artifact: ASCII letters, digits, _ and -.
	RunID string `json:"run_id"`
	// Platform is an operating system in Go's spelling; empty means this one. A spec for another one is refused.
	Platform string `json:"platform"`
	// Agent names a recipe of package agents, by which the command is set up, and AgentFile is the file of another
	// one. What the spec and a policy set has precedence. LoadAgent sets Recipe.
	Agent     string         `json:"agent,omitzero"`
	AgentFile string         `json:"agent_file,omitzero"`
	Recipe    *agents.Recipe `json:"-"`
	// AgentShim is one of Shims.
	AgentShim string `json:"agent_shim"`
	// Command is the argument vector. Command[0] is looked up in the command's PATH unless it contains a slash.
	Command []string `json:"command"`
	// Env is added to the inherited environment. Only its keys are recorded.
	Env map[string]string `json:"env"`
	// Workdir is where the command starts; empty means the current directory.
	Workdir string `json:"workdir,omitzero"`
	// Timeout limits the command's wall clock time; zero means none.
	Timeout time.Duration `json:"timeout,omitzero"`
	// Grace is the time between SIGTERM and SIGKILL.
	Grace  time.Duration `json:"grace"`
	Limits Limits        `json:"limits,omitzero"`
	// Contract is the file of an outcome contract, evaluated once every process of the command has ended; empty:
	// none. Timeout does not apply to checks, which have their own timeouts.
	Contract string `json:"contract,omitzero"`
	// ContractBaseline also evaluates the contract before the command starts.
	ContractBaseline bool `json:"contract_baseline,omitzero"`
	// StrictChecks gives each check its own directories, environment and network; see strictChecks.
	StrictChecks bool `json:"strict_checks,omitzero"`
	// Evaluation is a file that says what an agent under evaluation must not do. It is copied into the bundle, and
	// the runner does not use it. Empty: none.
	Evaluation string `json:"evaluation,omitzero"`
	// WorkspaceChanges records what the command changed in Workdir: see package workspace. Artifacts are globs of
	// more files to keep, absolute or relative to Workdir. WorkspaceChangesBytes limits the contents of both; zero
	// means DefaultWorkspaceChangesBytes.
	WorkspaceChanges      bool         `json:"workspace_changes,omitzero"`
	WorkspaceChangesBytes config.Bytes `json:"workspace_changes_bytes,omitzero"`
	Artifacts             []string     `json:"artifacts,omitzero"`
	// Labels are copied into the bundle. The runner does not use them.
	Labels map[string]string `json:"labels,omitzero"`
	// Capture keeps copies of the standard streams. Without it the command inherits the runner's descriptors.
	Capture bool `json:"capture"`
	// CaptureBytes limits the copy of each stream.
	CaptureBytes config.Bytes `json:"capture_bytes"`
	// Kernel is one of Kernels.
	Kernel string `json:"kernel"`
	// KernelBuffer is the size in bytes of the buffer between kernel and recorder, from kernel.MinRing to
	// kernel.MaxRing, rounded up to a power of two; zero means kernel.DefaultRing.
	KernelBuffer config.Bytes `json:"kernel_buffer,omitzero"`
	// KeepObserver is how long the shared observer stays loaded after the last run. Zero unloads it with
	// the last run.
	KeepObserver time.Duration `json:"keep_observer,omitzero"`
	// DenyIOUring makes io_uring_setup fail with EPERM. It needs KernelNotify, which does not see io_uring's
	// requests.
	DenyIOUring bool `json:"deny_io_uring,omitzero"`
	// Require lists Requirements for the evidence. If one is not met, the run exits with ExitRunner; the bundle is
	// sealed anyway.
	Require []string `json:"require,omitzero"`
	// Compat is empty, or "v0" for a bundle in the v0 format.
	Compat string `json:"compat,omitzero"`
	// SDKEventLog and PolicyDecisionLog are files that the command appends to: the SDK's events and a policy's
	// decisions. The run imports their lines into the bundle. Empty means none. SDKEventLog needs an AgentShim.
	SDKEventLog       string `json:"sdk_event_log,omitzero"`
	PolicyDecisionLog string `json:"policy_decision_log,omitzero"`
	// Policy is a file that says what the command may access, and has rules for the tool calls through the gateway;
	// empty: none. It is read once, before the command starts.
	Policy string `json:"policy,omitzero"`
	// Mode is one of sandbox.Modes; empty means the policy's mode, or observe without one.
	Mode string `json:"mode,omitzero"`
	// Flags are the names of the options that flags of a command line set, such as mode. They only say where a
	// setting came from, in [schema.Applied].
	Flags []string `json:"-"`
	// Profiles are built-in policies that Policy extends.
	Profiles []string `json:"profiles,omitzero"`
	// ClosedBook says what happens if the command could look up its task's answer: the run is refused, or the bundle
	// says what was open. Empty means that the evaluation file decides. A closed book makes workspace-write the default
	// of Mode, unless Containers is set.
	ClosedBook schema.BookRule `json:"closed_book,omitzero"`
	// Isolate is empty, or IsolatePID for a PID namespace in every mode.
	Isolate string `json:"isolate,omitzero"`
	// User is the command's user: a name, a uid or uid:gid; empty means the runner's.
	User string `json:"user,omitzero"`
	// Home is one of sandbox.Homes; empty means the policy's, or private where that is possible. HomeLayer is a
	// directory that keeps what the command writes to its private home for the next run.
	Home      string `json:"home,omitzero"`
	HomeLayer string `json:"home_layer,omitzero"`
	// Containers puts containers that the command starts into the run. It needs mode observe and a cgroup.
	Containers bool `json:"containers,omitzero"`
	// Gateway is GatewayUnix, also the meaning of empty, or GatewayWS.
	Gateway string `json:"gateway,omitzero"`
	// Turns configures how gateway calls become turns.
	Turns Turns `json:"turns,omitzero"`
	// Model configures how the command reaches models. The zero value adds no model gateway.
	Model Model `json:"model,omitzero"`
}

// Limits apply to the whole run: all its processes together. Zero means no limit, except for Home.
type Limits struct {
	// Memory limits memory, page cache included.
	Memory config.Bytes `json:"memory,omitzero"`
	// Pids limits the number of live processes and threads.
	Pids int64 `json:"pids,omitzero"`
	// CPUs limits CPU bandwidth.
	CPUs config.MilliCPUs `json:"cpus,omitzero"`
	// Home is the largest file of a private home, in bytes, that the command can change. Zero means the policy's limit,
	// or sandbox.DefaultHomeLimit.
	Home config.Bytes `json:"home,omitzero"`
	// BestEffort records a limit that the host cannot enforce, rather than refuse to start.
	BestEffort bool `json:"best_effort,omitzero"`
}

// Turns configures how gateway calls become turns. Zero fields mean the defaults of [gateway.Turns].
type Turns struct {
	CLITool   string       `json:"cli_tool,omitzero"`   // the tool whose output is classified by exit code
	CheckTool string       `json:"check_tool,omitzero"` // the tool whose output is a verdict
	MaxField  config.Bytes `json:"max_field,omitzero"`  // limit per text
	MaxTurn   config.Bytes `json:"max_turn,omitzero"`   // limit per turn
}

// Gateway returns the same for a [gateway.Config].
func (t Turns) Gateway() gateway.Turns {
	return gateway.Turns{CLITool: t.CLITool, CheckTool: t.CheckTool, FieldBytes: int(t.MaxField),
		TurnBytes: int(t.MaxTurn)}
}

// New returns a Spec for command with a new run id and the defaults.
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

// Preload starts in the background what Run will need and what depends on no other work. Run calls it first. Call it
// earlier if there is other work to do before Run.
func (s *Spec) Preload() {
	if s.usesBPF() {
		kernel.Preload(int(s.KernelBuffer))
	}
}

// usesBPF reports whether Run tries the eBPF observer.
func (s *Spec) usesBPF() bool { return s.Kernel != KernelOff && s.Kernel != KernelNotify }

// maxSpecFile limits a spec file, in bytes. No command line exceeds the kernel's 2 MiB for arguments and environment.
const maxSpecFile = 4 << 20

// fields is a Spec without its methods, for encoding.
type fields Spec

// LoadFile sets the fields of s that the file at path has. The file may be a pipe. Its format follows from the
// extension (.json, .yaml, .yml), else from its first character. Unknown and duplicate keys are errors that name file
// and line. A relative workdir, contract, policy or log is relative to the file.
func (s *Spec) LoadFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSpecFile+1))
	if err != nil {
		return fmt.Errorf("read spec %s: %w", path, err)
	}
	if len(data) > maxSpecFile {
		return fmt.Errorf("read spec %s: larger than %d bytes", path, maxSpecFile)
	}
	before := *s
	for _, p := range s.pathFields() {
		*p = "" // paths in the file are relative to it
	}
	if err := config.Decode(data, config.FormatOf(path, data), (*fields)(s)); err != nil {
		return fmt.Errorf("spec %s: %w", path, err)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("spec %s: %w", path, err)
	}
	for i, p := range s.pathFields() {
		switch {
		case *p == "":
			*p = *before.pathFields()[i]
		case !filepath.IsAbs(*p):
			*p = filepath.Join(dir, *p)
		}
	}
	s.Model.inDir(dir)
	return nil
}

// pathFields are the fields that hold paths.
func (s *Spec) pathFields() []*string {
	return []*string{&s.Workdir, &s.Contract, &s.SDKEventLog, &s.PolicyDecisionLog, &s.Policy, &s.Evaluation,
		&s.AgentFile, &s.HomeLayer, &s.Model.Prices, &s.Model.Replay}
}

// Absolute returns the spec with absolute paths, including the command's directory.
func (s *Spec) Absolute() (*Spec, error) {
	dir, err := s.workdir()
	if err != nil {
		return nil, err
	}
	abs := *s
	for _, p := range abs.pathFields() {
		if *p == "" {
			continue
		}
		if *p, err = filepath.Abs(*p); err != nil {
			return nil, fmt.Errorf("path %q: %w", *p, err)
		}
	}
	abs.Workdir = dir
	if err := abs.Model.keyFiles(filepath.Abs); err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	return &abs, nil
}

// UnmarshalJSON sets the fields of s that data has. A zero Spec first gets the defaults of New. Unknown and duplicate
// keys are errors that name the key.
func (s *Spec) UnmarshalJSON(data []byte) error {
	if reflect.ValueOf(s).Elem().IsZero() {
		*s = *New()
	}
	return config.Decode(data, config.JSON, (*fields)(s))
}

// MarshalJSON writes the spec as LoadFile reads it, without zero fields, and with the values of Env. Strings that are
// not UTF-8 are an error.
func (s Spec) MarshalJSON() ([]byte, error) {
	return json.Marshal(fields(s), json.Deterministic(true), json.WithMarshalers(duration()))
}

// duration writes a time as config.Decode reads it.
var duration = sync.OnceValue(func() *json.Marshalers {
	return json.MarshalToFunc(func(e *jsontext.Encoder, d time.Duration) error {
		return e.WriteToken(jsontext.String(d.String()))
	})
})

// withoutEnv is the spec for the bundle, without the values of Env.
func (s *Spec) withoutEnv() ([]byte, error) {
	return json.Marshal(struct {
		fields
		Env struct{} `json:"env,omitzero"`
	}{fields: fields(*s)}, json.Deterministic(true), json.WithMarshalers(duration()), jsontext.AllowInvalidUTF8(true))
}

// Errors that Validate returns, wrapped with the value at fault, in the order it checks.
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
	ErrContainers       = errors.New("a command in a sandbox cannot reach a container engine; use mode " +
		"observe with containers")
	ErrChoice        = errors.New("value is not one of the choices")
	ErrProfile       = errors.New("there is no such profile")
	ErrTurns         = errors.New("turns cannot be recorded with these settings")
	ErrOtherPlatform = fmt.Errorf("the run is meant for an operating system other than %s", runtime.GOOS)
	ErrNoChecks      = errors.New("there are no checks; name a contract with --contract")
	ErrNoContract    = errors.New("there is no contract to evaluate before the command; name one with --contract")
)

const maxRunID = 128

// minMemory is less than any process needs to start. A lower limit means a forgotten unit.
const minMemory config.Bytes = 256 << 10

// Validate returns everything that is wrong with s, in a fixed order, joined into one error for errors.Is. It returns
// nil if s can be run.
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
	for _, glob := range s.Artifacts {
		switch {
		case strings.ContainsRune(glob, 0):
			add(ErrNUL, "artifact %q", glob)
		case glob == "" || !doublestar.ValidatePattern(glob):
			add(ErrChoice, "artifact %q (a file's path, or a glob such as dist/**/*.whl)", glob)
		}
	}
	s.validateEnv(add)
	s.validateNumbers(add)
	if !slices.Contains(Kernels, s.Kernel) {
		add(ErrChoice, "kernel layer %q (%s)", s.Kernel, strings.Join(Kernels, ", "))
	}
	if s.DenyIOUring && s.Kernel != KernelNotify {
		add(ErrChoice, "deny io_uring with kernel layer %q (it needs notify; the sandbox's modes refuse "+
			"io_uring by themselves)", s.Kernel)
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
	s.validateModel(add)
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
	if strings.ContainsRune(s.Evaluation, 0) {
		add(ErrNUL, "evaluation %q", s.Evaluation)
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
		case k == "" || strings.ContainsFunc(k, func(r rune) bool {
			return r == '=' || unicode.IsSpace(r) || unicode.IsControl(r)
		}):
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
		{"home limit", s.Limits.Home < 0, int64(s.Limits.Home)},
		{"capture bytes", s.CaptureBytes < 0, int64(s.CaptureBytes)},
		{"workspace changes bytes", s.WorkspaceChangesBytes < 0, int64(s.WorkspaceChangesBytes)},
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

// refused is Run's result for a run that it does not start.
func refused(s *Spec, code string, err error) (*schema.Result, error) {
	return &schema.Result{
		Schema: schema.ResultV0, RunID: s.RunID, Outcome: schema.OutcomeInfraError,
		ErrorSource: new(string(schema.SourceRunner)),
		Error:       &schema.ResultError{Code: code, Message: err.Error()}, RunnerExitCode: new(int(ExitRunner)),
		LimitsHit: []string{}, Stdio: schema.Stdio{Mode: schema.StdioNone},
	}, err
}

// envRunID is set for every command.
const envRunID = "ASSAY_RUNNER_RUN_ID"

// Variables that are set if the agent has somewhere to report.
const (
	envSDKLog    = "ASSAY_RUNNER_SDK_EVENT_LOG"
	envSDKSchema = "ASSAY_RUNNER_SDK_EVENT_SCHEMA"
)

// EnvDecisionLog names the file to which programs inside the run append policy decisions.
const EnvDecisionLog = "ASSAY_RUNNER_POLICY_DECISION_LOG"

// EnvCgroupParent names, in the command's environment, the cgroup for containers that are to belong to the run: the
// value of --cgroup-parent of docker and podman. It is not set if the run has no cgroup of its own.
const EnvCgroupParent = engine.EnvCgroupParent

// agentEnv are the variables that are never inherited.
var agentEnv = []string{envSDKLog, envSDKSchema, EnvDecisionLog, gateway.EnvSocket, gateway.EnvURL, gateway.EnvToken,
	EnvToolCall, EnvCgroupParent, hook.EnvSetup}

// environ returns the command's environment: the runner's, what the spec sets, and the run id. A later value of a key
// wins.
func (s *Spec) environ() []string {
	own := map[string]string{envRunID: s.RunID}
	for _, key := range agentEnv {
		own[key] = "" // they belong to an outer run
	}
	env := make([]string, 0, len(os.Environ())+len(s.Env)+1)
	for _, kv := range os.Environ() {
		key, _, _ := strings.Cut(kv, "=")
		_, set := s.Env[key]
		if _, ours := own[key]; !set && !ours {
			env = append(env, kv)
		}
	}
	for _, k := range sortedKeys(s.Env) {
		if k != envRunID {
			env = append(env, k+"="+s.Env[k])
		}
	}
	return append(env, envRunID+"="+s.RunID)
}

// workdir returns the absolute directory in which the command starts.
func (s *Spec) workdir() (string, error) {
	dir := s.Workdir
	if dir == "" {
		dir = "."
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("working directory %q: %w", dir, err)
	}
	return abs, nil
}

// absLog makes the path of a log absolute, since the command may start in another directory.
func absLog(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("log %q: %w", path, err)
	}
	return abs, nil
}

// lookupEnv returns the last value of a variable in an environment, and whether there is one.
func lookupEnv(env []string, name string) (value string, set bool) {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// lookPath finds the program as execvp(3) would in the command: in its PATH, from its working directory. A name with
// a slash is used as it is.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, set := lookupEnv(env, "PATH")
	if !set {
		path = "/usr/local/bin:/bin:/usr/bin"
	}
	found := error(fs.ErrNotExist)
	for _, d := range filepath.SplitList(path) {
		file := filepath.Join(d, name)
		if d == "" {
			file = "./" + name
		}
		at := file
		if !filepath.IsAbs(at) {
			at = filepath.Join(dir, at)
		}
		info, err := os.Stat(at)
		switch {
		case err != nil || info.IsDir():
			continue
		case info.Mode()&0o111 == 0:
			found = fs.ErrPermission
			continue
		}
		return file, nil
	}
	return "", found
}

// Record returns what run.json says of a run, without the values of environment variables. file is the policy, or nil
// without one. startedAt is the wall clock time of the start.
func (s *Spec) Record(startedAt time.Time, recorder, output string, file *policyfile.File) (schema.Run, error) {
	at, err := s.Absolute()
	if err != nil {
		return schema.Run{}, err
	}
	under := s.limited(file)
	spec, err := at.withoutEnv()
	if err != nil {
		return schema.Run{}, err
	}
	turns := s.Turns.Gateway().Effective()
	routes, err := s.modelRoutes()
	if err != nil {
		return schema.Run{}, err
	}
	prices, err := s.modelPrices()
	if err != nil {
		return schema.Run{}, err
	}
	return schema.Run{
		Schema: schema.RunV0, RunID: s.RunID, Platform: cmp.Or(s.Platform, runtime.GOOS), AgentShim: s.AgentShim,
		Command: s.Command, CommandRaw: rawArgs(s.Command), EnvKeys: sortedKeys(s.Env), Workdir: at.Workdir,
		Homes: s.homes(), Resolvers: resolvers(),
		TimeoutMS: under.Timeout.Milliseconds(), GraceMS: s.Grace.Milliseconds(),
		Limits: schema.Limits{MemoryBytes: int64(under.Limits.Memory), Pids: under.Limits.Pids,
			CPUMilli: int64(under.Limits.CPUs)},
		Applied:  at.applied(file),
		Contract: at.Contract, ContractBaseline: s.ContractBaseline,
		Labels: s.Labels, Capture: s.Capture, CaptureBytes: int64(s.CaptureBytes),
		Kernel: s.Kernel, KernelBufferBytes: int64(s.KernelBuffer), Compat: s.Compat, SDKEventLog: at.SDKEventLog,
		PolicyDecisionLog: at.PolicyDecisionLog,
		Policy:            at.Policy, Gateway: s.Gateway, Turns: &schema.RunTurns{
			CLITool: turns.CLITool, CheckTool: turns.CheckTool, FieldBytes: turns.FieldBytes,
			TurnBytes: turns.TurnBytes,
		},
		Model:     s.Model.record(routes, prices),
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

// homes are the directories where the command and known agents keep their own files.
func (s *Spec) homes() map[string]string {
	homes := map[string]string{}
	for _, kv := range s.environ() {
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
func (s *Spec) Secrets(r *redact.Redactor, patterns []string) (tooShort []string) {
	if routes, err := s.modelRoutes(); err == nil {
		for _, route := range routes {
			r.Add(redact.RuleGiven, route.Key)
		}
	}
	return r.AddEnv(s.environ(), patterns)
}

// IsolatePID gives the command a PID namespace in every mode.
const IsolatePID = "pid"

// profileSettings merges the sandbox settings of the profiles.
func (s *Spec) profileSettings() sandboxfile.Settings {
	var all []sandboxfile.Settings
	for _, name := range s.Profiles {
		if p, err := sandboxfile.Builtin(name); err == nil { // Validate has checked it
			all = append(all, p.Settings)
		}
	}
	return sandboxfile.Compose(all...)
}

// sandboxSettings merges the sandbox settings of the agent's recipe, the profiles, the policy and the spec. Later ones
// win.
func (s *Spec) sandboxSettings(file *policyfile.File) sandboxfile.Settings {
	agent := s.agentSettings()
	all := []sandboxfile.Settings{agent, s.profileSettings()}
	if s.ClosedBook.Wanted() && len(s.ClosedBook.Allow) > 0 {
		all = append(all, sandboxfile.Settings{Network: &sandboxfile.Network{AllowedDomains: s.ClosedBook.Allow}})
	}
	if file != nil {
		all = append(all, file.Sandbox)
	}
	settings := sandboxfile.Compose(all...)
	if s.Mode != "" {
		settings.Mode = s.Mode
	} else if s.ClosedBook.Wanted() && settings.Mode == "" && !s.Containers {
		settings.Mode = sandboxfile.WorkspaceWrite
	}
	if s.User != "" {
		settings.User = sandboxfile.Scalar(s.User)
	}
	settings.Home, settings.HomeLayer = cmp.Or(s.Home, settings.Home), s.HomeLayer
	if s.Limits.Home != 0 {
		settings.Limits = &sandboxfile.Limits{Home: s.Limits.Home} // the spec's own are not the sandbox's
	}
	if s.Recipe != nil && s.Home == "" && settings.EffectiveMode() == sandboxfile.Observe {
		settings.Home = "" // only a sandbox has a private one
	}
	return settings
}

// files are what is read of the files that a spec names.
type files struct {
	policy     *policyfile.File
	evaluation *schema.Evaluation
	unusable   error // see Options.unusable
}

// readFiles returns opt with the policy's file and that of the evaluation, unless it has them or Contain has read them.
// An evaluation file that cannot be used changes nothing: the run is refused when it is to be kept.
func (s *Spec) readFiles(opt Options) (_ Options, err error) {
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
func (s *Spec) under(opt Options) *Spec { return s.limited(opt.Policy).Evaluated(opt.Evaluation) }

// Evaluated returns the spec, completed by an evaluation file, which may be nil, where it says nothing.
func (s *Spec) Evaluated(doc *schema.Evaluation) *Spec {
	if doc == nil {
		return s
	}
	with := *s
	with.ClosedBook = s.ClosedBook.Or(doc.Evaluation.ClosedBook)
	return &with
}

// limited returns the spec with the limits that it does not set from a policy, which may be nil.
func (s *Spec) limited(file *policyfile.File) *Spec {
	if file == nil || file.Sandbox.Limits == nil {
		return s
	}
	with, l := *s, file.Sandbox.Limits
	with.Limits.Memory = cmp.Or(with.Limits.Memory, l.Memory)
	with.Limits.CPUs = cmp.Or(with.Limits.CPUs, l.CPUs)
	with.Limits.Pids = cmp.Or(with.Limits.Pids, l.Pids)
	with.Timeout = cmp.Or(with.Timeout, l.Wall)
	return &with
}

// applied says what a run of the spec is under, with a policy or nil.
func (s *Spec) applied(file *policyfile.File) *schema.Applied {
	settings := s.sandboxSettings(file)
	agent := s.agentSettings()
	a := &schema.Applied{Profiles: s.Profiles, Limits: []schema.AppliedLimit{}, Agent: s.appliedAgent(&agent)}
	profiled := s.profileSettings()
	if file != nil {
		a.Policy = &schema.AppliedPolicy{Path: s.Policy, Digest: file.Digest}
	}
	// from returns where the value of an option came from. of reports whether settings have it.
	from := func(option string, set bool, of func(*sandboxfile.Settings) bool) string {
		switch {
		case set && slices.Contains(s.Flags, option):
			return schema.FromFlag
		case set:
			return schema.FromSpec
		case file != nil && of(&file.Sandbox):
			return schema.FromPolicy
		case of(&profiled):
			return schema.FromProfile
		case of(&agent):
			return schema.FromAgent
		}
		return schema.FromDefault
	}
	// Rules about files or the network mean a mode.
	mode := from("mode", s.Mode != "", func(o *sandboxfile.Settings) bool { return o.Mode != "" })
	if mode == schema.FromDefault {
		mode = from("mode", false, func(o *sandboxfile.Settings) bool {
			return o.EffectiveMode() != sandboxfile.Observe
		})
	}
	a.Mode = schema.Setting{Value: settings.EffectiveMode(), From: mode}
	a.Network = schema.Setting{Value: settings.NetworkMode(), From: mode}
	if a.Mode.Value != sandboxfile.Observe {
		a.Home = &schema.Setting{Value: cmp.Or(settings.Home, sandboxfile.HomePrivate),
			From: from("home", s.Home != "", func(o *sandboxfile.Settings) bool { return o.Home != "" })}
		a.Network.From = from("", false, func(o *sandboxfile.Settings) bool { return o.Network != nil })
	}
	if settings.User != "" {
		a.User = &schema.Setting{Value: string(settings.User),
			From: from("user", s.User != "", func(o *sandboxfile.Settings) bool { return o.User != "" })}
	}
	under := s.limited(file)
	for _, l := range []struct {
		name, option string
		own, value   int64
	}{
		{schema.LimitMemory, "memory", int64(s.Limits.Memory), int64(under.Limits.Memory)},
		{schema.LimitPids, "pids", s.Limits.Pids, under.Limits.Pids},
		{schema.LimitCPUs, "cpus", int64(s.Limits.CPUs), int64(under.Limits.CPUs)},
		{schema.LimitWall, "timeout", s.Timeout.Milliseconds(), under.Timeout.Milliseconds()},
	} {
		if l.value != 0 {
			a.Limits = append(a.Limits, schema.AppliedLimit{Name: l.name, Value: l.value,
				From: from(l.option, l.own != 0, func(o *sandboxfile.Settings) bool { return o.Limits != nil })})
		}
	}
	return a
}

// Sandbox merges the sandbox settings of the spec and a policy, for callers that contain without recording.
func (s *Spec) Sandbox(file *policyfile.File) (sandboxfile.Settings, error) {
	var errs []error
	s.validateSandbox(func(err error, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err))
	})
	return s.sandboxSettings(file), errors.Join(errs...)
}

// Profile is the sandbox of a run that would start now. It lacks the directories of its evidence, which do not exist
// yet.
func (s *Spec) Profile(file *policyfile.File) (*sandbox.Profile, error) {
	dir, err := s.workdir()
	if err != nil {
		return nil, err
	}
	c := sandbox.Context{Dir: dir, Env: s.environ(), IsolatePID: s.Isolate == IsolatePID,
		Listened: s.Kernel == KernelNotify}
	c.Home, _ = os.UserHomeDir()
	if s.Policy != "" {
		at, err := filepath.Abs(s.Policy)
		if err != nil {
			return nil, err
		}
		c.Protect = append(c.Protect, at)
	}
	settings := s.sandboxSettings(file)
	return sandbox.Resolve(&settings, c)
}

func (s *Spec) validateSandbox(add addError) {
	if s.Mode != "" && !slices.Contains(sandboxfile.Modes, s.Mode) {
		add(ErrChoice, "mode %q (observe, read-only, workspace-write)", s.Mode)
	}
	if b := s.ClosedBook; b.Close != "" && b.Close != schema.BookNot && !b.Wanted() {
		add(ErrChoice, "closed book %q (on, try, off)", b.Close)
	}
	for _, host := range s.ClosedBook.Allow {
		if _, err := sandboxfile.ParseDomain(host, false); err != nil {
			add(ErrChoice, "closed book: allow: %w", err)
		}
	}
	if s.Isolate != "" && s.Isolate != IsolatePID {
		add(ErrChoice, "isolate %q (pid)", s.Isolate)
	}
	if s.Home != "" && !slices.Contains(sandboxfile.Homes, s.Home) {
		add(ErrChoice, "home %q (private, real)", s.Home)
	}
	if s.Containers && s.Mode != "" && s.Mode != sandboxfile.Observe {
		add(ErrContainers, "mode %s", s.Mode)
	}
	for _, name := range s.Profiles {
		if _, err := sandboxfile.Builtin(name); err != nil {
			add(ErrProfile, "%q; the profiles are %s", name, strings.Join(sandboxfile.Builtins(), ", "))
		}
	}
}

// RequireComplete requires a kernel layer that is complete at the end of the run.
const RequireComplete = "complete"

// RequireUser and RequireSandbox require at least that tamper_resistance.
const (
	RequireUser    = "tamper_resistance=" + schema.ResistsUser
	RequireSandbox = "tamper_resistance=" + schema.ResistsSandbox
)

// RequireModelPath requires that the command reached models through the model gateway alone: model_path is alone or
// only.
const RequireModelPath = "model_path=" + schema.ModelPathAlone

// Requirements lists the valid values of Spec.Require.
var Requirements = []string{RequireComplete, RequireUser, RequireSandbox, RequireModelPath}

func (s *Spec) validateRequire(add addError) {
	for _, r := range s.Require {
		if !slices.Contains(Requirements, r) {
			add(ErrChoice, "requirement %q (%s)", r, strings.Join(Requirements, ", "))
		}
		if r == RequireModelPath && !s.Model.On() {
			add(ErrModel, "requirement %s needs --model-gateway", r)
		}
	}
}

// observes reports whether a run must not start without a kernel layer.
func (s *Spec) observes() bool {
	return s.Kernel == KernelRequire || slices.Contains(s.Require, RequireComplete)
}

func (s *Spec) validateModel(add addError) {
	m := &s.Model
	if !m.On() && (len(m.Keys) > 0 || len(m.Upstreams) > 0 || m.Bodies != "" || m.Prices != "" ||
		m.Budget != model.Budget{}) {
		add(ErrModel, "the other options of the model gateway need --model-gateway")
	}
	known := func(what, route string) bool {
		if !slices.Contains(model.Routes, route) {
			add(ErrModel, "%s for %q; the providers are %s", what, route, strings.Join(model.Routes, ", "))
			return false
		}
		return true
	}
	for _, route := range sortedKeys(m.Keys) {
		if known("key", route) && m.Keys[route] == "" {
			add(ErrModel, "the key of %s has no file", route)
		}
	}
	for _, route := range sortedKeys(m.Upstreams) {
		if !known("upstream", route) {
			continue
		}
		u, err := model.Upstream(route, m.Upstreams[route])
		switch {
		case err != nil:
			add(ErrModel, "the upstream of %s is not a URL", route)
		case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			add(ErrModel, "the upstream of %s is not an http or https URL: %q", route, m.Upstreams[route])
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			add(ErrModel, "the upstream of %s has more than a host and a path", route)
		}
	}
	if m.Bodies != "" && m.Bodies != schema.ModelBodiesNone {
		add(ErrModel, "bodies %q (none)", m.Bodies)
	}
	if m.ReplayStrict && m.Replay == "" {
		add(ErrModel, "--model-replay-strict needs --model-replay")
	}
	if m.Replay != "" {
		for _, route := range sortedKeys(m.Keys) {
			if m.Keys[route] != ModelKeyAgent {
				add(ErrModel, "a replay asks no provider, and needs no key of %s", route)
			}
		}
		if len(m.Upstreams) > 0 {
			add(ErrModel, "a replay asks no provider: --model-upstream has no use")
		}
	}
	if err := m.Budget.Check(); err != nil {
		add(ErrModel, "budget: %v", err)
	}
	if m.Budget.Cost != 0 && m.Prices == "" {
		add(ErrModel, "a budget of cost needs the prices of models (--model-prices)")
	}
	if m.Budget.End && !m.Budget.Limited() {
		add(ErrModel, "--model-budget-end needs --model-budget")
	}
}

// CheckModel returns what keeps the model gateway from starting on this host and Validate does not check: a missing
// key, or an unusable file.
func (s *Spec) CheckModel() error {
	_, err := s.modelRoutes()
	_, faulty := s.modelPrices()
	return errors.Join(err, faulty)
}

// CheckModelPolicy returns an error for a policy about model requests that nothing would enforce.
func (s *Spec) CheckModelPolicy(p *policyfile.File) error {
	if p.DeniesProviderTools() && !s.Model.On() {
		return fmt.Errorf("%w: the policy denies tools of providers (model.provider_tools), which only "+
			"--model-gateway can do", ErrModel)
	}
	return nil
}

// deniesProviderTools says why the provider of a model must do nothing else for the agent, or returns "" if it may. If
// the policy does not decide, the provider must not in a closed book.
func (s *Spec) deniesProviderTools(p *policyfile.File) string {
	switch {
	case p.DeniesProviderTools():
		return "the policy's model.provider_tools"
	case s.ClosedBook.Wanted() && (p == nil || p.Model.ProviderTools == ""):
		return "the run is a closed book"
	}
	return ""
}

// modelPrices reads the price list; nil: there is none.
func (s *Spec) modelPrices() (*model.Prices, error) {
	if !s.Model.On() || s.Model.Prices == "" {
		return nil, nil
	}
	p, err := model.LoadPrices(s.Model.Prices)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrModel, err)
	}
	return p, nil
}

// modelRoutes are the routes to the providers for which there is a key; none without a model gateway, and in a
// replay.
func (s *Spec) modelRoutes() (routes []model.Route, err error) {
	if !s.Model.Gateway || s.Model.Replay != "" {
		return nil, nil
	}
	var errs []error
	for _, name := range model.Routes {
		file, given := s.Model.Keys[name]
		r := model.Route{Name: name}
		if r.Upstream, err = model.Upstream(name, s.Model.Upstreams[name]); err != nil {
			errs = append(errs, fmt.Errorf("%w: the upstream of %s is not a URL", ErrModel, name))
			continue
		}
		switch {
		case given && file == ModelKeyAgent:
		case given:
			if r.Key, err = readKey(file); err != nil {
				errs = append(errs, fmt.Errorf("%w: the key of %s: %w", ErrModel, name, err))
				continue
			}
		default:
			for _, variable := range model.KeyVariables(name) {
				if r.Key = strings.TrimSpace(os.Getenv(variable)); r.Key != "" {
					break
				}
			}
			if r.Key == "" {
				continue
			}
			if err := checkKey(r.Key); err != nil {
				errs = append(errs, fmt.Errorf("%w: the key of %s in the environment %w", ErrModel, name, err))
				continue
			}
		}
		routes = append(routes, r)
	}
	if len(routes) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%w: there is no key: set %s, or name a file with --model-key NAME=FILE",
			ErrModel, "ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY"))
	}
	return routes, errors.Join(errs...)
}

// unmet returns why the evidence does not meet the run's requirements, or nil.
func unmet(require []string, kernel string, h *schema.ObservationHealth) *schema.ResultError {
	for _, want := range []string{RequireSandbox, RequireUser} {
		if slices.Contains(require, want) && h.TamperResistance != schema.ResistsSandbox &&
			"tamper_resistance="+h.TamperResistance != want {
			return &schema.ResultError{
				Code: "evidence_reachable",
				Hint: "run with --mode workspace-write or read-only, or, as root, with --user",
				Message: fmt.Sprintf("the command could reach the recorder: tamper_resistance is %s, and "+
					"--require asks for %s", cmp.Or(h.TamperResistance, schema.ResistsNone), want),
			}
		}
	}
	if slices.Contains(require, RequireModelPath) && h.ModelPath != schema.ModelPathOnly &&
		h.ModelPath != schema.ModelPathAlone {
		e := &schema.ResultError{
			Code: "model_path_not_alone",
			Message: fmt.Sprintf("model_path is %s, and --require asks for %s", cmp.Or(h.ModelPath, schema.Unknown),
				schema.ModelPathAlone),
		}
		for _, r := range h.Reasons {
			if strings.HasPrefix(r.Code, "model_path_") || strings.HasPrefix(r.Code, "model_bypass_") {
				e.Message, e.Hint = e.Message+": "+r.Message, r.Remedy
				break
			}
		}
		return e
	}
	asked := ""
	switch {
	case slices.Contains(require, RequireComplete):
		asked = "--require complete"
	case kernel == KernelRequire:
		asked = "--kernel require"
	}
	if asked == "" || h.KernelLayer == schema.Complete {
		return nil
	}
	why, hint := Incomplete(h)
	return &schema.ResultError{
		Code: "kernel_layer_incomplete", Hint: hint,
		Message: fmt.Sprintf("the kernel layer is not complete, but %s requires it: %s", asked, why),
	}
}

// Incomplete returns in one line why the kernel layer is less than complete, and what to do about it. Both are empty
// for a complete layer.
func Incomplete(h *schema.ObservationHealth) (why, remedy string) {
	if h.KernelLayer == schema.Complete {
		return "", ""
	}
	n := 0
	for _, r := range h.Reasons {
		if r.Subject != "kernel" {
			continue
		}
		if n++; n == 1 {
			why = r.Message
		}
		if remedy == "" {
			remedy = r.Remedy
		}
	}
	if n > 1 {
		why += fmt.Sprintf(" (and %d more)", n-1)
	}
	return why, remedy
}
