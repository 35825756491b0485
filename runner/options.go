package runner

import (
	"io"
	"os"
	"sync"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/model/tape"
	"github.com/assay-run/assay-run/runner/policy"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/redact"
)

// Options are what a run needs from the world around it.
type Options struct {
	// Contained is what Contain has begun to make of the same spec and options. Nil
	// makes it.
	Contained *Contained
	// Recorder takes the layers and documents.
	Recorder Recorder
	// Redactor takes the secrets out of everything before Recorder gets it; nil
	// records them. It should know those of the command's environment (see
	// Spec.Secrets).
	Redactor *redact.Redactor
	// TurnsFile is the file that Recorder appends the turns layer to. The
	// gateway's traces and subscriptions read it; empty refuses them.
	TurnsFile string
	// Policy is what the file that Spec.Policy names says; nil reads it.
	Policy *policy.File
	// Replay has the answers of the bundle that Spec.Model.Replay names, without which it is not used.
	Replay *tape.Cassette
	// Audit gets every call event that comes through the gateway, besides the bundle. A sink that is too
	// slow or fails misses events; observation-health.json counts them.
	Audit []AuditSink
	// Evidence are directories that a sandboxed command must not reach, at least those with the recorder's
	// files. Nil means ScratchDir.
	Evidence []string
	// ScratchDir is an existing directory for files that do not outlive the
	// run; whoever made it removes it. Empty keeps everything in memory.
	ScratchDir string
	// Stdin, Stdout and Stderr are the child's. Nothing of ours is written
	// there.
	Stdin, Stdout, Stderr *os.File
	// Signals are forwarded to the child as they arrive. SIGTERM ends the run after the
	// grace, a second SIGINT or SIGTERM at once, and the first of them if the command does
	// not run yet. Nil forwards none.
	Signals <-chan os.Signal
	// OnState is called when the run enters a state, from one goroutine at a time. It may be
	// nil. The caller of Run adds StateReleasing.
	OnState func(State)
	// Ready is called once, before the first command of the run starts, and may block. A caller can so do
	// what must be done by then, such as catching signals, while the run is prepared. An error keeps the
	// command from starting. It may be nil.
	Ready func() error
	// Freeing, if set, lets Run return before the clean-up that does not affect the
	// evidence: the kernel frees the observer's maps, and the guard exits. The caller
	// waits for it before the process ends. If it is nil, Run waits.
	Freeing *sync.WaitGroup
	// OnOutputError is called once for each of Stdout, Stderr and the terminal that could not be written,
	// except when its reader left: then the command's own next write fails with EPIPE, or SIGPIPE ends it.
	// It is called while the command runs, from any goroutine. It may be nil.
	OnOutputError func(stream string, err error)
	// OnLoss is called when evidence could not be written, such as on a full disk, and is missing from the
	// bundle or a sink; observation-health.json has the same reason. It is called from any goroutine. It
	// may be nil.
	OnLoss func(schema.Reason)
	// OnDenied is called once for each target to which the sandbox denied connections, with
	// what would allow them. It is called while the command runs or after it, from any
	// goroutine. It may be nil.
	OnDenied func(target, remedy string)
	// OnSwept is called before the command starts, with the other runs whose processes were ended because
	// their runner is dead. It may be nil.
	OnSwept func([]cgroup.Swept)
	// OnHealth is called with observation-health.json once it is complete. It must not keep the document
	// after Run has returned. It may be nil.
	OnHealth func(*schema.ObservationHealth)
	// OnCheck is called when a check of the outcome contract starts and when it has ended, from
	// any goroutine. It may be nil.
	OnCheck func(name string, ended bool)
	// OnContract is called with contract.json once the outcome contract has been evaluated. It may be nil.
	OnContract func(*schema.Contract)
}

// AuditSink is a place for call events, a line each. The Writer is used by one
// goroutine at a time, and not closed. Run waits 5 s for it; a Write that blocks
// for longer outlives Run.
type AuditSink struct {
	Name   string // in metrics and messages
	Writer io.Writer
}

// Recorder is where a run leaves what it observed. archive.Spool is one. All
// methods are safe for concurrent use.
type Recorder = evidence.Recorder

// State is a stage of a run. In each state, SIGTERM or a second SIGINT ends the run, and until
// the command is gone, so does its timeout.
type State string

// The states, in their order. A run whose command does not start goes from StateStarting or an
// earlier state to StateSealing.
const (
	// StatePreparing makes what holds, confines and observes the command, and evaluates the baseline
	// of the contract.
	StatePreparing State = "preparing"
	// StateSelfTest makes sure that the observer sees a process of the session.
	StateSelfTest State = "self-test"
	// StateStarting starts the command.
	StateStarting State = "starting"
	// StateRunning lasts until nothing of the command is left.
	StateRunning State = "running"
	// StateDraining waits until the command's output has been read.
	StateDraining State = "draining"
	// StateChecking evaluates the contract.
	StateChecking State = "checking"
	// StateSealing writes the documents and the bundle. Run returns in it.
	StateSealing State = "sealing"
	// StateReleasing tells the user, and waits until guard and observer are free.
	StateReleasing State = "releasing"
)

// States lists the states in their order.
func States() []State {
	return []State{
		StatePreparing, StateSelfTest, StateStarting, StateRunning, StateDraining, StateChecking, StateSealing,
		StateReleasing,
	}
}
