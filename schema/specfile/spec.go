package specfile

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/agents"
	"github.com/assay-run/assay-run/schema/config"
	"github.com/assay-run/assay-run/schema/modelfile"
	"github.com/assay-run/assay-run/schema/policyfile"
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
	// KernelBuffer is the size in bytes of the buffer between kernel and recorder, from schema.MinKernelBuffer
	// to schema.MaxKernelBuffer, rounded up to a power of two; zero means 4 MiB.
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
	Model modelfile.Settings `json:"model,omitzero"`
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

// Turns configures how gateway calls become turns. Zero fields mean the defaults of Effective.
type Turns struct {
	CLITool    string       `json:"cli_tool,omitzero"`   // the tool whose output is classified by exit code
	CheckTool  string       `json:"check_tool,omitzero"` // the tool whose output is a verdict
	FieldBytes config.Bytes `json:"max_field,omitzero"`  // limits what is kept of one text
	TurnBytes  config.Bytes `json:"max_turn,omitzero"`   // limits what is kept of all values of a turn
}

// maxTurnBytes leaves room for the rest of a line.
const maxTurnBytes = 512 << 10

// Effective returns t with defaults for zero fields.
func (t Turns) Effective() Turns {
	t.CLITool = cmp.Or(t.CLITool, "drive_cli")
	t.CheckTool = cmp.Or(t.CheckTool, "check_outcome")
	t.TurnBytes = cmp.Or(t.TurnBytes, 256<<10)
	t.FieldBytes = cmp.Or(t.FieldBytes, min(16<<10, t.TurnBytes))
	return t
}

// Check returns why t cannot be used, or nil.
func (t Turns) Check() error {
	e := t.Effective()
	switch {
	case e.TurnBytes < 1 || e.TurnBytes > maxTurnBytes:
		return fmt.Errorf("%d bytes kept of a turn: 1 to %d are allowed", int64(e.TurnBytes), maxTurnBytes)
	case e.FieldBytes < 1 || e.FieldBytes > e.TurnBytes:
		return fmt.Errorf("%d bytes kept of a field: 1 to the turn's %d are allowed", int64(e.FieldBytes),
			int64(e.TurnBytes))
	case len(e.CLITool) > policyfile.MaxName || len(e.CheckTool) > policyfile.MaxName:
		return fmt.Errorf("a tool name must have at most %d bytes", policyfile.MaxName)
	case e.CLITool == e.CheckTool:
		return fmt.Errorf("the tool %q cannot be both the command-line tool and the check tool", e.CLITool)
	}
	return nil
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
	s.Model.InDir(dir)
	return nil
}

// pathFields are the fields that hold paths.
func (s *Spec) pathFields() []*string {
	return []*string{&s.Workdir, &s.Contract, &s.SDKEventLog, &s.PolicyDecisionLog, &s.Policy, &s.Evaluation,
		&s.AgentFile, &s.HomeLayer, &s.Model.Prices, &s.Model.Replay}
}

// Dir returns the absolute directory in which the command starts.
func (s *Spec) Dir() (string, error) {
	dir := cmp.Or(s.Workdir, ".")
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("working directory %q: %w", dir, err)
	}
	return abs, nil
}

// Absolute returns the spec with absolute paths, including the command's directory.
func (s *Spec) Absolute() (*Spec, error) {
	dir, err := s.Dir()
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
	if err := abs.Model.EachKeyFile(filepath.Abs); err != nil {
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

// WithoutEnv is the spec for the bundle, without the values of Env.
func (s *Spec) WithoutEnv() ([]byte, error) {
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
		case glob == "" || config.CheckGlob(glob) != nil:
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
	if n := s.KernelBuffer; n != 0 && (n < schema.MinKernelBuffer || n > schema.MaxKernelBuffer) {
		add(ErrChoice, "kernel buffer of %d bytes (%d to %d)", int64(n), schema.MinKernelBuffer, schema.MaxKernelBuffer)
	}
	if s.KeepObserver < 0 {
		add(ErrChoice, "keep observer for %v", s.KeepObserver)
	}
	s.validateRequire(add)
	s.validateGateway(add)
	s.validateSandbox(add)
	errs = append(errs, s.Model.Check()...)
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
	if err := s.Turns.Check(); err != nil {
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
	for _, k := range s.EnvKeys() {
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

// EnvKeys are the sorted keys of Env.
func (s *Spec) EnvKeys() []string {
	keys := slices.AppendSeq(make([]string, 0, len(s.Env)), maps.Keys(s.Env))
	slices.Sort(keys)
	return keys
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

// SandboxSettings merges the sandbox settings of the agent's recipe, the profiles, the policy and the spec. Later ones
// win.
func (s *Spec) SandboxSettings(file *policyfile.File) sandboxfile.Settings {
	agent := s.agentSettings()
	all := []sandboxfile.Settings{agent, s.profileSettings()}
	if file != nil {
		all = append(all, file.Sandbox)
	}
	settings := sandboxfile.Compose(all...)
	if s.Mode != "" {
		settings.Mode = s.Mode
	} else if s.ClosedBook.Wanted() && settings.Mode == "" && !s.Containers {
		settings.Mode = sandboxfile.WorkspaceWrite
	}
	if s.ClosedBook.Wanted() && len(s.ClosedBook.Allow) > 0 && settings.EffectiveMode() != sandboxfile.Observe {
		allow := &sandboxfile.Network{AllowedDomains: s.ClosedBook.Allow}
		settings.Network = sandboxfile.Compose(sandboxfile.Settings{Network: allow}, settings).Network
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

// Evaluated returns the spec, completed by an evaluation file, which may be nil, where it says nothing.
func (s *Spec) Evaluated(doc *schema.Evaluation) *Spec {
	if doc == nil {
		return s
	}
	with := *s
	with.ClosedBook = s.ClosedBook.Or(doc.Evaluation.ClosedBook)
	return &with
}

// Limited returns the spec with the limits that it does not set from a policy, which may be nil.
func (s *Spec) Limited(file *policyfile.File) *Spec {
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

// Applied says what a run of the spec is under, with a policy or nil.
func (s *Spec) Applied(file *policyfile.File) *schema.Applied {
	settings := s.SandboxSettings(file)
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
	under := s.Limited(file)
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
	return s.SandboxSettings(file), errors.Join(errs...)
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
			add(modelfile.ErrGateway, "requirement %s needs --model-gateway", r)
		}
	}
}

// Observes reports whether a run must not start without a kernel layer.
func (s *Spec) Observes() bool {
	return s.Kernel == KernelRequire || slices.Contains(s.Require, RequireComplete)
}

// CheckModel returns what keeps the model gateway from starting on this host and Validate does not check: a missing
// key, or an unusable file.
func (s *Spec) CheckModel() error {
	_, err := s.Model.Providers()
	_, faulty := s.Model.PriceList()
	return errors.Join(err, faulty)
}

// CheckModelPolicy returns an error for a policy about model requests that nothing would enforce.
func (s *Spec) CheckModelPolicy(p *policyfile.File) error {
	if p.DeniesProviderTools() && !s.Model.On() {
		return fmt.Errorf("%w: the policy denies tools of providers (model.provider_tools), which only "+
			"--model-gateway can do", modelfile.ErrGateway)
	}
	return nil
}

// DeniesProviderTools says why the provider of a model must do nothing else for the agent, or returns "" if it may. If
// the policy does not decide, the provider must not in a closed book.
func (s *Spec) DeniesProviderTools(p *policyfile.File) string {
	switch {
	case p.DeniesProviderTools():
		return "the policy's model.provider_tools"
	case s.ClosedBook.Wanted() && (p == nil || p.Model.ProviderTools == ""):
		return "the run is a closed book"
	}
	return ""
}

// ErrAgent is wrapped by errors about Spec.Agent and Spec.AgentFile.
var ErrAgent = errors.New("agent")

// LoadAgent reads the recipe of the agent, and sets what the recipe sets and the spec does not: Command, AgentShim and
// Model.Gateway. What else the recipe says applies below the policy. LoadAgent does nothing the second time.
func (s *Spec) LoadAgent() (err error) {
	switch {
	case s.Recipe != nil || s.Agent == "" && s.AgentFile == "":
		return nil
	case s.Agent != "" && s.AgentFile != "":
		return fmt.Errorf("%w: both a name and a file are given; give one", ErrAgent)
	case s.Agent != "":
		s.Recipe, err = agents.ByName(s.Agent)
	default:
		s.Recipe, err = agents.Load(s.AgentFile)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAgent, err)
	}
	r := s.Recipe
	if len(s.Command) == 0 {
		s.Command = slices.Clone(r.Command)
	}
	if s.AgentShim == ShimNone && r.Reports != "" && !slices.Contains(s.Flags, "agent-shim") {
		s.AgentShim = r.Reports
	}
	if !s.Model.On() && !slices.Contains(s.Flags, "model-gateway") {
		s.Model.Gateway = s.hasRoute()
	}
	return nil
}

// hasRoute reports whether there is a key for one of the recipe's routes.
func (s *Spec) hasRoute() bool {
	return slices.ContainsFunc(slices.Sorted(maps.Keys(s.Recipe.Routes)), s.hasKey)
}

// hasKey reports whether the spec or the environment has a key for a route.
func (s *Spec) hasKey(route string) bool {
	return s.Model.Keys[route] != "" || slices.ContainsFunc(modelfile.KeyVariables(route), func(name string) bool {
		return strings.TrimSpace(os.Getenv(name)) != ""
	})
}

// ownLogin reports whether the agent talks to its provider with a login of its own.
func (s *Spec) ownLogin() bool {
	if s.Model.Replay != "" {
		return false
	}
	return !s.Model.On() || !slices.ContainsFunc(slices.Sorted(maps.Keys(s.Recipe.Routes)), func(route string) bool {
		return s.hasKey(route) && s.Model.Keys[route] != modelfile.KeyAgent
	})
}

// agentSettings is what the recipe says of the sandbox.
func (s *Spec) agentSettings() (settings sandboxfile.Settings) {
	r := s.Recipe
	if r == nil {
		return settings
	}
	settings = sandboxfile.Settings{Mode: sandboxfile.WorkspaceWrite, Home: sandboxfile.HomePrivate}
	if s.ownLogin() {
		settings.Login = r.Login
		if len(r.Domains) > 0 {
			settings.Network = &sandboxfile.Network{AllowedDomains: r.Domains}
		}
	}
	for _, name := range agents.Names() {
		if other, err := agents.ByName(name); err == nil && other.Login != "" && other.Login != r.Login {
			settings.Hidden = append(settings.Hidden, other.Login)
		}
	}
	return settings
}

// ArgumentsOmitted returns the arguments of the recipe that the command does not get, as no word of it is the agent's
// program.
func (s *Spec) ArgumentsOmitted() []string {
	r := s.Recipe
	if r == nil || r.Program(s.Command) >= 0 {
		return nil
	}
	omitted := slices.Clone(r.Arguments)
	for _, route := range slices.Sorted(maps.Keys(r.Routes)) {
		if s.Model.On() && s.hasKey(route) {
			omitted = append(omitted, r.Routes[route].Arguments...)
		}
	}
	return omitted
}

// appliedAgent is what the recipe sets, for run.json; nil: there is none.
func (s *Spec) appliedAgent(settings *sandboxfile.Settings) *schema.AppliedAgent {
	r := s.Recipe
	if r == nil {
		return nil
	}
	a := &schema.AppliedAgent{Name: r.Name, Path: s.AgentFile, From: schema.FromSpec,
		Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(r.Text)), Mode: settings.Mode, Home: settings.Home,
		Network: settings.NetworkMode(), ModelGateway: s.hasRoute(), ArgumentsOmitted: s.ArgumentsOmitted()}
	if slices.Contains(s.Flags, "agent") || slices.Contains(s.Flags, "agent-file") {
		a.From = schema.FromFlag
	}
	return a
}
