package schema

import "encoding/json"

// Lifecycle event types, the "type" key of an [Event]. RunStarted is first and
// RunFinished last in every run that was not interrupted.
const (
	RunStarted        = "run_started"
	RunFinished       = "run_finished"
	ProcessStarted    = "process_started"
	ProcessExited     = "process_exited"
	StartFailed       = "start_failed"
	SignalForwarded   = "signal_forwarded"
	Stopped           = "stopped"
	Continued         = "continued"
	Timeout           = "timeout"
	Cancelled         = "cancelled"
	LimitHit          = "limit_hit"
	OOMKill           = "oom_kill"
	LeftoversKilled   = "leftovers_killed"
	ContainerStarting = "container_starting"
	ContainersEnded   = "containers_ended"
	CaptureTruncated  = "capture_truncated"
	RecorderError     = "recorder_error"
	CheckStarted      = "check_started"
	CheckCompleted    = "check_completed"
	CheckpointMade    = "checkpoint"
	Attached          = "attached"
	Detached          = "detached"
)

// Event is one line of events.ndjson. Fields that a type does not use are left
// out of its line.
type Event struct {
	Schema string `json:"schema"` // EventV0
	RunID  string `json:"run_id"`
	Seq    uint64 `json:"seq"`
	Type   string `json:"type"`
	// TNS is nanoseconds of CLOCK_BOOTTIME since run_started.
	TNS int64 `json:"t_ns"`

	// run_started
	AgentShim *string  `json:"agent_shim,omitempty"`
	Command   []string `json:"command,omitempty"`
	EnvKeys   []string `json:"env_keys,omitzero"`

	// run_finished and process_exited. ExitCode is null and Signal set when a
	// signal ended the child, whose name is SignalName; both are null when it
	// never ran.
	ExitCode *Nullable[int]          `json:"exit_code,omitempty"`
	Signal   *Nullable[SignalNumber] `json:"signal,omitempty"`
	Success  *bool                   `json:"success,omitempty"`

	// run_started and run_finished: milliseconds since run_started.
	WindowElapsedMS *int64 `json:"window_elapsed_ms,omitempty"`

	// PID is the process the event is about: started, exited or signalled.
	PID int `json:"pid,omitempty"`
	// SignalName is the signal that was forwarded or sent, or that ended the
	// child (SIGTERM, ...).
	SignalName string `json:"signal_name,omitempty"`
	// Limit names the limit that was hit: memory, pids or cpus.
	Limit string `json:"limit,omitempty"`
	// Count is how many times (oom_kill, limit_hit) or how many (leftovers).
	Count int64 `json:"count,omitempty"`
	// Processes names the leftovers that were killed, 64 at the most.
	Processes []Leftover `json:"processes,omitempty"`
	// Containers are those that outlived the command and were ended, 64 at the most; or
	// the one that the process PID asks Docker to start (container_starting).
	Containers []Container `json:"containers,omitempty"`
	// Stream and Bytes tell which capture was cut and after how many bytes.
	Stream string `json:"stream,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	// Cgroup is the cgroup2 directory that was attached to; Count then is how many
	// processes were there already. Code and Message say why it was detached from.
	Cgroup string `json:"cgroup,omitempty"`
	// Code and Message explain start_failed and recorder_error.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Check is the name of an outcome contract's check.
	Check string `json:"check,omitempty"`
	// Phase tells the check_* events of a baseline from those of the final
	// evaluation: baseline or final.
	Phase string `json:"phase,omitempty"`
	// Passed, DurationMS and OutputTail are check_completed's, which has an ExitCode, too.
	// The tail is the last 1 KiB of the check's output.
	Passed     *bool  `json:"passed,omitempty"`
	DurationMS *int64 `json:"duration_ms,omitempty"`
	OutputTail string `json:"output_tail,omitempty"`
	// Checkpoint is checkpoint's.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
}

// SignalNumber is the number of a signal. Older builds wrote its name in that
// place: Name then has it, and Number is 0.
type SignalNumber struct {
	Number int
	Name   string
}

// MarshalJSON writes the number.
func (s SignalNumber) MarshalJSON() ([]byte, error) { return json.Marshal(s.Number) }

// UnmarshalJSON reads a number or a name.
func (s *SignalNumber) UnmarshalJSON(b []byte) error {
	*s = SignalNumber{}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &s.Name)
	}
	return json.Unmarshal(b, &s.Number)
}

// Leftover is a process that outlived the main child.
type Leftover struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// ContainerID is the container that it was in.
	ContainerID string `json:"container_id,omitempty"`
}

// Container is a container that the run started. All but the id is what an engine
// told, or empty.
type Container struct {
	ID     string `json:"id"`
	Engine string `json:"engine,omitempty"`
	Name   string `json:"name,omitempty"`
	Image  string `json:"image,omitempty"`
}

// Nullable is a JSON value that is written as null when not Valid. Behind a
// pointer with omitempty it tells "null" from "absent".
type Nullable[T any] struct {
	Value T
	Valid bool
}

// Some is a Nullable that holds v; None one that is null.
func Some[T any](v T) *Nullable[T] { return &Nullable[T]{Value: v, Valid: true} }

// None is a Nullable that is written as null.
func None[T any]() *Nullable[T] { return &Nullable[T]{} }
