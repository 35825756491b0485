package runner

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/assay-run/assay-run/cgroup"
	"github.com/assay-run/assay-run/runner/internal/evidence"
	"github.com/assay-run/assay-run/runner/model/tape"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/contractfile"
	"github.com/assay-run/assay-run/schema/policyfile"
	"github.com/assay-run/assay-run/schema/redact"
)

// SearchSlow is how long a search takes before Options.OnSearch is called: users wonder why nothing happens.
const SearchSlow = time.Second

// Options are what a run needs besides its spec.
type Options struct {
	// Contained is the result of Contain for the same spec and options. Nil: Run makes it.
	Contained *Contained
	// Recorder takes the layers and documents.
	Recorder Recorder
	// Redactor removes secrets from everything before Recorder gets it; nil records them. It should know the secrets
	// of the command's environment (see Secrets).
	Redactor *redact.Redactor
	// TurnsFile is the file to which Recorder appends the turns layer. The gateway reads traces and subscriptions
	// from it. Empty: it refuses them.
	TurnsFile string
	// Policy is the parsed file of Spec.Policy; nil: Run reads it.
	Policy *policyfile.File
	// Evaluation is the parsed file of Spec.Evaluation. If it is nil, Run reads the file. It is ignored if
	// Spec.Evaluation is empty.
	Evaluation *schema.Evaluation
	// Contract is what Spec.Contract says. If it is nil, Run reads the file. It is ignored if Spec.Contract is empty.
	Contract *contractfile.Loaded
	// Replay has the answers of the bundle that Spec.Model.Replay names. It is used only with that.
	Replay *tape.Cassette
	// Audit gets every call event of the gateway, in addition to the bundle. A sink that is too slow or fails misses
	// events; observation-health.json counts them.
	Audit []AuditSink
	// Evidence lists directories that a sandboxed command must not reach, at least those of the recorder's files. Nil
	// means ScratchDir.
	Evidence []string
	// ScratchDir is an existing directory for temporary files; the caller removes it after the run. Empty keeps
	// everything in memory.
	ScratchDir string
	// Stdin, Stdout and Stderr are the command's. assay-run writes nothing of its own to them.
	Stdin, Stdout, Stderr *os.File
	// Signals are forwarded to the command. SIGTERM ends the run after the grace, a second SIGINT or SIGTERM at once.
	// Before the command runs, the first SIGINT or SIGTERM ends the run. Nil forwards none.
	Signals <-chan os.Signal
	// OnState is called when the run enters a state, by one goroutine at a time. It may be nil. The caller of Run
	// adds StateReleasing.
	OnState func(State)
	// Ready is called once before the first command of the run starts, and may block. A caller can use it to finish
	// its own preparation, such as catching signals, while the run is prepared. An error keeps the command from
	// starting. It may be nil.
	Ready func() error
	// Freeing, if set, lets Run return before the clean-up that does not affect the evidence: the kernel frees the
	// observer's maps, and the guard exits. The caller must wait for it before the process exits. If it is nil, Run
	// waits.
	Freeing *sync.WaitGroup
	// OnOutputError is called once for each of Stdout, Stderr and the terminal that could not be written,
	// except when its reader left: then the command's own next write fails with EPIPE, or SIGPIPE ends it.
	// It is called while the command runs, from any goroutine. It may be nil.
	OnOutputError func(stream string, err error)
	// OnLoss is called when evidence could not be written, such as on a full disk, and is missing from the
	// bundle or a sink; observation-health.json has the same reason. It is called from any goroutine. It
	// may be nil.
	OnLoss func(schema.Reason)
	// OnDenied is called once for each target to which the sandbox denied connections, and once
	// for each program and directory for which it denied writes, with what would allow them. It
	// is called while the command runs or after it, from any goroutine. It may be nil.
	OnDenied func(what, remedy string)
	// OnSwept is called before the command starts, with the runs of dead runners whose processes were ended. It may
	// be nil.
	OnSwept func([]cgroup.Swept)
	// OnRealHome is called before the command starts in a sandbox if its home is real although nobody asked for that.
	// It may be nil.
	OnRealHome func(reason string)
	// OnSearch is called if the search for files that programs outside of the sandbox obey takes longer than
	// SearchSlow, before the command starts or after it. dir is one of the directories searched. OnSearch is called
	// from any goroutine, and may be nil.
	OnSearch func(dir string)
	// OnHealth is called with observation-health.json once it is complete. It must not keep the document after Run
	// returns. It may be nil.
	OnHealth func(*schema.ObservationHealth)
	// OnCheck is called when a check of the outcome contract starts and when it has ended, from
	// any goroutine. It may be nil.
	OnCheck func(name string, ended bool)
	// OnContract is called with contract.json once the outcome contract has been evaluated. It may be nil.
	OnContract func(*schema.Contract)

	// unusable is why the file of Spec.Evaluation cannot be used.
	unusable error
}

// AuditSink receives call events, one per line. One goroutine at a time uses the Writer, and nothing closes it. Run
// waits 5 s for it; a Write that blocks longer outlives Run.
type AuditSink struct {
	Name   string // in metrics and messages
	Writer io.Writer
}

// Recorder is where a run leaves what it recorded. archive.Spool is one. All methods are safe for concurrent use.
type Recorder = evidence.Recorder

// State is a stage of a run. In each state, SIGTERM or a second SIGINT ends the run. Until the command has ended, so
// does its timeout.
type State string

// The states, in order. A run whose command does not start goes from StateStarting or an earlier state to
// StateSealing.
const (
	// StatePreparing prepares containment, sandbox and observer, and evaluates the contract's baseline.
	StatePreparing State = "preparing"
	// StateSelfTest checks that the observer sees a process of the session.
	StateSelfTest State = "self-test"
	// StateStarting starts the command.
	StateStarting State = "starting"
	// StateRunning lasts until every process of the command has ended.
	StateRunning State = "running"
	// StateDraining waits until the command's output has been passed on.
	StateDraining State = "draining"
	// StateChecking evaluates the contract.
	StateChecking State = "checking"
	// StateSealing writes the documents and the bundle. Run returns in it.
	StateSealing State = "sealing"
	// StateReleasing reports to the user, and waits until guard and observer are freed.
	StateReleasing State = "releasing"
)
