//go:build linux

package suite

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/runner/suite/figures"
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/runner/suite/trial"
	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/modelfile"
)

const (
	// minFree is how many bytes the disk must have free for a new try.
	minFree = 2 << 30
	// maxFailures is how many infrastructure failures of one class in a row stop an agent at a task.
	maxFailures = 5
	// firstPause is the pause before the second try of an attempt. Each later pause is twice as long.
	firstPause = time.Second
	// providerPauses is how many first pauses an agent's attempts wait after its provider failed. Each failure in a row
	// doubles that, maxOutage times at most.
	providerPauses, maxOutage = 5, 6
	// tickTime is the time between two checks of the leases.
	tickTime = 200 * time.Millisecond
	// maxTickGap is the longest time between two checks of the leases that a busy machine explains. After a longer one,
	// leases are extended by it.
	maxTickGap = time.Second
	// maxWorkers and maxSlots limit what workers can claim.
	maxWorkers, maxSlots = 10_000, 10_000
)

// hub is the coordinator's end of a carrier; see [carrier.Hub].
type hub interface {
	Publish(ctx context.Context, key string, work any) (uint64, error)
	Recall(ctx context.Context) error
	Taken(ctx context.Context, number uint64) (bool, error)
	Fetch(ctx context.Context, name string, size int64, w io.Writer) error
	Forget(ctx context.Context, name string, size int64) error
	SendWorkspace(ctx context.Context, name string, r io.Reader) error
	Up() bool
}

// Question is a worker's question. Answer has a buffer of one, so that answering never blocks; nil means no answer.
type Question struct {
	carrier.Question
	Answer chan<- *Welcome
}

// Exam is a bundle to verify and to judge.
type Exam struct {
	Bundle string // path
	Rules  string // path of a file of rules for a gate; empty means none
	// AgentKeys are the routes to models whose keys are the agent's own: that the provider refuses one of these is not
	// the provider's failure.
	AgentKeys []string
	// Evaluation returns the evaluation definition to use instead of the bundle's own. Nil means to use that.
	Evaluation func(schema.EvaluationDefinition) schema.EvaluationDefinition
}

// Examined is what a verified bundle says.
type Examined struct {
	RunID    string
	Identity string
	Labels   map[string]string
	Result   *schema.Result
	// Broken says which of the task's own rules do not pass; empty if all do.
	Broken string
	// Suspicions are the findings of the rules for evaluations. Unknown names the rules that could not be decided.
	Suspicions []schema.Finding
	Unknown    []string
	// Unusual are the agent's own calls by which they could not be, and which no honest program is known to make.
	Unusual []string
	// Book is the state of the closed book; empty without one.
	Book string
	// ModelRequests counts the requests to models, and ModelFailed those of them that failed on the provider's side, or
	// that the gateway could not record. ModelError says how the first of these failed.
	ModelRequests, ModelFailed uint64
	ModelError                 string
	// ModelOutage means that one of these failed in a way that does not depend on what the agent sent.
	ModelOutage bool
}

// judge fills in the verdict of a try, and its figures, from what its bundle says.
func (e *Examined) judge(v *schema.SuiteTry) {
	res := e.Result
	d := decide(res, e.Broken)
	v.Verdict, v.Class, v.Reason = d.Verdict, d.Class, d.Reason
	v.ModelRequests, v.ModelFailed = e.ModelRequests, e.ModelFailed
	switch {
	case v.Verdict == schema.SuiteFailed && e.ModelRequests > 0 && e.ModelFailed == e.ModelRequests:
		v.Verdict, v.Class = schema.SuiteInfrastructure, schema.SuiteProvider
		if e.ModelOutage { // else the agent may have provoked it
			v.CausedBy = schema.CausedByProvider
		}
		v.Reason = fmt.Sprintf("%s to models failed on the provider's side (%s)",
			schema.Count(int(e.ModelRequests), "request", "requests, all of them,"), e.ModelError)
	case v.Class == schema.SuiteEngine, v.Class != "" && res.Timings.ChildNS == nil && res.Outcome ==
		schema.OutcomeInfraError:
		v.CausedBy = schema.CausedByHost // before the agent began
	}
	v.Identity, v.KernelState, v.ClosedBook = e.Identity, res.KernelState, e.Book
	v.Suspicions, v.Unknown, v.Unusual = e.Suspicions, e.Unknown, e.Unusual
	if res.Timings.ChildNS != nil {
		v.Seconds = new(float64(*res.Timings.ChildNS) / 1e9)
	}
	v.Tokens, v.Cost = used(res.Model)
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

// Coordinator opens tries and decides them. It is not safe for concurrent use.
type Coordinator struct {
	Config
	ledger        *ledger.Ledger
	hub           hub
	instance      string // of this process; random
	id            string // of the suite; random, and fixed when its directory is created
	desc          *Description
	sources       map[string]source // of the workspaces, by task
	attempts      []*attempt
	open          map[string]*try // by token
	examined      chan examination
	examining     int                      // examinations in progress
	judged        chan judged              // see rejudge
	judging       int                      // attempts that are being judged again
	refused       int                      // messages that were refused
	fetching      sync.Mutex               // held while a bundle is fetched
	saidDiskFull  bool                     // the user was told that the disk is full, and it still is
	killed        bool                     // the suite is interrupted
	lastTick      time.Time                // when expire last ran
	recalled      time.Time                // when recall last ran; zero means never
	toPublish     []*try                   // open tries
	workers       map[string]*remoteWorker // by instance
	saidNoWorkers bool                     // the user was told that there are no workers, and there still are none
	pause         time.Duration            // see firstPause
	now           func() time.Time         // a monotonic clock: only differences count
	hosts         map[schema.SuiteHost]bool
	failures      map[cell]*failures
	blamed        *blame
	outages       map[string]int       // how often in a row the provider failed, by agent
	hold          map[string]time.Time // when a held agent may try again; see providerPauses
	programs      map[string]string    // digests of the agents' programs, by agent
	inputs        map[cell]string      // see keepInputs
	longest       map[cell]float64     // the longest time of a try, in seconds
	turns         map[string]int       // how often each agent was chosen
	sent          chan sent            // see send
	sending       map[string]bool      // workspaces that are being sent, by digest
	unsent        map[string]error     // why workspaces could not be sent, by digest
}

// attempt is the state of one attempt.
type attempt struct {
	Attempt
	tries      []schema.SuiteTry // those with the attempt's present identity
	oldTries   int               // how many of tries were made by an earlier process
	lastNumber int               // of the last try of any identity
	open       *try              // nil if no try is open
	verdict    *schema.SuiteTry  // the last one; nil while there is none
	next       time.Time         // when the next try may be opened
	obsolete   []schema.SuiteTry // the last decided tries with another identity, from before an edit
	earlier    *earlier          // what is to be judged again, see rejudge; nil if nothing is
}

// outdated reports whether the attempt only has verdicts from before an edit of the suite.
func (a *attempt) outdated() bool { return len(a.obsolete) > 0 && len(a.tries) == 0 }

// openedTry is what the ledger says about a try that was opened.
type openedTry struct {
	of          Attempt
	number      int
	identity    string
	definitions map[string]map[string]string // those when it was opened
	decided     bool
}

// try is an open try.
type try struct {
	of        *attempt
	number    int
	token     string
	work      uint64    // its number on the carrier; 0 means that this process has not published it
	losses    int       // how often the carrier lost it
	taken     bool      // a worker took it
	began     bool      // a worker reported that it began
	lastHeard time.Time // when its last heartbeat or report came
	deciding  bool      // its end was reported, and its bundle is being examined
	host      *schema.SuiteHost
	instance  string // of the worker that began it; empty if it has not begun
}

// process identifies the process of a worker by its instance; empty for none. Only a digest is kept.
func process(instance string) string {
	if instance == "" {
		return ""
	}
	return shortDigest("process\x00"+instance, 8)
}

// remoteWorker is a worker of another process.
type remoteWorker struct {
	name      string
	slots     int
	lastHeard time.Time
}

// examination is the result of examining a bundle.
type examination struct {
	try     *try
	end     *tryEnd
	bundle  string // relative to Dir; empty if there is none
	found   *Examined
	problem string // why the bundle cannot back a verdict
	lost    bool   // the carrier lost the bundle
	message carrier.Message
}

// Open opens the suite's directory for a coordinator. It creates the directory if it does not exist.
func Open(c Config) (*Coordinator, error) {
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
	l, lines, cut, err := ledger.Open(c.Dir)
	if err != nil {
		return nil, err
	}
	co := &Coordinator{Config: c, ledger: l, instance: newToken(), desc: desc, open: map[string]*try{},
		examined: make(chan examination), judged: make(chan judged), sent: make(chan sent),
		sending: map[string]bool{}, unsent: map[string]error{}, hosts: map[schema.SuiteHost]bool{},
		failures: map[cell]*failures{}, blamed: newBlame(),
		outages: map[string]int{}, hold: map[string]time.Time{},
		programs: map[string]string{}, inputs: map[cell]string{},
		longest: map[cell]float64{}, turns: map[string]int{}, workers: map[string]*remoteWorker{}, pause: firstPause,
		now: time.Now}
	if cut > 0 {
		co.note("the last line of the ledger was incomplete and was cut off (%d bytes)", cut)
	}
	if err = co.load(lines); err == nil {
		err = co.prepare()
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return co, nil
}

// prepare decides what the workspaces of the tries are copies of: the task's workspace, or a copy of it that was made
// whole.
func (c *Coordinator) prepare() error {
	made := filepath.Join(c.Dir, "work", "workspaces")
	if err := workspace.Remove(made); err != nil {
		return err
	}
	c.sources = map[string]source{}
	by := map[string]source{} // by the name in the file
	for i := range c.File.Tasks {
		t := &c.File.Tasks[i]
		s := c.File.surveys[t.Workspace]
		if s == nil {
			continue
		}
		from, done := by[t.Workspace]
		if !done {
			from = source{c.File.path(t.Workspace), s.digest, s.place}
			if len(s.repositories) > 0 {
				own := filepath.Join(made, t.Name)
				err := os.MkdirAll(made, 0o700)
				if err == nil {
					err = s.prepare(context.Background(), from.path, own)
				}
				if err == nil {
					from.path = own
					from.digest, err = digestTree(own)
				}
				if err != nil {
					return fmt.Errorf("task %s: %w", t.Name, err)
				}
			}
			by[t.Workspace] = from
		}
		c.sources[t.Name] = from
	}
	return nil
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
func (c *Coordinator) Close() error { return errors.Join(c.ledger.Check(), c.ledger.Close()) }

func (c *Coordinator) note(format string, args ...any) {
	if c.OnNote != nil {
		c.OnNote(fmt.Sprintf(format, args...))
	}
}

// load rebuilds the state of the suite from its ledger. It writes the first line of a new ledger, closes the tries that
// an edit of the suite made obsolete, and records the edit.
func (c *Coordinator) load(lines []ledger.Line) error {
	if len(lines) == 0 {
		lines = []ledger.Line{{Kind: ledger.Created, Suite: c.File.Name, Token: newToken(),
			Definitions: c.desc.Definitions, Attempts: len(c.File.Attempted())}}
		if err := c.ledger.Append(lines...); err != nil {
			return err
		}
	} else if name := lines[0].Suite; name != c.File.Name {
		return fmt.Errorf("%w: %s is the directory of the suite %q, not of %q: choose another one", ErrDirectory, c.Dir,
			name, c.File.Name)
	}
	c.id = suiteID(lines[0].Suite, cmp.Or(lines[0].Token, c.Dir))
	all := map[Attempt]*attempt{}
	for _, a := range c.File.Attempted() {
		all[a] = &attempt{Attempt: a}
		c.attempts = append(c.attempts, all[a])
	}
	opened := map[string]*openedTry{}                  // by token
	obsolete := map[Attempt]string{}                   // the identities of attempt.obsolete
	definitions, total := c.desc.Definitions, len(all) // the last ones in the ledger
	for _, line := range lines {
		switch line.Kind {
		case ledger.Created, ledger.Edited:
			definitions, total = line.Definitions, line.Attempts
		case ledger.Back:
			c.blamed.lives(process(line.Instance), line.Stopped)
		case ledger.Opened:
			opened[line.Token] = &openedTry{of: line.Attempt, number: line.Try, identity: line.Identity,
				definitions: definitions}
		}
		o := opened[line.Token]
		if o == nil { // a verdict after judging again, which has the identity in its own line
			o = &openedTry{identity: line.Identity, definitions: definitions}
		}
		o.decided = o.decided || line.Kind == ledger.Verdict
		a := all[line.Attempt]
		if a == nil {
			continue // the task or the agent was removed from the suite
		}
		current := o.identity == c.desc.Identities[line.Attempt]
		switch line.Kind {
		case ledger.Opened:
			a.lastNumber = max(a.lastNumber, line.Try)
			if current {
				a.open = &try{of: a, number: line.Try, token: line.Token, lastHeard: c.now()}
			}
		case ledger.Began:
			if a.open != nil && a.open.token == line.Token {
				a.open.began, a.open.taken, a.open.host, a.open.instance = true, true, line.Host, line.Instance
			}
			if current && line.Host != nil {
				c.noteHost(line.Agent, *line.Host)
			}
		case ledger.Verdict:
			if a.open != nil && a.open.token == line.Token {
				a.open = nil
			}
			a.lastNumber, a.earlier = max(a.lastNumber, line.Try), nil
			if current {
				c.addVerdict(a, line.Verdict)
				break
			}
			if o.identity != obsolete[line.Attempt] {
				obsolete[line.Attempt], a.obsolete = o.identity, nil
			}
			a.obsolete = append(a.obsolete, *line.Verdict)
			a.earlier = c.toRejudge(line.Attempt, a.obsolete, o.definitions)
		}
	}
	for _, a := range c.attempts {
		a.oldTries = len(a.tries)
		if a.open != nil {
			c.open[a.open.token] = a.open
		}
	}
	for token, o := range opened {
		if o.decided || c.open[token] != nil {
			continue
		}
		if err := c.abandon(token, o); err != nil {
			return err
		}
	}
	return c.recordEdit(definitions, total)
}

// abandon closes an open try that an edit of the suite made obsolete.
func (c *Coordinator) abandon(token string, o *openedTry) error {
	return c.ledger.Append(ledger.Line{Kind: ledger.Verdict, Attempt: o.of, Try: o.number, Token: token,
		Verdict: &schema.SuiteTry{Try: o.number, RunID: runID(token), Verdict: schema.SuiteInfrastructure,
			Class: schema.SuiteInterrupted, Reason: "the suite was edited"}})
}

// recordEdit compares the suite with the old definitions and number of attempts in the ledger. If it was edited, it
// tells the user what changed and which attempts that makes outdated, and adds the new definitions to the ledger.
func (c *Coordinator) recordEdit(old map[string]map[string]string, total int) error {
	judged, again, keys := c.outdated()
	if judged > 0 {
		c.note("the suite has changed (%s): %s will be judged again, without running an agent",
			strings.Join(keys, ", "), schema.Count(judged, "attempt", "attempts"))
	}
	if again > 0 {
		c.note("the suite has changed: %s will run again; the earlier bundles are kept",
			schema.Count(again, "attempt", "attempts"))
	}
	changed := false
	for _, what := range slices.Sorted(maps.Keys(c.desc.Definitions)) {
		keys := figures.ChangedKeys(old[what], c.desc.Definitions[what])
		changed = changed || len(keys) > 0
		if old[what] == nil {
			continue
		}
		var concerned []string
		for _, a := range c.attempts {
			if a.outdated() && a.earlier == nil && (what == "task "+a.Task || what == "agent "+a.Agent) {
				concerned = append(concerned, a.String())
			}
		}
		if len(keys) > 0 && len(concerned) > 0 {
			c.note("%s: %s changed; will run again: %s", what, strings.Join(keys, ", "), list(concerned))
		}
	}
	if !changed && len(old) == len(c.desc.Definitions) && total == len(c.attempts) {
		return nil
	}
	return c.ledger.Append(ledger.Line{Kind: ledger.Edited, Definitions: c.desc.Definitions,
		Attempts: len(c.attempts)})
}

// noteHost adds a machine to the results. It tells the user how the machine differs from the others.
func (c *Coordinator) noteHost(agent string, h schema.SuiteHost) {
	if c.hosts[h] {
		return
	}
	for other := range c.hosts {
		if other.AssayRun != h.AssayRun || other.Kernel != h.Kernel {
			c.note("%s has %s on %s, but %s has %s on %s: their results may differ", h.Worker, h.AssayRun, h.Kernel,
				other.Worker, other.AssayRun, other.Kernel)
			break
		}
	}
	if before, ok := c.programs[agent]; ok && before != h.AgentDigest {
		c.note("the program of the agent %s on %s differs from that on another worker", agent, h.Worker)
	}
	c.hosts[h], c.programs[agent] = true, h.AgentDigest
}

// list joins the first ten names.
func list(names []string) string {
	const maxNames = 10
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}

// runID is the id of the run for the try with the given token. Agents know the id. It is a digest, so that they cannot
// learn the token, with which they could report a result.
func runID(token string) string { return "try_" + shortDigest("run\x00"+token, 16) }

// suiteID is the id of a suite in NATS: its name, and a digest that tells it from others of that name.
func suiteID(name, token string) string {
	return carrier.Name(name[:min(len(name), 40)]) + "-" + shortDigest("suite\x00"+token, 6)
}

func shortDigest(s string, bytes int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:bytes])
}

// ID is the suite's id, which is part of the names of its streams.
func (c *Coordinator) ID() string { return c.id }

// addVerdict adds a try's verdict to the state.
func (c *Coordinator) addVerdict(a *attempt, v *schema.SuiteTry) {
	a.tries = append(a.tries, *v)
	c.blamed.add(a.Attempt, v)
	a.verdict = v
	if v.Seconds != nil {
		at := cell{a.Task, a.Agent}
		c.longest[at] = max(c.longest[at], *v.Seconds)
	}
}

// Run opens tries and gives them to workers until all attempts have a verdict. When ctx ends it opens no more tries.
// It returns when none is open. When kill ends it decides the open tries as interrupted, and returns.
func (c *Coordinator) Run(ctx, kill context.Context, over hub) error {
	c.hub = over
	tick := time.NewTicker(tickTime)
	defer tick.Stop()
	sending, unsend := context.WithCancel(kill)
	defer func() {
		for c.examining > 0 {
			<-c.examined
			c.examining--
		}
		for c.judging > 0 {
			<-c.judged
			c.judging--
		}
		unsend()
		for len(c.sending) > 0 {
			delete(c.sending, (<-c.sent).digest)
		}
	}()
	if err := c.closeDead(); err != nil {
		return err
	}
	c.rejudge(ctx)
	for _, t := range c.open {
		if !t.began {
			c.toPublish = append(c.toPublish, t)
		}
	}
	stopped := ctx.Done()
	for {
		if ctx.Err() == nil {
			if err := c.openTries(); err != nil {
				return err
			}
			if err := c.publish(kill); err != nil {
				return err
			}
		}
		if len(c.open) == 0 && c.examining == 0 && c.judging == 0 &&
			(ctx.Err() != nil || !slices.ContainsFunc(c.attempts, c.needsTry)) {
			return nil
		}
		var err error
		select {
		case m := <-c.Reports:
			err = c.handle(kill, m)
		case q := <-c.Questions:
			err = c.answer(sending, q)
		case s := <-c.sent:
			delete(c.sending, s.digest)
			if s.err != nil {
				c.unsent[s.digest] = s.err
			}
		case <-c.WorkLost:
			c.republish()
		case e := <-c.examined:
			c.examining--
			err = c.conclude(e)
		case j := <-c.judged:
			c.judging--
			err = c.concludeRejudged(ctx, j)
		case <-tick.C:
			err = c.expire(kill)
		case <-stopped:
			stopped = nil
			c.recall(kill)
		case <-kill.Done():
			c.killed = true
			if len(c.open) == 0 && c.examining == 0 {
				return context.Cause(kill)
			}
			return c.interrupt()
		}
		if err != nil {
			return err
		}
	}
}

// closeDead closes the tries that the worker LocalWorker began in an earlier process: they died with it.
func (c *Coordinator) closeDead() error {
	for _, t := range c.open {
		if t.host == nil || c.LocalWorker == "" || t.host.Worker != c.LocalWorker {
			continue
		}
		v := &schema.SuiteTry{Try: t.number, RunID: runID(t.token), Verdict: schema.SuiteInfrastructure,
			Class: schema.SuiteInterrupted, Reason: "assay-suite ended before the run did"}
		if err := c.closeTry(t, v); err != nil {
			return err
		}
	}
	return nil
}

// publish publishes the tries in toPublish. If the carrier does not answer, the rest stays there for the next call.
func (c *Coordinator) publish(ctx context.Context) error {
	for len(c.toPublish) > 0 && c.hub.Up() {
		t := c.toPublish[0]
		if c.open[t.token] != t || t.began || t.deciding {
			c.toPublish = c.toPublish[1:]
			continue
		}
		work, err := c.File.work(t.of.Attempt, t.number, t.token, c.sources[t.of.Task])
		if err != nil {
			return err
		}
		number, err := c.hub.Publish(ctx, fmt.Sprintf("%s.%s.%d", t.token, c.instance, t.losses), work)
		if err != nil {
			return nil
		}
		t.work, t.lastHeard = number, c.now()
		c.toPublish = c.toPublish[1:]
	}
	return nil
}

// republish publishes all tries again that no worker is known to have taken, because the carrier lost them.
func (c *Coordinator) republish() {
	c.note("NATS lost its data: attempts that no worker has taken are published again")
	c.toPublish = nil
	for _, t := range c.open {
		if !t.taken && !t.began {
			t.work, t.losses = 0, t.losses+1
			c.toPublish = append(c.toPublish, t)
		}
	}
}

// recall takes back the work that no worker has taken.
func (c *Coordinator) recall(ctx context.Context) {
	c.toPublish = nil
	_ = c.hub.Recall(ctx) // if it fails, a worker that takes such a try is told to give it up
	c.recalled = c.now()
}

// answer answers a worker's question. ctx ends the sending of workspaces.
func (c *Coordinator) answer(ctx context.Context, q Question) error {
	var h hello
	if err := json.Unmarshal(q.Data, &h); err != nil || h.Suite != "" && h.Suite != c.id {
		q.Answer <- nil
		return nil
	}
	w := &Welcome{Suite: c.id, Name: c.File.Name, LeaseNS: int64(cmp.Or(c.Lease, DefaultLease))}
	defer func() { q.Answer <- w }()
	if h.MissingWorkspace != "" && !c.killed {
		w.SendError = c.send(ctx, h.MissingWorkspace)
	}
	own := q.From == c.LocalWorker
	if h.Version != c.Version {
		w.Refused = fmt.Sprintf("its assay-suite is version %s, but the coordinator's is %s", h.Version, c.Version)
		h.Slots = 0
	}
	if !own && (h.Suite != "" || w.Refused != "") { // without Suite it only looks for one, and may join another
		c.updateWorker(q.From, &h, w.Refused)
	}
	for _, token := range h.Running {
		t := c.open[token]
		if t == nil || c.killed && !own || !c.mayReport(t, q.From, h.Instance) {
			w.GiveUp = append(w.GiveUp, token)
			continue
		}
		t.lastHeard, t.taken = c.now(), true
	}
	if p := process(h.Instance); c.blamed.silent[p] != nil && h.MissingWorkspace == "" {
		c.blamed.lives(p, h.Stopped)
		return c.ledger.Append(ledger.Line{Kind: ledger.Back, Worker: q.From, Instance: h.Instance, Stopped: h.Stopped})
	}
	return nil
}

// sent is the result of sending a workspace.
type sent struct {
	digest string
	err    error
}

// send starts sending the workspace with the given digest in the background, unless it is being sent already. Workers
// ask again until they have it. If sending failed since the last question, it returns why; otherwise it returns "".
func (c *Coordinator) send(ctx context.Context, digest string) string {
	if err := c.unsent[digest]; err != nil {
		delete(c.unsent, digest)
		return err.Error()
	}
	at := slices.IndexFunc(c.File.Tasks, func(t Task) bool { return c.sources[t.Name].digest == digest })
	if at < 0 {
		return "no task of the suite has a workspace with this digest"
	}
	if !c.sending[digest] {
		c.sending[digest] = true
		go func() {
			r, w := io.Pipe()
			go func() { w.CloseWithError(pack(w, c.sources[c.File.Tasks[at].Name].path, digest)) }()
			err := c.hub.SendWorkspace(ctx, sentName(digest), r)
			r.CloseWithError(err)
			c.sent <- sent{digest, err}
		}()
	}
	return ""
}

// mayReport reports whether the worker may report about the try: no other worker has begun it.
func (c *Coordinator) mayReport(t *try, worker, instance string) bool {
	return !t.began || (t.host == nil || t.host.Worker == worker) && (t.instance == "" || t.instance == instance)
}

// updateWorker records a heartbeat of a worker in another process, or that it leaves.
func (c *Coordinator) updateWorker(name string, h *hello, refused string) {
	known := c.workers[h.Instance]
	slots := min(h.Slots, maxSlots)
	switch {
	case known == nil && len(c.workers) >= maxWorkers:
		return
	case known == nil && refused != "":
		c.note("the worker %s gets no work: %s", name, refused)
	case known == nil && slots <= 0:
		return
	case known == nil:
		c.note("the worker %s joins and runs %s at once", name, schema.Count(slots, "attempt", "attempts"))
	case slots <= 0 && known.slots > 0:
		c.note("the worker %s leaves", name)
	}
	c.workers[h.Instance] = &remoteWorker{name, max(0, slots), c.now()} // one that leaves stays until expire
}

// capacity is how many tries may be open. Judging attempts again uses slots of this process.
func (c *Coordinator) capacity() int {
	n := max(0, c.Slots-c.judging)
	for _, w := range c.workers {
		n += 2 * w.slots
	}
	if n > 0 || c.Slots > 0 {
		c.saidNoWorkers = false
	} else if !c.saidNoWorkers {
		c.saidNoWorkers = true
		c.note("there are no workers yet: attempts begin when one joins")
	}
	return n
}

// needsTry reports whether the attempt needs another try.
func (c *Coordinator) needsTry(a *attempt) bool {
	switch {
	case a.open != nil, a.earlier != nil, a.verdict != nil && a.verdict.Verdict != schema.SuiteInfrastructure:
		return false
	}
	return c.countedTries(a) < c.File.maxTries() && c.stopped(a) == nil && !c.blamed.proven(a.Attempt, a.tries)
}

// countedTries is how many tries count against maxTries. Tries that were interrupted or never began do not. Tries of an
// earlier process do not either, since a user who runs the suite again wants failed attempts tried again.
func (c *Coordinator) countedTries(a *attempt) int {
	tries := a.tries[a.oldTries:]
	n := 0
	for _, t := range tries {
		if t.Class != schema.SuiteInterrupted && t.Class != schema.SuiteNotBegun {
			n++
		}
	}
	return n
}

// RuleRecorderKilled is the rule of the suspicion that the agent killed assay-run: a signal ended it that assay-suite
// did not send.
const RuleRecorderKilled = "recorder_killed"

// RuleFillsDisk is the rule of the suspicion that the agent filled the disk, or exceeded its limit.
const RuleFillsDisk = "fills_disk"

// stopped returns the last of maxFailures infrastructure failures in a row, after which this process no longer tries
// the agent at the task. It returns nil while there are fewer.
func (c *Coordinator) stopped(a *attempt) *schema.SuiteTry {
	f := c.failures[cell{a.Task, a.Agent}]
	if f == nil || f.inARow < maxFailures {
		return nil
	}
	return &f.last
}

// cell is an agent at a task.
type cell struct{ task, agent string }

// failures are infrastructure failures of one class in a row, of this process.
type failures struct {
	inARow   int
	last     schema.SuiteTry
	instance string // of the last one's worker
}

// countFailure updates the failures in a row after a try that a worker with the given instance ran. Tries that are lost
// with the same worker count once.
func (c *Coordinator) countFailure(a Attempt, v *schema.SuiteTry, instance string) {
	at := cell{a.Task, a.Agent}
	switch f := c.failures[at]; {
	case v.Verdict != schema.SuiteInfrastructure:
		delete(c.failures, at)
	case v.Class == schema.SuiteInterrupted, v.Class == schema.SuiteNotBegun:
	case f == nil, f.last.Class != v.Class:
		c.failures[at] = &failures{1, *v, instance}
	case v.Class == schema.SuiteWorkerLost && instance != "" && instance == f.instance:
		return
	default:
		c.failures[at] = &failures{f.inARow + 1, *v, instance}
	}
	if f := c.failures[at]; f != nil && f.inARow == maxFailures {
		c.note("%s is not tried at %s again: the machine failed %d times in a row (%s: %s)", a.Agent, a.Task,
			maxFailures, v.Class, v.Reason)
	}
}

// openTries opens as many tries as the capacity and the disk allow.
func (c *Coordinator) openTries() error {
	if !c.hub.Up() {
		return nil
	}
	capacity := c.capacity()
	room := capacity - len(c.open) + min(c.examining, capacity) // an examination occupies no worker
	if room <= 0 {
		return nil
	}
	var ready []*attempt
	now := c.now()
	probing := map[string]bool{} // agents whose provider failed: one try at a time, after a pause
	for _, t := range c.open {
		probing[t.of.Agent] = true
	}
	for _, a := range c.attempts {
		if !c.needsTry(a) || now.Before(a.next) {
			continue
		}
		if until, held := c.hold[a.Agent]; held {
			if now.Before(until) || probing[a.Agent] {
				continue
			}
			probing[a.Agent] = true
		}
		ready = append(ready, a)
	}
	if len(ready) == 0 {
		return nil
	}
	if free := freeBytes(c.Dir); free < minFree {
		if !c.saidDiskFull {
			c.note("%s has less than 2 GiB free: no attempt begins until it has more", c.Dir)
		}
		c.saidDiskFull = true
		return nil
	}
	c.saidDiskFull = false
	ready = c.choose(ready, room)
	lines := make([]ledger.Line, len(ready))
	for i, a := range ready {
		a.lastNumber++
		t := &try{of: a, number: a.lastNumber, token: newToken(), lastHeard: now}
		a.open, c.open[t.token] = t, t
		inputs, err := c.keepInputs(a.Attempt)
		if err != nil {
			return err
		}
		lines[i] = ledger.Line{Kind: ledger.Opened, Attempt: a.Attempt, Try: t.number, Token: t.token,
			Identity: c.desc.Identities[a.Attempt], Inputs: inputs}
	}
	if err := c.ledger.Append(lines...); err != nil {
		return err
	}
	for _, a := range ready {
		c.toPublish = append(c.toPublish, a.open)
	}
	return nil
}

func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never returns an error
	return hex.EncodeToString(b[:])
}

// maxRefused is how many refused messages one process records.
const maxRefused = 1000

// refuse records in the ledger that a message was refused.
func (c *Coordinator) refuse(m carrier.Message, token, why string) error {
	if c.refused++; c.refused > maxRefused {
		if c.refused == maxRefused+1 {
			c.note("%d messages of workers were refused, the last one from %s; no more of them are recorded",
				maxRefused, m.From)
		}
		return nil
	}
	return c.ledger.Append(ledger.Line{Kind: ledger.Refused, Token: token[:min(len(token), 64)], Worker: m.From,
		Why: why})
}

// handle handles a worker's report.
func (c *Coordinator) handle(ctx context.Context, m carrier.Message) error {
	var r report
	if err := json.Unmarshal(m.Data, &r); err != nil {
		defer m.Done()
		return c.refuse(m, "", "a message cannot be read: "+err.Error())
	}
	t := c.open[r.Token]
	if t == nil || t.deciding {
		defer m.Done()
		if t == nil && c.LocalDir != "" && m.From == c.LocalWorker {
			discard(c.LocalDir, r.Token) // it is not needed any more
		}
		return c.refuse(m, r.Token, "no such try is open")
	}
	if !c.mayReport(t, m.From, r.Instance) {
		defer m.Done()
		return c.refuse(m, r.Token, "the try is another worker's")
	}
	t.lastHeard, t.taken = c.now(), true
	line := ledger.Line{Attempt: t.of.Attempt, Try: t.number, Token: t.token}
	switch {
	case r.Began != nil && !t.began:
		r.clean()
		r.Began.Worker = m.From
		t.began, t.host, t.instance = true, r.Began, r.Instance
		c.noteHost(t.of.Agent, *r.Began)
		line.Kind, line.Host, line.Worker, line.Instance = ledger.Began, r.Began, m.From, r.Instance
		if err := c.ledger.Append(line); err != nil {
			return err
		}
		m.Done()
		return nil
	case r.Ended != nil:
		r.clean()
		line.Kind = ledger.Ended
		if err := c.ledger.Append(line); err != nil {
			return err
		}
		t.deciding = true
		c.examining++
		go func() { c.examined <- c.examine(ctx, t, r.Ended, m) }()
		return nil
	}
	m.Done()
	return nil
}

// examine fetches the bundle of a try, verifies it, and moves it to its final place.
func (c *Coordinator) examine(ctx context.Context, t *try, end *tryEnd, m carrier.Message) examination {
	e := examination{try: t, end: end, message: m}
	if end.Bundle == "" {
		return e
	}
	dir := filepath.Join("attempts", t.of.Task, t.of.Agent, fmt.Sprint(t.of.Attempt.Attempt),
		fmt.Sprintf("try-%d", t.number))
	e.bundle = filepath.Join(dir, "run.tar.gz")
	part := filepath.Join(c.Dir, e.bundle+".part")
	err := os.MkdirAll(filepath.Dir(part), 0o755)
	if err == nil {
		err = c.fetch(ctx, t, end, part)
	}
	if err == nil {
		exam := c.exam(c.File.task(t.of.Task), part)
		exam.AgentKeys = c.agentKeys(t.of.Attempt)
		e.found, err = c.Examine(ctx, exam)
	}
	if err == nil {
		err = c.checkRun(t, e.found)
	}
	if err == nil {
		err = errors.Join(os.Rename(part, filepath.Join(c.Dir, e.bundle)), syncTree(c.Dir, dir))
	}
	if err != nil {
		e.found, e.problem, e.lost = nil, err.Error(), errors.Is(err, carrier.ErrNoBundle)
		if _, serr := os.Stat(part); errors.Is(serr, fs.ErrNotExist) {
			e.bundle = ""
		} else {
			e.bundle += ".part" // keep it to show what is wrong with it
		}
	}
	return e
}

// agentKeys are the routes of [Exam.AgentKeys].
func (c *Coordinator) agentKeys(a Attempt) (routes []string) {
	for route, file := range c.File.model(c.File.task(a.Task), c.File.agent(a.Agent)).Keys {
		if file == modelfile.KeyAgent {
			routes = append(routes, route)
		}
	}
	return routes
}

// exam says how to judge a bundle of a task.
func (c *Coordinator) exam(t *Task, bundle string) Exam {
	e := Exam{Bundle: bundle}
	if t.Rules != "" {
		e.Rules = c.File.path(t.Rules)
	}
	return e
}

// fetch moves or downloads the bundle of a try to a path. The worker can only name the bundle of its own try.
func (c *Coordinator) fetch(ctx context.Context, t *try, end *tryEnd, to string) error {
	if !end.Stored {
		if want := localBundle(c.LocalDir, t.token); c.LocalDir == "" || end.Bundle != want {
			return fmt.Errorf("the worker named a wrong file as its bundle: %q", end.Bundle)
		}
		return errors.Join(os.Rename(end.Bundle, to),
			renameIfThere(end.Bundle+artifacts, filepath.Join(filepath.Dir(to), trial.ArtifactsFile)))
	}
	if end.Bundle != runID(t.token) {
		return fmt.Errorf("the worker named a wrong bundle: %q", end.Bundle)
	}
	c.fetching.Lock()
	defer c.fetching.Unlock()
	for {
		err := c.fetchOnce(ctx, end, to)
		if err == nil || errors.Is(err, carrier.ErrNoBundle) || errors.Is(err, errOtherBundle) ||
			errors.Is(err, syscall.ENOSPC) {
			return err
		}
		select { // the carrier does not answer
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(fetchPause):
		}
	}
}

const (
	fetchPause = time.Second
	// forgetTime limits how long the removal of a bundle from the carrier may take.
	forgetTime = 30 * time.Second
)

var errOtherBundle = errors.New("the bundle is not the one that the worker reported")

func (c *Coordinator) fetchOnce(ctx context.Context, end *tryEnd, to string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	sum := sha256.New()
	if err := errors.Join(c.hub.Fetch(ctx, end.Bundle, end.Size, io.MultiWriter(f, sum)), f.Sync(),
		f.Close()); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != end.Digest {
		return fmt.Errorf("%w: it has the digest %s, want %s", errOtherBundle, got, end.Digest)
	}
	return nil
}

// checkRun checks that the bundle has the run id and the labels of the try.
func (c *Coordinator) checkRun(t *try, found *Examined) error {
	if want := runID(t.token); found.RunID != want {
		return fmt.Errorf("the bundle is of the run %s, want %s", found.RunID, want)
	}
	for k, v := range c.File.labels(c.File.task(t.of.Task), t.of.Attempt, t.number) {
		if found.Labels[k] != v {
			return fmt.Errorf("the bundle has the label %s=%q, want %q", k, found.Labels[k], v)
		}
	}
	return nil
}

// conclude decides a try after its bundle was examined.
func (c *Coordinator) conclude(e examination) error {
	t := e.try
	v := &schema.SuiteTry{Try: t.number, RunID: runID(t.token), Bundle: e.bundle, ExitCode: e.end.ExitCode}
	switch {
	case e.found != nil:
		e.found.judge(v)
	case e.end.Class != "":
		v.Verdict, v.Class, v.Reason = schema.SuiteInfrastructure, e.end.Class, e.end.Reason
		v.CausedBy = schema.CausedByHost // the agent had not begun
	default:
		v.Verdict, v.Class = schema.SuiteInfrastructure, schema.SuiteAssayRun
		v.Reason = cmp.Or(e.problem, "assay-run left no bundle: "+e.end.Stderr)
		v.Class = faultClass(v.Reason, v.Class)
	}
	switch {
	case e.lost:
		v.Class, v.CausedBy = schema.SuiteWorkerLost, schema.CausedByHost
	case c.killed && (v.Class == schema.SuiteWorkerLost || e.problem != ""):
		v.Class, v.Reason = schema.SuiteInterrupted, "the suite was interrupted"
	case e.end.Signal != "":
		blameAgent(v, schema.SuiteAssayRun, RuleRecorderKilled, "assay-run was killed by a signal ("+e.end.Signal+
			") that the worker did not send")
	case e.end.Disk != "":
		blameAgent(v, schema.SuiteDiskFull, RuleFillsDisk, e.end.Disk)
	case e.end.DiskHidden:
		v.Unknown = append(v.Unknown, RuleFillsDisk)
	}
	if err := c.closeTry(t, v); err != nil {
		return err
	}
	e.message.Done()
	if e.end.Stored && !e.lost { // only after the verdict: a coordinator after a crash needs the bundle again
		go func() {
			ctx, stop := context.WithTimeout(context.Background(), forgetTime)
			defer stop()
			_ = c.hub.Forget(ctx, runID(t.token), e.end.Size) // the end of the suite removes it, too
		}()
	}
	return nil
}

// blameAgent makes the verdict failed, with a suspicion: the agent caused the failure, or may have.
func blameAgent(v *schema.SuiteTry, class, rule, why string) {
	v.Verdict, v.Class, v.CausedBy, v.Reason = schema.SuiteFailed, class, schema.CausedByAgent, why
	v.Suspicions = append(v.Suspicions, schema.Finding{Rule: rule, Text: schema.OneLine(why), Events: []uint64{}})
}

// closeTry writes the verdict of an open try to the ledger, and closes the try.
func (c *Coordinator) closeTry(t *try, v *schema.SuiteTry) error {
	v.Host, v.WorkerProcess = t.host, process(t.instance)
	line := ledger.Line{Kind: ledger.Verdict, Attempt: t.of.Attempt, Try: t.number, Token: t.token, Verdict: v}
	err := c.ledger.Append(line)
	if errors.Is(err, ledger.ErrUnwritable) {
		v = unwritable(v, err)
		line.Verdict = v
		err = c.ledger.Append(line)
	}
	if err != nil {
		return err
	}
	delete(c.open, t.token)
	a := t.of
	a.open = nil
	c.addVerdict(a, v)
	c.countFailure(a.Attempt, v, t.instance)
	switch {
	case v.Class == schema.SuiteProvider:
		c.outages[a.Agent]++
		a.next = c.now().Add(c.pause * providerPauses << min(c.outages[a.Agent]-1, maxOutage))
		c.hold[a.Agent] = a.next
	case v.ModelRequests > v.ModelFailed: // the provider answers again
		delete(c.outages, a.Agent)
		delete(c.hold, a.Agent)
	}
	if v.Verdict == schema.SuiteInfrastructure && v.Class != schema.SuiteProvider {
		a.next = c.now().Add(c.pause << min(len(a.tries)-a.oldTries-1, 6))
	}
	if c.OnVerdict != nil {
		c.OnVerdict(a.Attempt, v)
	}
	return nil
}

// unwritable is the verdict in the place of one that cannot be written to the ledger.
func unwritable(v *schema.SuiteTry, why error) *schema.SuiteTry {
	return &schema.SuiteTry{Try: v.Try, RunID: v.RunID, Bundle: v.Bundle, ExitCode: v.ExitCode, Host: v.Host,
		Judged: v.Judged, Verdict: schema.SuiteInfrastructure, Class: schema.SuiteAssayRun,
		Reason: "its verdict cannot be kept: " + why.Error()}
}

// expire closes tries without a heartbeat for a lease, and removes such workers.
func (c *Coordinator) expire(ctx context.Context) error {
	lease, now := cmp.Or(c.Lease, DefaultLease), c.now()
	up := c.hub.Up()
	if gap := now.Sub(c.lastTick); !c.lastTick.IsZero() && gap > maxTickGap {
		for _, w := range c.workers { // this process was stopped or waited for the carrier, and could not hear them
			w.lastHeard = w.lastHeard.Add(gap)
		}
		for _, t := range c.open {
			t.lastHeard = t.lastHeard.Add(gap)
		}
	}
	c.lastTick = now
	for instance, w := range c.workers {
		if !up {
			w.lastHeard = now
		} else if now.Sub(w.lastHeard) >= lease {
			delete(c.workers, instance)
			if w.slots > 0 {
				c.note("the worker %s has been silent for %s: it is considered lost", w.name, lease)
			}
		}
	}
	for _, t := range c.open {
		if !up && !t.deciding {
			t.lastHeard = now // no heartbeat can arrive
		}
		if !c.recalled.IsZero() && !t.began && !t.deciding && now.Sub(c.recalled) >= beginTime {
			if err := c.closeTry(t, interrupted(t)); err != nil {
				return err
			}
			continue
		}
		if t.deciding || now.Sub(t.lastHeard) < lease {
			continue
		}
		if !t.taken && t.work == 0 {
			continue // it is not published yet
		}
		if !t.taken {
			taken, err := c.hub.Taken(ctx, t.work)
			switch {
			case err != nil:
				return nil // the carrier does not answer
			case !taken:
				t.lastHeard = now // it waits for a worker
			default:
				t.taken, t.lastHeard = true, now
			}
			continue
		}
		v := &schema.SuiteTry{Try: t.number, RunID: runID(t.token), Verdict: schema.SuiteInfrastructure,
			Class: schema.SuiteWorkerLost, Reason: "its worker was silent for " + lease.String()}
		if !t.began {
			v.Class, v.Reason = schema.SuiteNotBegun, "a worker took it but did not begin"
		}
		if err := c.closeTry(t, v); err != nil {
			return err
		}
	}
	return nil
}

// beginTime is how long a worker may take, after a recall, to report that it began a try that it took before.
const beginTime = 2 * time.Second

func interrupted(t *try) *schema.SuiteTry {
	return &schema.SuiteTry{Try: t.number, RunID: runID(t.token), Verdict: schema.SuiteInfrastructure,
		Class: schema.SuiteInterrupted, Reason: "the suite was interrupted"}
}

// interrupt decides all open tries after the suite was interrupted. It waits for the reports of its own worker. Other
// workers are told to give their tries up when they next ask.
func (c *Coordinator) interrupt() error {
	timeout := time.After(cmp.Or(c.Lease, DefaultLease))
	c.recall(context.Background())
	for _, t := range c.open {
		if !t.began && !t.deciding {
			if err := c.closeTry(t, interrupted(t)); err != nil {
				return err
			}
		}
	}
	for len(c.open) > 0 || c.examining > 0 {
		var err error
		select {
		case m := <-c.Reports:
			err = c.handle(context.Background(), m)
		case e := <-c.examined:
			c.examining--
			err = c.conclude(e)
		case q := <-c.Questions:
			var h hello
			_ = json.Unmarshal(q.Data, &h)
			err = c.answer(context.Background(), q)
			for _, token := range h.Running {
				if t := c.open[token]; t != nil && !t.deciding && q.From != c.LocalWorker && err == nil {
					err = c.closeTry(t, interrupted(t))
				}
			}
		case <-timeout:
			for _, t := range c.open {
				if !t.deciding && err == nil {
					err = c.closeTry(t, interrupted(t))
				}
			}
			timeout = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keepInputs saves what an agent is given at a task, so that a try can be repeated by hand even after an edit. It
// returns the directory, whose name is a digest of the contents. All attempts of an agent at a task share it.
func (c *Coordinator) keepInputs(a Attempt) (string, error) {
	at := cell{a.Task, a.Agent}
	if dir, ok := c.inputs[at]; ok {
		return dir, nil
	}
	from := c.sources[a.Task]
	from.digest = c.desc.Workspaces[a.Task] // that of a prepared copy is another one each time
	w, err := c.File.work(Attempt{Task: a.Task, Agent: a.Agent}, 0, "", from)
	if err != nil {
		return "", err
	}
	w.Spec.RunID = ""
	delete(w.Spec.Env, envAttempt)
	dir := filepath.Join("inputs", strings.TrimPrefix(digestOf(w), "sha256:")[:16])
	switch _, err := os.Stat(filepath.Join(c.Dir, dir)); {
	case errors.Is(err, fs.ErrNotExist):
		if err := writeInputs(filepath.Join(c.Dir, dir), w); err != nil {
			return "", err
		}
	case err != nil:
		return "", err
	}
	c.inputs[at] = dir
	return dir, nil
}

// toRejudge returns the last of an attempt's tries if it can be judged again after an edit, otherwise nil. all are the
// tries before the edit, and then the definitions at the last one.
func (c *Coordinator) toRejudge(a Attempt, all []schema.SuiteTry, then map[string]map[string]string) *earlier {
	last := all[len(all)-1]
	keys := figures.ChangedKeys(then["task "+a.Task], c.desc.Definitions["task "+a.Task])
	agent := figures.ChangedKeys(then["agent "+a.Agent], c.desc.Definitions["agent "+a.Agent])
	if last.Verdict == schema.SuiteInfrastructure || last.Bundle == "" || len(agent) > 0 || len(keys) == 0 ||
		slices.ContainsFunc(keys, func(k string) bool { return !slices.Contains(judgingKeys, k) }) {
		return nil
	}
	e := &earlier{try: last, keys: keys}
	for _, t := range all[:len(all)-1] {
		for _, f := range t.Suspicions {
			if f.Rule == RuleRecorderKilled {
				e.suspicions = append(e.suspicions, f)
			}
		}
	}
	return e
}

// rejudge starts judging attempts again after an edit that changed nothing for the agents, up to Slots at once. It
// sends the results to c.judged.
func (c *Coordinator) rejudge(ctx context.Context) {
	var all []*attempt
	for _, a := range c.attempts {
		if a.earlier != nil && a.open == nil && a.verdict == nil {
			all = append(all, a)
		} else {
			a.earlier = nil
		}
	}
	c.judging = len(all)
	todo := make(chan *attempt, len(all))
	for _, a := range all {
		todo <- a
	}
	close(todo)
	for range max(1, c.Slots) {
		go func() {
			for a := range todo {
				j := judged{of: a, err: context.Cause(ctx)}
				if j.err == nil {
					j.verdict, j.err = c.judgeAgain(ctx, a)
				}
				c.judged <- j
			}
		}()
	}
}

// concludeRejudged writes the verdict of an attempt that was judged again. If that failed, the attempt runs again.
func (c *Coordinator) concludeRejudged(ctx context.Context, j judged) error {
	a, v := j.of, j.verdict
	switch {
	case ctx.Err() != nil:
		return nil // the next run of the suite judges it
	case j.err != nil:
		c.note("%s cannot be judged again, and will run again: %v", a, j.err)
		a.earlier = nil
		return nil
	}
	inputs, err := c.keepInputs(a.Attempt)
	if err != nil {
		return err
	}
	line := ledger.Line{Kind: ledger.Verdict, Attempt: a.Attempt, Try: v.Try, Token: newToken(),
		Identity: c.desc.Identities[a.Attempt], Inputs: inputs, Verdict: v}
	err = c.ledger.Append(line)
	if errors.Is(err, ledger.ErrUnwritable) {
		v = unwritable(v, err)
		line.Verdict = v
		err = c.ledger.Append(line)
	}
	if err != nil {
		return err
	}
	a.lastNumber, a.earlier = v.Try, nil
	c.addVerdict(a, v)
	a.oldTries = len(a.tries)
	if c.OnVerdict != nil {
		c.OnVerdict(a.Attempt, v)
	}
	return nil
}

// judgeAgain judges the existing bundle of an attempt by the present contract, rules and evaluation definition.
func (c *Coordinator) judgeAgain(ctx context.Context, a *attempt) (*schema.SuiteTry, error) {
	t, old := c.File.task(a.Task), a.earlier.try
	if !filepath.IsLocal(old.Bundle) {
		return nil, fmt.Errorf("the ledger has an unsafe path of its bundle: %q", old.Bundle)
	}
	v := &schema.SuiteTry{Try: a.lastNumber + 1, RunID: old.RunID, Bundle: old.Bundle, ExitCode: old.ExitCode,
		Host: old.Host, Judged: cmp.Or(old.Judged, old.Try)}
	bundle := filepath.Join(c.Dir, old.Bundle)
	path, text := c.File.contractFile(t)
	contract := path != "" || text != nil
	if contract && slices.Contains(a.earlier.keys, "contract") {
		dir := filepath.Join("attempts", a.Task, a.Agent, fmt.Sprint(a.Attempt.Attempt), fmt.Sprintf("try-%d", v.Try))
		v.Bundle = filepath.Join(dir, "run.tar.gz")
		if err := c.judgeByContract(ctx, t, bundle, dir); err != nil {
			return nil, err
		}
		bundle = filepath.Join(c.Dir, v.Bundle)
	}
	exam := c.exam(t, bundle)
	exam.AgentKeys = c.agentKeys(a.Attempt)
	exam.Evaluation = func(was schema.EvaluationDefinition) schema.EvaluationDefinition {
		return updated(was, c.File.evaluation(t, c.File.agent(a.Agent)))
	}
	found, err := c.Examine(ctx, exam)
	if err != nil {
		return nil, err
	}
	if found.RunID != old.RunID {
		return nil, fmt.Errorf("the bundle is of the run %s, want %s", found.RunID, old.RunID)
	}
	if !contract {
		found.Result.Contract = nil
	}
	found.judge(v)
	v.Suspicions = append(v.Suspicions, a.earlier.suspicions...)
	return v, nil
}

// judgeByContract judges a bundle by the task's contract. It writes the new bundle as run.tar.gz to dir, the directory
// of the new try.
func (c *Coordinator) judgeByContract(ctx context.Context, t *Task, bundle, dir string) (err error) {
	if c.CheckContract == nil {
		return errors.New("there is no assay-run to check the contract")
	}
	check := ContractCheck{Bundle: bundle, Output: filepath.Join(c.Dir, dir, "judged.tar.gz")}
	if err := os.MkdirAll(filepath.Dir(check.Output), 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "assay-suite-judge-*")
	if err != nil {
		return err
	}
	defer func() {
		if rerr := workspace.Remove(scratch); err == nil {
			err = rerr
		}
	}()
	path, text := c.File.contractFile(t)
	if check.Contract = path; path == "" {
		check.Contract = filepath.Join(scratch, "contract.json")
		if err := os.WriteFile(check.Contract, text, 0o600); err != nil {
			return err
		}
	}
	check.Workspace = c.sources[t.Name].path
	if t.Workspace == "" {
		check.Workspace = filepath.Join(scratch, "workspace")
		if err := os.Mkdir(check.Workspace, 0o755); err != nil {
			return err
		}
	}
	if err := c.CheckContract(ctx, check); err != nil {
		return err
	}
	if err := os.Rename(check.Output, filepath.Join(c.Dir, dir, "run.tar.gz")); err != nil {
		return err
	}
	return syncTree(c.Dir, dir)
}

// outdated counts the outdated attempts that will be judged again, and those that will run again. keys are the edited
// keys because of which attempts are judged again.
func (c *Coordinator) outdated() (judged, again int, keys []string) {
	edited := map[string]bool{}
	for _, a := range c.attempts {
		switch {
		case !a.outdated():
		case a.earlier == nil:
			again++
		default:
			judged++
			for _, k := range a.earlier.keys {
				edited[k] = true
			}
		}
	}
	return judged, again, slices.Sorted(maps.Keys(edited))
}

// choose returns up to room of the attempts that are ready. Agents take turns: next is the agent with the fewest open
// tries, and among equals the one that was chosen least often. Of an agent's attempts, those whose time is unknown go
// first, then the longest by earlier tries.
func (c *Coordinator) choose(ready []*attempt, room int) []*attempt {
	open := map[string]int{}
	for _, t := range c.open {
		open[t.of.Agent]++
	}
	var chosen []*attempt
	taken := map[*attempt]bool{}
	for len(chosen) < min(room, len(ready)) {
		var next *attempt
		for _, a := range ready {
			if !taken[a] && (next == nil || c.sooner(a, next, open)) {
				next = a
			}
		}
		taken[next] = true
		open[next.Agent]++
		c.turns[next.Agent]++
		chosen = append(chosen, next)
	}
	return chosen
}

// sooner reports whether a goes before b. open is the number of open tries of each agent.
func (c *Coordinator) sooner(a, b *attempt, open map[string]int) bool {
	if a.Agent != b.Agent {
		if n := cmp.Or(cmp.Compare(open[a.Agent], open[b.Agent]), cmp.Compare(c.turns[a.Agent],
			c.turns[b.Agent])); n != 0 {
			return n < 0
		}
	}
	return cmp.Or(-cmp.Compare(c.expected(a), c.expected(b)), cmp.Compare(a.Attempt.Attempt, b.Attempt.Attempt)) < 0
}

// expected is a logarithm of the longest time that the agent took at the task; infinity if it is unknown. It is
// rounded, so that tasks with similar times count as equal, and the first attempts at all of them go before the second
// ones.
func (c *Coordinator) expected(a *attempt) float64 {
	if s, ok := c.longest[cell{a.Task, a.Agent}]; ok {
		return math.Round(2 * math.Log2(max(s, 0.01)))
	}
	return math.Inf(1)
}

// Results returns the results of the suite so far.
func (c *Coordinator) Results() *schema.SuiteResults {
	r := &schema.SuiteResults{Schema: schema.SuiteResultsV0, Suite: c.File.Name, Attempts: []schema.SuiteAttempt{},
		Cells: []schema.SuiteCell{}, Agents: []schema.SuiteAgent{}, Flaky: []string{},
		Definitions: c.desc.Definitions}
	for _, a := range c.attempts {
		r.Attempts = append(r.Attempts, c.result(a))
	}
	of := map[cell][]*schema.SuiteAttempt{}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		of[cell{a.Task, a.Agent}] = append(of[cell{a.Task, a.Agent}], a)
	}
	for _, t := range c.File.Tasks {
		for _, a := range c.File.Agents {
			if !c.File.excluded(t.Name, a.Name) {
				r.Cells = append(r.Cells, cellFigures(t.Name, a.Name, of[cell{t.Name, a.Name}]))
			}
		}
	}
	for _, cell := range r.Cells {
		if cell.Passed > 0 && cell.Passed < cell.Passed+cell.Failed+cell.Inconclusive {
			r.Flaky = append(r.Flaky, cell.Task+"/"+cell.Agent)
		}
	}
	for _, a := range c.File.Agents {
		r.Agents = append(r.Agents, agentFigures(a.Name, r))
	}
	r.Hosts = slices.Collect(maps.Keys(c.hosts))
	slices.SortFunc(r.Hosts, func(a, b schema.SuiteHost) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.AssayRun, b.AssayRun),
			cmp.Compare(a.Kernel, b.Kernel),
			cmp.Compare(a.AgentDigest, b.AgentDigest))
	})
	return r
}

// Counts returns how many attempts have each verdict.
func (c *Coordinator) Counts() (all schema.SuiteRates) {
	for _, a := range c.attempts {
		r := schema.SuiteAttempt{}
		if v := a.verdict; v != nil && a.open == nil && !c.needsTry(a) {
			r.Verdict, r.ClosedBook = &v.Verdict, v.ClosedBook
			if t, _ := c.blamed.try(a.Attempt, a.tries); t != nil {
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
		Identity: c.desc.Identities[a.Attempt], Tries: append([]schema.SuiteTry{}, a.tries...),
		Suspicions: []schema.Finding{}, Unknown: []string{}}
	if v := a.verdict; v != nil && v.Class != schema.SuiteInterrupted && v.Class != schema.SuiteNotBegun {
		r.Verdict, r.Reason, r.Bundle, r.ClosedBook = &v.Verdict, v.Reason, v.Bundle, v.ClosedBook
		r.Unknown = append(r.Unknown, v.Unknown...)
	} else if last := c.stopped(a); last != nil && a.open == nil {
		r.Verdict = new(schema.SuiteInfrastructure)
		r.Reason = fmt.Sprintf("it was not tried: the machine failed %d times in a row (%s: %s)", maxFailures,
			last.Class, last.Reason)
	}
	for _, t := range a.tries { // suspicions of all tries count
		r.Suspicions = append(r.Suspicions, t.Suspicions...)
		r.Unusual = append(r.Unusual, t.Unusual...)
	}
	if t, why := c.blamed.try(a.Attempt, a.tries); t != nil && r.Verdict != nil {
		r.Verdict, r.Reason, r.Bundle = new(schema.SuiteFailed), why, t.Bundle
		if t.CausedBy == "" {
			r.Suspicions = append(r.Suspicions, provoked(why))
		}
	}
	return r
}

// syncTree syncs the directory dir below root, and all directories between them and root itself.
func syncTree(root, dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		d, err := os.Open(filepath.Join(root, dir))
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
		if dir == "." {
			return nil
		}
	}
}
