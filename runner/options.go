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
	// Audit gets every call event that comes through the gateway, besides the
	// bundle. What a sink takes too slowly or not at all is missing there, and
	// observation-health.json tells how much.
	Audit []AuditSink
	// Evidence are directories that a sandboxed command must not reach: at least
	// where the recorder keeps its files. Nil stands for ScratchDir.
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
	// OnState is called when the run enters a state, from one goroutine at a time; nil tells
	// nobody. The caller of Run adds StateReleasing.
	OnState func(State)
	// Ready is called once, before the first command of the run starts, and may
	// take its time: what must be so by then, such as signals being caught, can
	// be made so while the run is prepared. An error keeps the command from starting.
	// Nil is ready.
	Ready func() error
	// Freeing, if it is set, lets Run return while what has no part in the evidence
	// is still on its way: the observer's maps in the kernel are freed, and the guard
	// is told to go. The caller waits for it before the process ends. With nil, Run waits.
	Freeing *sync.WaitGroup
	// OnOutputError is told once for each of Stdout and Stderr (and for the
	// terminal) that could not be written, for another reason than that its reader
	// left: the command's own next write then fails with EPIPE, or SIGPIPE ends
	// it. It is called while the command runs, from any goroutine; nil tells
	// nobody.
	OnOutputError func(stream string, err error)
	// OnLoss is told of evidence that could not be written, for want of space or
	// otherwise, and is missing from the bundle or a sink; observation-health.json
	// has the same reason. It is called from any goroutine; nil tells nobody.
	OnLoss func(schema.Reason)
	// OnDenied is told of each connection that the sandbox denied, once for each target, and of
	// what would allow it. It is called while the command runs or after it, from any
	// goroutine; nil tells nobody.
	OnDenied func(target, remedy string)
	// OnSwept is told, before the command starts, of other runs whose processes were
	// ended now because their runner is dead; nil tells nobody.
	OnSwept func([]cgroup.Swept)
	// OnHealth is given what the run claims of its evidence once that is known;
	// nil tells nobody. Only the functions of Options use it, before Run returns.
	OnHealth func(*schema.ObservationHealth)
	// OnCheck is told when a check of the outcome contract starts, and when it has ended. It is
	// called from any goroutine; nil tells nobody.
	OnCheck func(name string, ended bool)
	// OnContract is given contract.json once the outcome contract has been
	// evaluated; nil tells nobody.
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

// State is where a run is in its life. In each of them a run ends when it is told to: by SIGTERM
// or a second SIGINT or, until the command is gone, by its timeout.
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
	// StateDraining waits for whoever reads the command's output.
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
