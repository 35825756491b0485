package schema

import (
	"fmt"
	"strings"
	"time"
)

// Outcomes of a run.
const (
	OutcomeExited       = "exited"
	OutcomeSignaled     = "signaled"
	OutcomeTimeout      = "timeout"
	OutcomeOOM          = "oom"
	OutcomeLimit        = "limit"
	OutcomeCancelled    = "cancelled"
	OutcomePolicyKilled = "policy_killed"
	OutcomeInfraError   = "infra_error"
	OutcomeIncomplete   = "incomplete"
	// OutcomeReported is a run that had no command of ours: a client of
	// assay-run serve told of its end, in session.json.
	OutcomeReported = "reported"
	// OutcomeDetached is a run that somebody else started, and that assay-run attach
	// observed: how it ended is not known.
	OutcomeDetached = "detached"
)

// Error sources: whose failure made a run end otherwise than by its child's
// own exit.
const (
	SourceChild    = "child"    // the command: not found, not executable
	SourceRunner   = "runner"   // assay-run itself or the host under it
	SourceSandbox  = "sandbox"  // containment could not be set up
	SourceContract = "contract" // an outcome contract failed or was inconclusive
)

// Exit codes of assay-run itself. A command may exit with the same numbers; result.json tells them apart.
const (
	ExitContractFailed       = 122 // if the command exited with 0
	ExitContractInconclusive = 123 // the same
	ExitTimeout              = 124
	ExitRunner               = 125
	ExitNotExecutable        = 126
	ExitNotFound             = 127
)

// CodeContainers is the error code of a run whose containers could not be put into its cgroup.
const CodeContainers = "containers_failed"

// Result is result.json: how the run ended and what it used.
type Result struct {
	Schema  string `json:"schema"` // ResultV0
	RunID   string `json:"run_id"`
	Outcome string `json:"outcome"`
	// ErrorSource is null when nothing went wrong but the child's own exit.
	ErrorSource *string      `json:"error_source"`
	Error       *ResultError `json:"error,omitempty"`
	// ExitCode is the child's own; null when it was killed or never ran.
	ExitCode *int `json:"exit_code"`
	// Signal is the name of the signal that ended the child, else null.
	Signal *string `json:"signal"`
	// RunnerExitCode is what assay-run exited with; null in a recovered bundle.
	RunnerExitCode *int `json:"runner_exit_code"`
	// LimitsHit names the limits the kernel enforced during the run; evaded is in it
	// where a process left a cgroup that had one. Those of the model budget are there
	// if they kept a request from being sent.
	LimitsHit []string `json:"limits_hit"`
	Limits    Limits   `json:"limits"`
	Usage     Usage    `json:"usage"`
	Stdio     Stdio    `json:"stdio"`
	Timings   Timings  `json:"timings"`
	// Leftovers is how many processes outlived the main child, null when nobody
	// looked.
	Leftovers *int `json:"leftovers"`
	// Survivors is how many of them were killed and did not end before the run was
	// sealed; absent for none.
	Survivors int `json:"survivors,omitzero"`
	// StartedAt and EndedAt are the wall clock when the runner began and when the run was over, RFC 3339 in UTC;
	// EndedAt is absent in recovered bundles. Nothing is ordered by them.
	StartedAt string `json:"started_at,omitzero"`
	EndedAt   string `json:"ended_at,omitzero"`
	// KernelState, TamperResistance and EventsDropped, the events that all layers dropped, repeat
	// observation-health.json. They are absent in recovered bundles.
	KernelState      string  `json:"kernel_state,omitzero"`
	TamperResistance string  `json:"tamper_resistance,omitzero"`
	EventsDropped    *uint64 `json:"events_dropped,omitzero"`
	// Contract is the outcome contract's verdict, null without a contract.
	Contract *string `json:"contract"`
	// ContractReasons repeats why contract.json has another verdict than passed; absent for none.
	ContractReasons []string `json:"contract_reasons,omitzero"`
	// Checks says how each check of the contract went, in the contract's order;
	// contract.json has the rest. Absent without a contract.
	Checks []CheckSummary `json:"checks,omitzero"`
	// Model is what the requests to models used; absent without a model gateway.
	Model *ModelTotals `json:"model,omitzero"`
	// Labels are those of the run; absent without any.
	Labels map[string]string `json:"labels,omitzero"`
	// Bundle is the base name of the bundle and Identity what identifies it. They
	// stand in the file of --result only: no bundle can contain its own identity.
	Bundle   string `json:"bundle,omitzero"`
	Identity string `json:"identity,omitzero"`
}

// Ending says in a few words how the run went, such as "exited 0 after 67ms".
// run gives the limits that may have ended it.
func (r *Result) Ending(run *Run) string {
	var took time.Duration
	if ns := r.Timings.ChildNS; ns != nil {
		took = time.Duration(*ns).Round(time.Millisecond)
	}
	switch r.Outcome {
	case OutcomeExited:
		if r.ExitCode != nil {
			return fmt.Sprintf("exited %d after %v", *r.ExitCode, took)
		}
	case OutcomeSignaled:
		if r.Signal != nil {
			return fmt.Sprintf("ended by %s after %v", *r.Signal, took)
		}
	case OutcomeTimeout:
		if limit := time.Duration(run.TimeoutMS) * time.Millisecond; limit > 0 {
			took = limit
		}
		return fmt.Sprintf("timed out after %v", took)
	case OutcomeOOM:
		if r.Limits.MemoryBytes > 0 {
			return fmt.Sprintf("killed: out of memory (limit %s)", wholeSize(r.Limits.MemoryBytes))
		}
		return "killed: out of memory"
	case OutcomeInfraError:
		return "not run"
	case OutcomeIncomplete:
		return "incomplete: the recorder ended before the run"
	}
	if r.Timings.ChildNS == nil {
		return strings.ReplaceAll(r.Outcome, "_", " ")
	}
	return fmt.Sprintf("%s after %v", strings.ReplaceAll(r.Outcome, "_", " "), took)
}

// Limits of the model budget, in Result.LimitsHit.
const (
	LimitModelRequests = "model_requests"
	LimitModelTokens   = "model_tokens"
	LimitModelCost     = "model_cost"
)

// ModelTotals are the requests to models of a run.
type ModelTotals struct {
	Requests uint64 `json:"requests"` // refused ones included
	Refused  uint64 `json:"refused"`  // by the gateway
	// ModelUsage sums the counts in the answers. A count is nil if no answer has it.
	ModelUsage
	// UsageUnknown counts the answers that do not say how many tokens they used.
	UsageUnknown uint64 `json:"usage_unknown"`
	// Cost is the sum of those that are known, and CostUnknown counts the answers whose cost is not.
	Cost        *float64 `json:"cost"`
	CostUnknown uint64   `json:"cost_unknown"`
	// ProviderFetches counts the requests that made the provider load, read or run something for the agent.
	// FetchedHosts are the first of the hosts that they name.
	ProviderFetches uint64   `json:"provider_fetches,omitzero"`
	FetchedHosts    []string `json:"fetched_hosts,omitzero"`
	// Replay is there in a run that replays a bundle.
	Replay *ModelReplay `json:"replay,omitzero"`
}

// ModelReplay is how a replay went.
type ModelReplay struct {
	Answers  uint64 `json:"answers"`           // that came from the bundle
	Drifted  uint64 `json:"drifted"`           // of them, to requests that differ from the recorded ones in words
	Redacted uint64 `json:"redacted,omitzero"` // of them, those that secrets had been taken out of
	Misses   uint64 `json:"misses"`            // requests that have no answer
	Unused   uint64 `json:"unused"`            // answers that no request had
	// FirstMiss is why the first of the misses has no answer. Empty: there is none.
	FirstMiss string `json:"first_miss,omitzero"`
}

// ResultError says what went wrong and what to do.
type ResultError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Usage is what the command and all it started consumed, from the kernel's
// accounting of their cgroup; an outcome contract's checks are not in it. What
// the host cannot tell is null, never 0, and so is a peak that a contract's
// baseline had reached before.
type Usage struct {
	CPUUserNS       *int64 `json:"cpu_user_ns"`
	CPUSystemNS     *int64 `json:"cpu_system_ns"`
	MemoryPeakBytes *int64 `json:"memory_peak_bytes"`
	PidsPeak        *int64 `json:"pids_peak"`
	IOReadBytes     *int64 `json:"io_read_bytes"`
	IOWriteBytes    *int64 `json:"io_write_bytes"`
	// Processes is how many processes there were in all.
	Processes *int64 `json:"processes"`
	// OOMKills is how many processes the kernel's OOM killer ended.
	OOMKills *int64 `json:"oom_kills"`
}

// ModelUsage counts tokens. Nil means unknown, not 0.
type ModelUsage struct {
	InputTokens              *int64 `json:"input_tokens"` // including cached tokens
	CacheReadInputTokens     *int64 `json:"cache_read_input_tokens"`
	CacheCreationInputTokens *int64 `json:"cache_creation_input_tokens"`
	OutputTokens             *int64 `json:"output_tokens"` // including reasoning tokens
	ReasoningOutputTokens    *int64 `json:"reasoning_output_tokens"`
}

// Stdio counts the bytes of each stream, and those that were kept.
type Stdio struct {
	// Mode is pipe, terminal or passthrough (--no-capture), or StdioNone.
	Mode     string  `json:"mode"`
	Stdout   *Stream `json:"stdout"`
	Stderr   *Stream `json:"stderr"`
	Terminal *Stream `json:"terminal"`
	// StderrInStdout is true if stderr was the same open file as stdout (2>&1). Both are then in the member of
	// stdout, in the order they were written, and Stderr is null.
	StderrInStdout bool `json:"stderr_in_stdout"`
}

// StdioNone is the mode of a run that ended before its streams were set up.
const StdioNone = "none"

// Stream counts one captured stream, in bytes.
type Stream struct {
	Bytes     int64 `json:"bytes"`
	Captured  int64 `json:"captured"`
	Truncated bool  `json:"truncated"`
	// RedactedBytes is how many bytes redaction added to the copy; it is negative if the copy became shorter.
	// Captured - RedactedBytes bytes of the stream were kept.
	RedactedBytes int64 `json:"redacted_bytes,omitempty"`
}

// Timings are durations in nanoseconds on CLOCK_BOOTTIME. A duration is null if the recorder did not see its end.
type Timings struct {
	// SetupNS is from the runner's start to that of the child.
	SetupNS *int64 `json:"setup_ns"`
	// ChildNS is from the child's start (fork and exec included) to its exit.
	ChildNS *int64 `json:"child_ns"`
	// CleanupNS is from the child's exit until its cgroup was empty.
	CleanupNS *int64 `json:"cleanup_ns"`
}

// wholeSize writes bytes in the largest unit that has no fraction, such as 50 MiB.
func wholeSize(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	unit := 0
	for n != 0 && n%1024 == 0 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	return fmt.Sprintf("%d %s", n, units[unit])
}
