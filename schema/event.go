package schema

import (
	"cmp"
)

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
	ServersKept       = "servers_kept"
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
	ExitCode *Nullable[int] `json:"exit_code,omitempty"`
	Signal   *Nullable[int] `json:"signal,omitempty"`
	Success  *bool          `json:"success,omitempty"`

	// run_started and run_finished: milliseconds since run_started.
	WindowElapsedMS *int64 `json:"window_elapsed_ms,omitempty"`

	// PID is the process the event is about: started, exited or signalled.
	PID int `json:"pid,omitempty"`
	// SignalName is the signal that was forwarded or sent, or that ended the
	// child (SIGTERM, ...).
	SignalName string `json:"signal_name,omitempty"`
	// Limit names the limit that was hit: memory, pids or cpus.
	Limit string `json:"limit,omitempty"`
	// Count is the number of occurrences (oom_kill, limit_hit) or of processes (leftovers_killed, servers_kept,
	// attached).
	Count int64 `json:"count,omitempty"`
	// Processes names the leftovers that were killed, or the servers that were kept until the checks had run, at most
	// 64.
	Processes []Leftover `json:"processes,omitempty"`
	// Containers lists the containers that outlived the command and were ended, at most 64; or, of container_starting,
	// the one that process PID asks Docker to start.
	Containers []Container `json:"containers,omitempty"`
	// Stream and Bytes say which capture was cut, and after how many bytes.
	Stream string `json:"stream,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	// Cgroup is the cgroup2 directory that assay-run attached to. Count is then the number of processes that were
	// already there. Code and Message say why it detached.
	Cgroup string `json:"cgroup,omitempty"`
	// Code and Message explain start_failed and recorder_error.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Check is the name of an outcome contract's check.
	Check string `json:"check,omitempty"`
	// Phase is baseline or final: which evaluation of the contract a check_* event belongs to.
	Phase string `json:"phase,omitempty"`
	// Passed, DurationMS and OutputTail are for check_completed, which also has ExitCode.
	// OutputTail is the last 1 KiB of the check's output.
	Passed     *bool  `json:"passed,omitempty"`
	DurationMS *int64 `json:"duration_ms,omitempty"`
	OutputTail string `json:"output_tail,omitempty"`
	// Inherited lists at most [MaxInherited] descriptors. Of process_started: those that were opened before the run and
	// that the command inherited. Of attached: those of the processes that were already there.
	Inherited []Inherited `json:"inherited,omitempty"`
	// Checkpoint is for checkpoint.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
}

// MaxInherited bounds Event.Inherited.
const MaxInherited = 256

// Inherited is a descriptor that the command began with, or that a process had when it was attached to.
type Inherited struct {
	// PID is the process; only of attached.
	PID int `json:"pid,omitempty"`
	FD  int `json:"fd"`
	// Type is file, directory, device, pipe, socket or other.
	Type string `json:"type"`
	// Access is how it is open: read, write or read_write; empty for a path alone (O_PATH).
	Access string `json:"access,omitempty"`
	// Path is its path as the recorder sees it; empty for sockets and for pipes without a name.
	Path string `json:"path,omitempty"`
	// Protocol, Local and Peer describe a socket, as [KernelEvent] does. Peer is empty if the socket is not
	// connected, or is connected to a socket without a name.
	Protocol string `json:"protocol,omitempty"`
	Local    string `json:"local,omitempty"`
	Peer     string `json:"peer,omitempty"`
}

// Leftover is a process that outlived the main child.
type Leftover struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	// ContainerID is the container that it was in; empty for none.
	ContainerID string `json:"container_id,omitempty"`
	// LeftSession is true if it was in another session (setsid) than the main child, and Ours if it executed
	// the recorder's own program, as a sandbox does.
	LeftSession bool `json:"left_session,omitempty"`
	Ours        bool `json:"ours,omitempty"`
	// Serves are the ports of servers in the evaluation file on which the process listened, or one that it had started,
	// or one that had started it.
	Serves []int `json:"serves,omitempty"`
}

// Container is a container that the run started. All fields but ID are as the engine reported them, or empty.
type Container struct {
	ID     string `json:"id"`
	Engine string `json:"engine,omitempty"`
	Name   string `json:"name,omitempty"`
	Image  string `json:"image,omitempty"`
}

var lifecyclePattern = matcher(`^[a-z][a-z0-9_]{0,63}$`)

func (e *Event) read(d lineReader) error {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "schema":
			e.Schema, err = d.oneOf(EventV0)
		case "run_id":
			e.RunID, err = d.runID()
		case "seq":
			e.Seq, err = d.count()
		case "type":
			e.Type, err = d.matching(lifecyclePattern)
		case "t_ns":
			e.TNS, err = d.integer()
		case "agent_shim":
			e.AgentShim, err = pointer(d.text())
		case "command":
			e.Command, err = d.texts()
		case "env_keys":
			e.EnvKeys, err = d.texts()
		case "exit_code":
			e.ExitCode, err = nullable(d, d.int)
		case "signal":
			e.Signal, err = nullable(d, d.int)
		case "success":
			e.Success, err = pointer(d.boolean())
		case "window_elapsed_ms":
			if !d.null() {
				e.WindowElapsedMS, err = pointer(d.integer())
			}
		case "pid":
			e.PID, err = d.size()
		case "signal_name":
			e.SignalName, err = d.text()
		case "limit":
			e.Limit, err = d.text()
		case "count":
			e.Count, err = d.natural()
		case "processes":
			e.Processes, err = list(d, 64, d.leftover)
		case "containers":
			e.Containers, err = list(d, 64, d.container)
		case "stream":
			e.Stream, err = d.text()
		case "bytes":
			e.Bytes, err = d.natural()
		case "cgroup":
			e.Cgroup, err = d.text()
		case "code":
			e.Code, err = d.text()
		case "message":
			e.Message, err = d.text()
		case "check":
			e.Check, err = d.text()
		case "phase":
			e.Phase, err = d.oneOf("baseline", "final")
		case "passed":
			e.Passed, err = pointer(d.boolean())
		case "duration_ms":
			e.DurationMS, err = pointer(d.natural())
		case "output_tail":
			e.OutputTail, err = d.text()
		case "inherited":
			e.Inherited, err = list(d, MaxInherited, d.inherited)
		case "checkpoint":
			e.Checkpoint, err = pointer(d.checkpoint())
		default:
			err = d.skip()
		}
		return err
	})
	if err == nil {
		err = have.need("schema", "run_id", "seq", "type")
	}
	if err != nil {
		return err
	}
	switch e.Type {
	case RunStarted:
		return have.need("agent_shim", "command", "env_keys", "window_elapsed_ms")
	case RunFinished:
		return have.need("exit_code", "signal", "success", "window_elapsed_ms")
	case CheckpointMade:
		return have.need("checkpoint")
	}
	return nil
}

func (d lineReader) leftover() (l Leftover, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "pid":
			l.PID, err = d.size()
		case "name":
			l.Name, err = d.text()
		case "container_id":
			l.ContainerID, err = d.containerID()
		case "left_session":
			l.LeftSession, err = d.boolean()
		case "ours":
			l.Ours, err = d.boolean()
		case "serves":
			l.Serves, err = list(d, 64, d.size)
		default:
			err = d.skip()
		}
		return err
	})
	return l, cmp.Or(err, have.need("pid", "name"))
}

func (d lineReader) inherited() (i Inherited, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "pid":
			i.PID, err = d.size()
		case "fd":
			i.FD, err = d.size()
		case "type":
			i.Type, err = d.oneOf("file", "directory", "device", "pipe", "socket", "other")
		case "access":
			i.Access, err = d.oneOf("read", "write", "read_write")
		case "path":
			i.Path, err = d.text()
		case "protocol":
			i.Protocol, err = d.text()
		case "local":
			i.Local, err = d.text()
		case "peer":
			i.Peer, err = d.text()
		default:
			err = d.skip()
		}
		return err
	})
	return i, cmp.Or(err, have.need("fd", "type"))
}

func (d lineReader) container() (c Container, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "id":
			c.ID, err = d.containerID()
		case "engine":
			c.Engine, err = d.text()
		case "name":
			c.Name, err = d.text()
		case "image":
			c.Image, err = d.text()
		default:
			err = d.skip()
		}
		return err
	})
	return c, cmp.Or(err, have.need("id"))
}

func (d lineReader) checkpoint() (c Checkpoint, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "layers":
			c.Layers, err = records(d, d.layerTree)
		case "members":
			c.Members, err = records(d, d.memberBytes)
		case "run":
			c.Run, err = d.digest()
		default:
			err = d.skip()
		}
		return err
	})
	return c, cmp.Or(err, have.need("layers"))
}

func (d lineReader) layerTree() (t LayerTree, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "lines":
			t.Lines, err = d.count()
		case "root":
			t.Root, err = d.digest()
		default:
			err = d.skip()
		}
		return err
	})
	return t, cmp.Or(err, have.need("lines", "root"))
}

func (d lineReader) memberBytes() (m MemberBytes, err error) {
	have, err := d.object(func(key string) (err error) {
		switch key {
		case "bytes":
			m.Bytes, err = d.natural()
		case "sha256":
			m.SHA256, err = d.digest()
		default:
			err = d.skip()
		}
		return err
	})
	return m, cmp.Or(err, have.need("bytes", "sha256"))
}
