//go:build linux

package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/schema"
)

// Question is a worker's question. Answer has a buffer of one, so that answering never blocks; nil means no answer.
type Question struct {
	carrier.Question
	Answer chan<- *Welcome
}

// Config configures a Coordinator.
type Config struct {
	File *File
	// Dir is the suite's directory.
	Dir string
	// Version is that of assay-suite.
	Version string
	// Slots is how many tries the worker of this process runs at once. The coordinator keeps as many tries open, and
	// besides twice as many as the other workers run at once.
	Slots int
	// Lease is how long a worker and its tries may go without a heartbeat before they count as lost; zero means
	// DefaultLease.
	Lease time.Duration
	// LocalWorker is the name of the worker of this process, and LocalDir its directory. Both are empty if there is
	// none. A try that this worker began in an earlier process is dead. Only its bundles are taken from the disk.
	LocalWorker, LocalDir string
	// Reports are the workers' messages, and Questions their questions. WorkLost gets a value when NATS lost published
	// work.
	Reports   <-chan carrier.Message
	Questions <-chan Question
	WorkLost  <-chan struct{}
	// Examine verifies a bundle and judges it. An error means that the bundle cannot back a verdict.
	Examine func(context.Context, Exam) (*Examined, error)
	// CheckContract judges a bundle by a contract. Nil means that attempts whose contract was edited run again.
	CheckContract func(context.Context, ContractCheck) error
	// OnVerdict is called with each verdict, and OnNote with messages for the user, by the goroutine of Run. Both may
	// be nil.
	OnVerdict func(Attempt, *schema.SuiteTry)
	OnNote    func(string)
}

// lease is Lease, or its default.
func (c *Config) lease() time.Duration { return cmp.Or(c.Lease, DefaultLease) }

// Coordinator opens tries and decides them. It is not safe for concurrent use.
type Coordinator struct {
	config   Config
	now      func() time.Time // a monotonic clock: only differences count
	note     notes
	history  *history
	sources  map[string]source // of the workspaces, by task
	machines *machines
	fleet    *fleet
	schedule *schedule
	inputs   *inputs
}

// Open opens the suite's directory for a coordinator. It creates the directory if it does not exist.
func Open(c Config) (*Coordinator, error) { return open(c, time.Now, firstPause) }

func open(c Config, now func() time.Time, pause time.Duration) (*Coordinator, error) {
	if err := c.checkDir(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	desc, err := c.File.Describe()
	if err != nil {
		return nil, err
	}
	note := notes(c.OnNote)
	on := newMachines(note)
	h, err := openHistory(c.File, c.Dir, desc, now, note, on)
	if err != nil {
		return nil, err
	}
	sources, err := prepareSources(c.File, c.Dir)
	if err != nil {
		return nil, errors.Join(err, h.ledger.Close())
	}
	return &Coordinator{config: c, now: now, note: note, history: h, sources: sources, machines: on,
		fleet:    newFleet(c.Slots, c.lease(), now, note),
		schedule: newSchedule(c.Dir, h.attempts, newPace(c.File.maxTries(), pause, h.blamed, now, note), note),
		inputs:   newInputs(c.File, c.Dir, desc, sources)}, nil
}

// ErrDirectory is wrapped by the errors of Open about a directory that the suite cannot use.
var ErrDirectory = errors.New("the suite cannot use this directory")

// checkDir checks that the suite's directory is not in a task's workspace.
func (c *Config) checkDir() error {
	for i := range c.File.Tasks {
		t := &c.File.Tasks[i]
		if t.Workspace == "" {
			continue
		}
		below, err := filepath.Rel(c.File.path(t.Workspace), c.Dir)
		if err == nil && filepath.IsLocal(below) {
			return fmt.Errorf("%w: %s is in the workspace of the task %s: choose another one", ErrDirectory, c.Dir,
				t.Name)
		}
	}
	return nil
}

// Close releases the directory. It is an error if another process changed the ledger meanwhile.
func (c *Coordinator) Close() error { return c.history.close() }

// ID is the suite's id, which is part of the names of its streams.
func (c *Coordinator) ID() string { return c.history.id }

// Run opens tries and gives them to workers until all attempts have a verdict. When ctx ends it opens no more tries.
// It returns when none is open. When kill ends it decides the open tries as interrupted, and returns.
func (c *Coordinator) Run(ctx, kill context.Context, over hub) error {
	return newCourse(c, over).run(ctx, kill)
}

// RuleRecorderKilled is the rule of the suspicion that the agent killed assay-run: a signal ended it that assay-suite
// did not send.
const RuleRecorderKilled = "recorder_killed"

// RuleFillsDisk is the rule of the suspicion that the agent filled the disk, or exceeded its limit.
const RuleFillsDisk = "fills_disk"

// Results returns the results of the suite so far.
func (c *Coordinator) Results() *schema.SuiteResults {
	r := &schema.SuiteResults{Schema: schema.SuiteResultsV0, Suite: c.config.File.Name,
		Attempts: []schema.SuiteAttempt{},
		Cells:    []schema.SuiteCell{}, Agents: []schema.SuiteAgent{}, Flaky: []string{},
		Definitions: c.history.desc.Definitions}
	for _, a := range c.history.attempts {
		r.Attempts = append(r.Attempts, c.result(a))
	}
	of := map[cell][]*schema.SuiteAttempt{}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		of[cell{a.Task, a.Agent}] = append(of[cell{a.Task, a.Agent}], a)
	}
	for _, t := range c.config.File.Tasks {
		for _, a := range c.config.File.Agents {
			if !c.config.File.excluded(t.Name, a.Name) {
				r.Cells = append(r.Cells, cellFigures(t.Name, a.Name, of[cell{t.Name, a.Name}]))
			}
		}
	}
	for _, cell := range r.Cells {
		if cell.Passed > 0 && cell.Passed < cell.Passed+cell.Failed+cell.Inconclusive {
			r.Flaky = append(r.Flaky, cell.Task+"/"+cell.Agent)
		}
	}
	for _, a := range c.config.File.Agents {
		r.Agents = append(r.Agents, agentFigures(a.Name, r))
	}
	r.Hosts = c.machines.sorted()
	return r
}

// Counts returns how many attempts have each verdict.
func (c *Coordinator) Counts() (all schema.SuiteRates) {
	for _, a := range c.history.attempts {
		r := schema.SuiteAttempt{}
		if v := a.verdict; v != nil && a.open == nil && !c.schedule.pace.needsTry(a) {
			r.Verdict, r.ClosedBook = &v.Verdict, v.ClosedBook
			if t, _ := c.history.blamed.try(a.Attempt, a.tries); t != nil {
				r.Verdict = new(schema.SuiteFailed)
			}
		}
		for _, t := range a.tries {
			r.Suspicions = append(r.Suspicions, t.Suspicions...)
			r.Unusual = append(r.Unusual, t.Unusual...)
		}
		all.Add(&r)
	}
	return all
}

func (c *Coordinator) result(a *attempt) schema.SuiteAttempt {
	r := schema.SuiteAttempt{ID: a.String(), Task: a.Task, Agent: a.Agent, Attempt: a.Attempt.Attempt,
		Identity: c.history.desc.Identities[a.Attempt], Tries: append([]schema.SuiteTry{}, a.tries...),
		Suspicions: []schema.Finding{}, Unknown: []string{}}
	if v := a.verdict; v != nil && v.Class != schema.SuiteInterrupted && v.Class != schema.SuiteNotBegun {
		r.Verdict, r.Reason, r.Bundle, r.ClosedBook = &v.Verdict, v.Reason, v.Bundle, v.ClosedBook
		r.Unknown = append(r.Unknown, v.Unknown...)
	} else if last := c.schedule.pace.stopped(a); last != nil && a.open == nil {
		r.Verdict = new(schema.SuiteInfrastructure)
		r.Reason = fmt.Sprintf("it was not tried: the machine failed %d times in a row (%s: %s)", maxFailures,
			last.Class, last.Reason)
	}
	for _, t := range a.tries { // suspicions of all tries count
		r.Suspicions = append(r.Suspicions, t.Suspicions...)
		r.Unusual = append(r.Unusual, t.Unusual...)
	}
	if t, why := c.history.blamed.try(a.Attempt, a.tries); t != nil && r.Verdict != nil {
		r.Verdict, r.Reason, r.Bundle = new(schema.SuiteFailed), why, t.Bundle
		if t.CausedBy == "" {
			r.Suspicions = append(r.Suspicions, provoked(why))
		}
	}
	return r
}
