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
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
)

const (
	// minFree is what the disk must have free for a try to be opened.
	minFree = 2 << 30
	// alike is how many faults of one class in a row stop an agent at a task.
	alike = 5
	// firstPause is what the second try of an attempt waits; each later one waits twice as long.
	firstPause = time.Second
	// tickTime is how often leases and pauses are looked at.
	tickTime = 200 * time.Millisecond
	// deafTime is how long leases may not be looked at before that is more than a busy machine.
	deafTime = time.Second
	// maxWorkers and maxSlots bound what workers say of themselves.
	maxWorkers, maxSlots = 10_000, 10_000
)

// hub is the coordinator's end of a carrier.
type hub interface {
	Publish(ctx context.Context, key string, work any) (uint64, error)
	Recall(ctx context.Context) error
	Taken(ctx context.Context, number uint64) (bool, error)
	Fetch(ctx context.Context, name string, size int64, w io.Writer) error
	Forget(ctx context.Context, name string, size int64) error
	SendWorkspace(ctx context.Context, name string, r io.Reader) error
	Up() bool
}

// Question is what a worker asks, and where the answer goes, which takes one without waiting.
type Question struct {
	carrier.Question
	Answer chan<- *Welcome
}

// Exam is a bundle to verify and to judge.
type Exam struct {
	Bundle string
	Rules  string // a file of rules for a gate; empty for none
	// Evaluation is what holds in the place of the bundle's own definition. Nil: that.
	Evaluation func(schema.EvaluationDefinition) schema.EvaluationDefinition
}

// Examined is what a bundle proves.
type Examined struct {
	RunID    string
	Identity string
	Labels   map[string]string
	Result   *schema.Result
	// Broken says which of the task's own rules do not pass; empty for none.
	Broken string
	// Suspicions are the findings of the rules for evaluations, and Unknown the rules that could not be decided.
	Suspicions []schema.Finding
	Unknown    []string
}

// judge makes the verdict of a try of what its bundle proves.
func (e *Examined) judge(v *schema.SuiteTry) {
	res := e.Result
	d := Decide(res, e.Broken)
	v.Verdict, v.Class, v.Reason = d.Verdict, d.Class, d.Reason
	v.Identity, v.KernelState = e.Identity, res.KernelState
	v.Suspicions, v.Unknown = e.Suspicions, e.Unknown
	if res.Timings.ChildNS != nil {
		v.Seconds = new(float64(*res.Timings.ChildNS) / 1e9)
	}
	v.Tokens, v.Cost = used(res.Model)
}

// Config is what a Coordinator needs.
type Config struct {
	File *File
	// Dir is the suite's directory.
	Dir string
	// Version is that of assay-suite.
	Version string
	// Slots is how many tries the worker of this process runs at once. So many are published and not decided, and twice
	// as many as other workers run at once.
	Slots int
	// Lease is how long a try that is not heard of is waited for; zero means DefaultLease.
	Lease time.Duration
	// Own is the name of the worker of this process: a try that it began in an earlier process is dead. OwnDir is its
	// directory: nobody else's bundles are taken from this machine's disk. Both are empty for none.
	Own, OwnDir string
	// Told gives what workers tell, and Asked what they ask. Fresh says that published work was lost.
	Told  <-chan carrier.Message
	Asked <-chan Question
	Fresh <-chan struct{}
	// Examine verifies a bundle and judges it. An error means that the bundle proves nothing.
	Examine func(context.Context, Exam) (*Examined, error)
	// Judge makes a bundle with the verdict of a contract. Nil: what an edit of a contract concerns runs again.
	Judge func(context.Context, Judging) error
	// OnVerdict and OnNote are told of verdicts and of what a user should know, from the goroutine of Run.
	OnVerdict func(Attempt, *schema.SuiteTry)
	OnNote    func(string)
}

// Coordinator opens tries and decides. It is for one goroutine.
type Coordinator struct {
	Config
	ledger    *ledger.Ledger
	hub       hub
	life      string // random: of this process
	id        string // of the suite: random, and the same as long as its directory lives
	asks      *Description
	attempts  []*attempt
	tokens    map[string]*try
	examined  chan examination
	examining int
	judged    chan judged // see rejudge
	judging   int
	refused   int        // messages
	fetching  sync.Mutex // held while a bundle is fetched
	full      bool       // the disk is, and that was said
	killed    bool       // the suite is interrupted
	ticked    time.Time  // when leases were last looked at
	recalled  time.Time  // when work that nobody has begun was taken back; zero for not
	unasked   []*try     // open, and to be published
	workers   map[string]*helper
	alone     bool             // it was said that there is no worker
	pause     time.Duration    // see firstPause
	now       func() time.Time // only differences count: a clock that is set changes nothing
	hosts     map[schema.SuiteHost]bool
	faults    map[cell]*faults
	programs  map[string]string // digests of the agents' programs, by agent
	inputs    map[cell]string   // see keepInputs
	longest   map[cell]float64  // that a try has taken, in seconds
	turns     map[string]int    // how often each agent was chosen
	sent      chan sent         // see send
	sending   map[string]bool   // workspaces, by digest
	unsent    map[string]error  // why some of them could not be sent
}

// attempt is what is known of one attempt.
type attempt struct {
	Attempt
	tries   []schema.SuiteTry // with the identity that holds
	earlier int               // how many of them an earlier process made
	number  int               // of the last try, whatever its identity
	open    *try
	verdict *schema.SuiteTry // nil: not yet
	next    time.Time        // when the next try may be opened
	before  *earlier         // to be judged again, see rejudge; nil: nothing
}

// openedTry is what the ledger says of a try that was opened.
type openedTry struct {
	of          Attempt
	number      int
	identity    string
	definitions map[string]map[string]string // of then
}

// try is a try that is open.
type try struct {
	of       *attempt
	number   int
	token    string
	work     uint64    // its number on the carrier; 0: not published by this process
	lost     int       // how often the carrier lost it
	taken    bool      // by a worker
	began    bool      // a worker told so
	heard    time.Time // when anything was last heard of it
	deciding bool
	host     *schema.SuiteHost
	life     string // of the worker that began it; empty if this process did not hear it begin
}

// helper is a worker of another process.
type helper struct {
	name  string
	slots int
	heard time.Time
}

// examination is what came of a bundle.
type examination struct {
	try     *try
	ended   *Ended
	bundle  string // below Dir; empty without one
	found   *Examined
	fault   string // why the bundle proves nothing
	lost    bool   // the carrier lost it
	message carrier.Message
}

// Open opens the suite's directory for a coordinator, which is made where it does not exist.
func Open(c Config) (*Coordinator, error) {
	if err := c.outside(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	asks, err := c.File.Describe()
	if err != nil {
		return nil, err
	}
	l, lines, cut, err := ledger.Open(c.Dir)
	if err != nil {
		return nil, err
	}
	co := &Coordinator{Config: c, ledger: l, life: newToken(), asks: asks, tokens: map[string]*try{},
		examined: make(chan examination), judged: make(chan judged), sent: make(chan sent),
		sending: map[string]bool{}, unsent: map[string]error{}, hosts: map[schema.SuiteHost]bool{},
		faults:   map[cell]*faults{},
		programs: map[string]string{}, inputs: map[cell]string{}, longest: map[cell]float64{},
		turns: map[string]int{}, workers: map[string]*helper{}, pause: firstPause, now: time.Now}
	if cut > 0 {
		co.note("the last line of the ledger was torn and is cut off (%d bytes)", cut)
	}
	if err := co.begin(lines); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return co, nil
}

// ErrDirectory is wrapped by the errors about a directory that the suite cannot have.
var ErrDirectory = errors.New("the directory cannot be that of the suite")

// outside checks that no workspace has the suite's directory in it.
func (c *Config) outside() error {
	for i := range c.File.Tasks {
		t := &c.File.Tasks[i]
		if t.Workspace == "" {
			continue
		}
		below, err := filepath.Rel(c.File.path(t.Workspace), c.Dir)
		if err == nil && filepath.IsLocal(below) {
			return fmt.Errorf("%w: %s is in the workspace of the task %s; name one outside", ErrDirectory, c.Dir,
				t.Name)
		}
	}
	return nil
}

// Close releases the directory.
func (c *Coordinator) Close() error { return c.ledger.Close() }

func (c *Coordinator) note(format string, args ...any) {
	if c.OnNote != nil {
		c.OnNote(fmt.Sprintf(format, args...))
	}
}

// begin makes the state of the suite from its ledger.
func (c *Coordinator) begin(lines []ledger.Line) error {
	if len(lines) == 0 {
		lines = []ledger.Line{{Kind: ledger.Begun, Suite: c.File.Name, Token: newToken(),
			Definitions: c.asks.Definitions, Attempts: len(c.File.Attempted())}}
		if err := c.ledger.Append(lines...); err != nil {
			return err
		}
	} else if name := lines[0].Suite; name != c.File.Name {
		return fmt.Errorf("%w: %s is the directory of the suite %q, not of %q; name another one", ErrDirectory, c.Dir,
			name, c.File.Name)
	}
	c.id = suiteID(lines[0].Suite, cmp.Or(lines[0].Token, c.Dir))
	all := map[Attempt]*attempt{}
	for _, a := range c.File.Attempted() {
		all[a] = &attempt{Attempt: a}
		c.attempts = append(c.attempts, all[a])
	}
	invalid := map[Attempt]bool{}
	open, opened := map[string]bool{}, map[string]openedTry{}
	made := map[Attempt][]schema.SuiteTry{} // tries with one identity, the last
	identity := map[Attempt]string{}
	definitions, total := c.asks.Definitions, len(all) // as the ledger has them last
	for _, line := range lines {
		switch line.Kind {
		case ledger.Begun, ledger.Edited:
			definitions, total = line.Definitions, line.Attempts
		case ledger.Opened:
			open[line.Token] = true
			opened[line.Token] = openedTry{line.Attempt, line.Try, line.Identity, definitions}
		case ledger.Verdict:
			delete(open, line.Token)
		}
		a := all[line.Attempt]
		if a == nil {
			continue // of a task or an agent that the suite no longer has
		}
		asked := cmp.Or(line.Identity, opened[line.Token].identity) // what is judged again was not opened
		current := asked == c.asks.Identities[line.Attempt]
		switch line.Kind {
		case ledger.Opened:
			a.number = max(a.number, line.Try)
			if current {
				a.open = &try{of: a, number: line.Try, token: line.Token, heard: c.now()}
			}
		case ledger.Began:
			if a.open != nil && a.open.token == line.Token {
				a.open.began, a.open.taken, a.open.host = true, true, line.Host
			}
			if current && line.Host != nil {
				c.seen(line.Agent, *line.Host)
			}
		case ledger.Verdict:
			if a.open != nil && a.open.token == line.Token {
				a.open = nil
			}
			a.number, a.before = max(a.number, line.Try), nil
			if current {
				c.decide(a, line.Verdict)
				break
			}
			invalid[line.Attempt] = true
			if asked != identity[line.Attempt] {
				identity[line.Attempt], made[line.Attempt] = asked, nil
			}
			made[line.Attempt] = append(made[line.Attempt], *line.Verdict)
			then := definitions
			if o, ok := opened[line.Token]; ok {
				then = o.definitions
			}
			a.before = c.before(line.Attempt, made[line.Attempt], then)
		}
	}
	for _, a := range c.attempts {
		a.earlier = len(a.tries)
		if a.open != nil {
			c.tokens[a.open.token] = a.open
		}
		if len(a.tries) > 0 {
			delete(invalid, a.Attempt)
		}
	}
	for token := range open {
		if c.tokens[token] != nil {
			continue
		}
		if err := c.abandon(token, opened[token]); err != nil {
			return err
		}
	}
	return c.edited(definitions, total, invalid)
}

// abandon closes a try of what the suite no longer asks.
func (c *Coordinator) abandon(token string, o openedTry) error {
	return c.ledger.Append(ledger.Line{Kind: ledger.Verdict, Attempt: o.of, Try: o.number, Token: token,
		Verdict: &schema.SuiteTry{Try: o.number, RunID: runID(token), Verdict: schema.SuiteInfrastructure,
			Class: schema.SuiteInterrupted, Reason: "the suite was edited"}})
}

// edited says what differs from the definitions that the ledger has, and which attempts that makes invalid.
func (c *Coordinator) edited(old map[string]map[string]string, total int, invalid map[Attempt]bool) error {
	judged, keys := c.judgedAgain(invalid)
	if judged > 0 {
		c.note("the suite has changed (%s): what %s did is judged again, and no agent runs for that",
			strings.Join(keys, ", "), schema.Count(judged, "attempt", "attempts"))
	}
	if n := len(invalid) - judged; n > 0 {
		c.note("the suite has changed: %s run again, and what they left before is kept",
			schema.Count(n, "attempt", "attempts"))
	}
	changed := false
	for _, what := range slices.Sorted(maps.Keys(c.asks.Definitions)) {
		keys := differing(old[what], c.asks.Definitions[what])
		changed = changed || len(keys) > 0
		if old[what] == nil {
			continue
		}
		var concerned []string
		for _, a := range c.attempts {
			if invalid[a.Attempt] && a.before == nil && (what == "task "+a.Task || what == "agent "+a.Agent) {
				concerned = append(concerned, a.String())
			}
		}
		if len(keys) > 0 && len(concerned) > 0 {
			c.note("%s has another %s: %s run again", what, strings.Join(keys, ", "), list(concerned))
		}
	}
	if !changed && len(old) == len(c.asks.Definitions) && total == len(c.attempts) {
		return nil
	}
	return c.ledger.Append(ledger.Line{Kind: ledger.Edited, Definitions: c.asks.Definitions,
		Attempts: len(c.attempts)})
}

// seen notes a machine, and says what differs from those before.
func (c *Coordinator) seen(agent string, h schema.SuiteHost) {
	if c.hosts[h] {
		return
	}
	for other := range c.hosts {
		if other.AssayRun != h.AssayRun || other.Kernel != h.Kernel {
			c.note("%s has %s on %s, and %s has %s on %s: what they say may differ", h.Worker, h.AssayRun, h.Kernel,
				other.Worker, other.AssayRun, other.Kernel)
			break
		}
	}
	if before, ok := c.programs[agent]; ok && before != h.AgentDigest {
		c.note("the program of %s on %s differs from the one before", agent, h.Worker)
	}
	c.hosts[h], c.programs[agent] = true, h.AgentDigest
}

// differing are the keys whose values differ, in order.
func differing(a, b map[string]string) []string {
	keys := map[string]bool{}
	for _, m := range []map[string]string{a, b} {
		for k := range m {
			if a[k] != b[k] {
				keys[k] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// list names the first of many.
func list(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// runID is the id of the run of the try with the token. It does not tell the token, with which anybody could tell of
// the try: agents know their run's id.
func runID(token string) string { return "try_" + shortDigest("run\x00"+token, 16) }

// suiteID is the id of a suite on a server: its name, and what tells it from others of that name.
func suiteID(name, token string) string {
	return carrier.Name(name[:min(len(name), 40)]) + "-" + shortDigest("suite\x00"+token, 6)
}

func shortDigest(s string, bytes int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:bytes])
}

// ID is the suite's id, by which its streams are named.
func (c *Coordinator) ID() string { return c.id }

// decide adds a try's verdict.
func (c *Coordinator) decide(a *attempt, v *schema.SuiteTry) {
	a.tries = append(a.tries, *v)
	a.verdict = v
	if v.Seconds != nil {
		at := cell{a.Task, a.Agent}
		c.longest[at] = max(c.longest[at], *v.Seconds)
	}
}

// Run opens tries, and gives them to workers over a carrier whose streams are named by ID, until all attempts have a
// verdict, or ctx ends; then what is open is waited for. It returns when nothing is open any more, or kill ends: then
// what is open is decided as interrupted.
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
	if err := c.bury(); err != nil {
		return err
	}
	c.rejudge(ctx)
	for _, t := range c.tokens {
		if !t.began {
			c.unasked = append(c.unasked, t)
		}
	}
	stopped := ctx.Done()
	for {
		if ctx.Err() == nil {
			if err := c.fill(); err != nil {
				return err
			}
			if err := c.publish(kill); err != nil {
				return err
			}
		}
		if len(c.tokens) == 0 && c.examining == 0 && c.judging == 0 && (ctx.Err() != nil || !c.waiting()) {
			return nil
		}
		var err error
		select {
		case m := <-c.Told:
			err = c.hear(kill, m)
		case q := <-c.Asked:
			c.answer(sending, q)
		case s := <-c.sent:
			delete(c.sending, s.digest)
			if s.err != nil {
				c.unsent[s.digest] = s.err
			}
		case <-c.Fresh:
			c.forget()
		case e := <-c.examined:
			c.examining--
			err = c.conclude(e)
		case j := <-c.judged:
			c.judging--
			err = c.again(ctx, j)
		case <-tick.C:
			err = c.expire(kill)
		case <-stopped:
			stopped = nil
			c.recall(kill)
		case <-kill.Done():
			c.killed = true
			if len(c.tokens) == 0 && c.examining == 0 {
				return context.Cause(kill)
			}
			return c.giveUp()
		}
		if err != nil {
			return err
		}
	}
}

// bury closes the tries that this process's worker began in an earlier process.
func (c *Coordinator) bury() error {
	for _, t := range c.tokens {
		if t.host == nil || c.Own == "" || t.host.Worker != c.Own {
			continue
		}
		v := &schema.SuiteTry{Try: t.number, RunID: runID(t.token), Verdict: schema.SuiteInfrastructure,
			Class: schema.SuiteInterrupted, Reason: "assay-suite ended before it did"}
		if err := c.verdict(t, v); err != nil {
			return err
		}
	}
	return nil
}

// publish publishes what is to be published, until the carrier is away: then the rest waits. The tries on it are in the
// ledger.
func (c *Coordinator) publish(ctx context.Context) error {
	for len(c.unasked) > 0 && c.hub.Up() {
		t := c.unasked[0]
		if c.tokens[t.token] != t || t.began || t.deciding {
			c.unasked = c.unasked[1:]
			continue
		}
		work, err := c.File.Work(t.of.Attempt, t.number, t.token, c.asks.Workspaces[t.of.Task])
		if err != nil {
			return err
		}
		number, err := c.hub.Publish(ctx, fmt.Sprintf("%s.%s.%d", t.token, c.life, t.lost), work)
		if err != nil {
			return nil
		}
		t.work, t.heard = number, c.now()
		c.unasked = c.unasked[1:]
	}
	return nil
}

// forget publishes again what no worker has taken as far as is known: the carrier lost it.
func (c *Coordinator) forget() {
	c.note("NATS has lost what it kept: what no worker has is published again")
	c.unasked = nil
	for _, t := range c.tokens {
		if !t.taken && !t.began {
			t.work, t.lost = 0, t.lost+1
			c.unasked = append(c.unasked, t)
		}
	}
}

// recall takes work back that no worker has taken.
func (c *Coordinator) recall(ctx context.Context) {
	c.unasked = nil
	_ = c.hub.Recall(ctx) // whoever takes it later is told that it is over
	c.recalled = c.now()
}

// answer answers a worker. ctx is that of what is sent to it.
func (c *Coordinator) answer(ctx context.Context, q Question) {
	var h Hello
	if err := json.Unmarshal(q.Data, &h); err != nil || h.Suite != "" && h.Suite != c.id {
		q.Answer <- nil
		return
	}
	w := &Welcome{Suite: c.id, Name: c.File.Name, LeaseNS: int64(cmp.Or(c.Lease, DefaultLease))}
	defer func() { q.Answer <- w }()
	if h.Lacks != "" && !c.killed {
		w.Unsent = c.send(ctx, h.Lacks)
	}
	own := q.From == c.Own
	if h.Version != c.Version {
		w.Refused = fmt.Sprintf("it is of assay-suite %s, and the suite of %s", h.Version, c.Version)
		h.Slots = 0
	}
	if !own && (h.Suite != "" || w.Refused != "") { // who looks for a suite may join another one
		c.attend(q.From, &h, w.Refused)
	}
	for _, token := range h.Trying {
		t := c.tokens[token]
		if t == nil || c.killed && !own || !c.from(t, q.From, h.Life) {
			w.Over = append(w.Over, token)
			continue
		}
		t.heard, t.taken = c.now(), true
	}
}

// sent is what came of sending a workspace.
type sent struct {
	digest string
	err    error
}

// send begins to send the workspace with the digest, unless that is being done. A worker asks until it has it. It
// returns why sending it failed since the last question; empty if it did not.
func (c *Coordinator) send(ctx context.Context, digest string) string {
	if err := c.unsent[digest]; err != nil {
		delete(c.unsent, digest)
		return err.Error()
	}
	at := slices.IndexFunc(c.File.Tasks, func(t Task) bool { return c.asks.Workspaces[t.Name] == digest })
	if at < 0 {
		return "no task of the suite has such a workspace"
	}
	if !c.sending[digest] {
		c.sending[digest] = true
		go func() {
			r, w := io.Pipe()
			go func() { w.CloseWithError(pack(w, c.File.path(c.File.Tasks[at].Workspace), digest)) }()
			err := c.hub.SendWorkspace(ctx, sentName(digest), r)
			r.CloseWithError(err)
			c.sent <- sent{digest, err}
		}()
	}
	return ""
}

// from reports whether the try can be that of the worker.
func (c *Coordinator) from(t *try, worker, life string) bool {
	return !t.began || (t.host == nil || t.host.Worker == worker) && (t.life == "" || t.life == life)
}

// attend notes that a worker of another process lives, or leaves.
func (c *Coordinator) attend(name string, h *Hello, refused string) {
	known := c.workers[h.Life]
	slots := min(h.Slots, maxSlots)
	switch {
	case known == nil && len(c.workers) >= maxWorkers:
		return
	case known == nil && refused != "":
		c.note("the worker %s gets no work: %s", name, refused)
	case known == nil && slots <= 0:
		return
	case known == nil:
		c.note("the worker %s joins: it runs %s at once", name, schema.Count(slots, "attempt", "attempts"))
	case slots <= 0 && known.slots > 0:
		c.note("the worker %s leaves", name)
	}
	c.workers[h.Life] = &helper{name, max(0, slots), c.now()} // one that left is missed without a word
}

// room is how many tries may be open. What is judged again takes the place of what this process would run.
func (c *Coordinator) room() int {
	n := max(0, c.Slots-c.judging)
	for _, w := range c.workers {
		n += 2 * w.slots
	}
	if n > 0 || c.Slots > 0 {
		c.alone = false
	} else if !c.alone {
		c.alone = true
		c.note("there is no worker: attempts begin when one joins")
	}
	return n
}

// wants reports whether the attempt needs another try.
func (c *Coordinator) wants(a *attempt) bool {
	switch {
	case a.open != nil, a.before != nil, a.verdict != nil && a.verdict.Verdict != schema.SuiteInfrastructure:
		return false
	}
	return c.spent(a) < c.most(a) && c.stopped(a) == nil
}

// spent is how many tries of this process count: one that was interrupted, or never began, does not. Whoever runs a
// suite again after the machine failed wants it tried again; but a recorder that was killed counts for good.
func (c *Coordinator) spent(a *attempt) int {
	tries := a.tries[a.earlier:]
	if slices.ContainsFunc(a.tries, recorderKilled) {
		tries = a.tries
	}
	n := 0
	for _, t := range tries {
		if t.Class != schema.SuiteInterrupted && t.Class != schema.SuiteNotBegun {
			n++
		}
	}
	return n
}

// most is how many tries the attempt has. An agent must not win tries by killing the recorder: such a try is repeated
// once.
func (c *Coordinator) most(a *attempt) int {
	if slices.ContainsFunc(a.tries, recorderKilled) {
		return min(2, c.File.MostTries())
	}
	return c.File.MostTries()
}

func recorderKilled(t schema.SuiteTry) bool {
	return slices.ContainsFunc(t.Suspicions, func(f schema.Finding) bool { return f.Rule == RuleRecorderKilled })
}

// RuleRecorderKilled is the rule of the suspicion about a try whose recorder died by a signal that nobody of ours sent.
const RuleRecorderKilled = "recorder_killed"

// stopped is the last of so many faults of the machine in a row, all in one way, that this agent is not tried again at
// this task; nil if it is.
func (c *Coordinator) stopped(a *attempt) *schema.SuiteTry {
	last := c.faults[cell{a.Task, a.Agent}]
	if last == nil || last.inARow < alike {
		return nil
	}
	return &last.try
}

// cell is an agent at a task.
type cell struct{ task, agent string }

// faults are how often the machine has failed in one way, one time after the other, in this process.
type faults struct {
	inARow int
	try    schema.SuiteTry // the last one
	life   string          // of its worker
}

// count counts a try of this process that a worker with the life ran. What is lost with one worker counts once.
func (c *Coordinator) count(a Attempt, v *schema.SuiteTry, life string) {
	at := cell{a.Task, a.Agent}
	switch last := c.faults[at]; {
	case v.Verdict != schema.SuiteInfrastructure:
		delete(c.faults, at)
	case v.Class == schema.SuiteInterrupted, v.Class == schema.SuiteNotBegun:
	case last == nil, last.try.Class != v.Class:
		c.faults[at] = &faults{1, *v, life}
	case v.Class == schema.SuiteWorkerLost && life != "" && life == last.life:
		return
	default:
		c.faults[at] = &faults{last.inARow + 1, *v, life}
	}
	if f := c.faults[at]; f != nil && f.inARow == alike {
		c.note("%s at %s is not tried again: the machine failed %d times in a row (%s: %s)", a.Agent, a.Task, alike,
			v.Class, v.Reason)
	}
}

func (c *Coordinator) waiting() bool { return slices.ContainsFunc(c.attempts, c.wants) }

// fill opens tries while there is room for them.
func (c *Coordinator) fill() error {
	if !c.hub.Up() {
		return nil
	}
	all := c.room()
	room := all - len(c.tokens) + min(c.examining, all) // who ran what is examined is free again
	if room <= 0 {
		return nil
	}
	var ready []*attempt
	now := c.now()
	for _, a := range c.attempts {
		if c.wants(a) && !now.Before(a.next) {
			ready = append(ready, a)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	if free := freeBytes(c.Dir); free < minFree {
		if !c.full {
			c.note("%s has less than 2 GiB free: no attempt is begun until there is more", c.Dir)
		}
		c.full = true
		return nil
	}
	c.full = false
	ready = c.choose(ready, room)
	lines := make([]ledger.Line, len(ready))
	for i, a := range ready {
		a.number++
		t := &try{of: a, number: a.number, token: newToken(), heard: now}
		a.open, c.tokens[t.token] = t, t
		inputs, err := c.keepInputs(a.Attempt)
		if err != nil {
			return err
		}
		lines[i] = ledger.Line{Kind: ledger.Opened, Attempt: a.Attempt, Try: t.number, Token: t.token,
			Identity: c.asks.Identities[a.Attempt], Inputs: inputs}
	}
	if err := c.ledger.Append(lines...); err != nil {
		return err
	}
	for _, a := range ready {
		c.unasked = append(c.unasked, a.open)
	}
	return nil
}

func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// maxRefused bounds how many messages that were refused one process records.
const maxRefused = 1000

// refuse records that a message was refused.
func (c *Coordinator) refuse(m carrier.Message, token, why string) error {
	if c.refused++; c.refused > maxRefused {
		if c.refused == maxRefused+1 {
			c.note("%d messages of workers were refused, the last one of %s: no more are recorded", maxRefused, m.From)
		}
		return nil
	}
	return c.ledger.Append(ledger.Line{Kind: ledger.Refused, Token: token[:min(len(token), 64)], Worker: m.From,
		Why: why})
}

// hear takes what a worker told.
func (c *Coordinator) hear(ctx context.Context, m carrier.Message) error {
	var told Told
	if err := json.Unmarshal(m.Data, &told); err != nil {
		defer m.Done()
		return c.refuse(m, "", "a message cannot be read: "+err.Error())
	}
	t := c.tokens[told.Token]
	if t == nil || t.deciding {
		defer m.Done()
		if t == nil && c.OwnDir != "" && m.From == c.Own {
			_ = os.Remove(localBundle(c.OwnDir, told.Token)) // nobody fetches it
		}
		return c.refuse(m, told.Token, "no such try is open")
	}
	if !c.from(t, m.From, told.Life) {
		defer m.Done()
		return c.refuse(m, told.Token, "the try is another worker's")
	}
	t.heard, t.taken = c.now(), true
	line := ledger.Line{Attempt: t.of.Attempt, Try: t.number, Token: t.token}
	switch {
	case told.Began != nil && !t.began:
		told.clean()
		told.Began.Worker = m.From
		t.began, t.host, t.life = true, told.Began, told.Life
		c.seen(t.of.Agent, *told.Began)
		line.Kind, line.Host, line.Worker = ledger.Began, told.Began, m.From
		if err := c.ledger.Append(line); err != nil {
			return err
		}
		m.Done()
		return nil
	case told.Ended != nil:
		told.clean()
		line.Kind = ledger.Ended
		if err := c.ledger.Append(line); err != nil {
			return err
		}
		t.deciding = true
		c.examining++
		go func() { c.examined <- c.examine(ctx, t, told.Ended, m) }()
		return nil
	}
	m.Done()
	return nil
}

// examine fetches the bundle of a try to its place, and verifies it.
func (c *Coordinator) examine(ctx context.Context, t *try, ended *Ended, m carrier.Message) examination {
	e := examination{try: t, ended: ended, message: m}
	if ended.Bundle == "" {
		return e
	}
	dir := filepath.Join("attempts", t.of.Task, t.of.Agent, fmt.Sprint(t.of.Attempt.Attempt),
		fmt.Sprintf("try-%d", t.number))
	e.bundle = filepath.Join(dir, "run.tar.gz")
	part := filepath.Join(c.Dir, e.bundle+".part")
	err := os.MkdirAll(filepath.Dir(part), 0o755)
	if err == nil {
		err = c.fetch(ctx, t, ended, part)
	}
	if err == nil {
		e.found, err = c.Examine(ctx, c.exam(c.File.task(t.of.Task), part))
	}
	if err == nil {
		err = c.belongs(t, e.found)
	}
	if err == nil {
		err = errors.Join(os.Rename(part, filepath.Join(c.Dir, e.bundle)), syncTree(c.Dir, dir))
	}
	if err != nil {
		e.found, e.fault, e.lost = nil, err.Error(), errors.Is(err, carrier.ErrNoBundle)
		if _, serr := os.Stat(part); errors.Is(serr, fs.ErrNotExist) {
			e.bundle = ""
		} else {
			e.bundle += ".part" // kept, as evidence of what is wrong with it
		}
	}
	return e
}

// exam is how a bundle of a task is judged.
func (c *Coordinator) exam(t *Task, bundle string) Exam {
	e := Exam{Bundle: bundle}
	if t.Rules != "" {
		e.Rules = c.File.path(t.Rules)
	}
	return e
}

// fetch fetches a bundle. A worker cannot name another than that of its try.
func (c *Coordinator) fetch(ctx context.Context, t *try, ended *Ended, to string) error {
	if !ended.Stored {
		if want := localBundle(c.OwnDir, t.token); c.OwnDir == "" || ended.Bundle != want {
			return fmt.Errorf("the worker names the file %q as its bundle", ended.Bundle)
		}
		return os.Rename(ended.Bundle, to)
	}
	if ended.Bundle != runID(t.token) {
		return fmt.Errorf("the worker names the bundle %q", ended.Bundle)
	}
	c.fetching.Lock()
	defer c.fetching.Unlock()
	for {
		err := c.fetchOnce(ctx, ended, to)
		if err == nil || errors.Is(err, carrier.ErrNoBundle) || errors.Is(err, errOtherBundle) ||
			errors.Is(err, syscall.ENOSPC) {
			return err
		}
		select { // the carrier is away
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(fetchPause):
		}
	}
}

const (
	fetchPause = time.Second
	// forgetTime bounds how long a bundle may take to be removed from the carrier.
	forgetTime = 30 * time.Second
)

var errOtherBundle = errors.New("the bundle is not the one that the worker told of")

func (c *Coordinator) fetchOnce(ctx context.Context, ended *Ended, to string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	sum := sha256.New()
	if err := errors.Join(c.hub.Fetch(ctx, ended.Bundle, ended.Size, io.MultiWriter(f, sum)), f.Sync(),
		f.Close()); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != ended.Digest {
		return fmt.Errorf("%w: it has the digest %s, want %s", errOtherBundle, got, ended.Digest)
	}
	return nil
}

// belongs checks that the bundle is of the try's run.
func (c *Coordinator) belongs(t *try, found *Examined) error {
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

// conclude writes the verdict of a try.
func (c *Coordinator) conclude(e examination) error {
	t := e.try
	v := &schema.SuiteTry{Try: t.number, RunID: runID(t.token), Bundle: e.bundle, ExitCode: e.ended.ExitCode}
	switch {
	case e.found != nil:
		e.found.judge(v)
	case e.ended.Class != "":
		v.Verdict, v.Class, v.Reason = schema.SuiteInfrastructure, e.ended.Class, e.ended.Reason
	default:
		v.Verdict, v.Class = schema.SuiteInfrastructure, schema.SuiteAssayRun
		v.Reason = cmp.Or(e.fault, "assay-run left no bundle: "+e.ended.Said)
		v.Class = faultClass(v.Reason, v.Class)
	}
	switch {
	case e.lost:
		v.Class = schema.SuiteWorkerLost
	case c.killed && (v.Class == schema.SuiteWorkerLost || e.fault != ""):
		v.Class, v.Reason = schema.SuiteInterrupted, "the suite was interrupted"
	case e.ended.Signal != "":
		v.Verdict, v.Class = schema.SuiteInfrastructure, schema.SuiteAssayRun
		v.Reason = "assay-run was ended by a signal (" + e.ended.Signal + ") that the worker did not send"
		v.Suspicions = append(v.Suspicions,
			schema.Finding{Rule: RuleRecorderKilled, Text: v.Reason, Events: []uint64{}})
	}
	if err := c.verdict(t, v); err != nil {
		return err
	}
	e.message.Done()
	if e.ended.Stored && !e.lost { // not before the verdict: who comes after a crash needs it again
		go func() {
			ctx, stop := context.WithTimeout(context.Background(), forgetTime)
			defer stop()
			_ = c.hub.Forget(ctx, runID(t.token), e.ended.Size) // the suite's end removes it, too
		}()
	}
	return nil
}

// verdict writes a verdict and closes the try.
func (c *Coordinator) verdict(t *try, v *schema.SuiteTry) error {
	v.Host = t.host
	line := ledger.Line{Kind: ledger.Verdict, Attempt: t.of.Attempt, Try: t.number, Token: t.token, Verdict: v}
	if err := c.ledger.Append(line); err != nil {
		return err
	}
	delete(c.tokens, t.token)
	a := t.of
	a.open = nil
	c.decide(a, v)
	c.count(a.Attempt, v, t.life)
	if v.Verdict == schema.SuiteInfrastructure {
		a.next = c.now().Add(c.pause << min(len(a.tries)-a.earlier-1, 6))
	}
	if c.OnVerdict != nil {
		c.OnVerdict(a.Attempt, v)
	}
	return nil
}

// expire closes the tries of which nothing was heard for a lease, and misses workers.
func (c *Coordinator) expire(ctx context.Context) error {
	lease, now := cmp.Or(c.Lease, DefaultLease), c.now()
	up := c.hub.Up()
	if gap := now.Sub(c.ticked); !c.ticked.IsZero() && gap > deafTime {
		for _, w := range c.workers { // this process was stopped, or waited for the carrier: it heard nobody
			w.heard = w.heard.Add(gap)
		}
		for _, t := range c.tokens {
			t.heard = t.heard.Add(gap)
		}
	}
	c.ticked = now
	for life, w := range c.workers {
		if !up {
			w.heard = now
		} else if now.Sub(w.heard) >= lease {
			delete(c.workers, life)
			if w.slots > 0 {
				c.note("nothing has been heard of the worker %s for %s", w.name, lease)
			}
		}
	}
	for _, t := range c.tokens {
		if !up && !t.deciding {
			t.heard = now // nothing can be heard
		}
		if !c.recalled.IsZero() && !t.began && !t.deciding && now.Sub(c.recalled) >= beginTime {
			if err := c.verdict(t, interrupted(t)); err != nil {
				return err
			}
			continue
		}
		if t.deciding || now.Sub(t.heard) < lease {
			continue
		}
		if !t.taken && t.work == 0 {
			continue // it is not published
		}
		if !t.taken {
			taken, err := c.hub.Taken(ctx, t.work)
			switch {
			case err != nil:
				return nil // the carrier is away
			case !taken:
				t.heard = now // it waits for a worker
			default:
				t.taken, t.heard = true, now
			}
			continue
		}
		v := &schema.SuiteTry{Try: t.number, RunID: runID(t.token), Verdict: schema.SuiteInfrastructure,
			Class: schema.SuiteWorkerLost, Reason: "nothing was heard of its worker for " + lease.String()}
		if !t.began {
			v.Class, v.Reason = schema.SuiteNotBegun, "a worker took it and did not begin"
		}
		if err := c.verdict(t, v); err != nil {
			return err
		}
	}
	return nil
}

// beginTime is how long a worker may take to tell that it began a try which it took before it was recalled.
const beginTime = 2 * time.Second

func interrupted(t *try) *schema.SuiteTry {
	return &schema.SuiteTry{Try: t.number, RunID: runID(t.token), Verdict: schema.SuiteInfrastructure,
		Class: schema.SuiteInterrupted, Reason: "the suite was interrupted"}
}

// giveUp decides what is open when the suite is interrupted. The worker of this process tells of its tries; the others
// ask for theirs, and are told that they are over.
func (c *Coordinator) giveUp() error {
	away := time.After(cmp.Or(c.Lease, DefaultLease))
	c.recall(context.Background())
	for _, t := range c.tokens {
		if !t.began && !t.deciding {
			if err := c.verdict(t, interrupted(t)); err != nil {
				return err
			}
		}
	}
	for len(c.tokens) > 0 || c.examining > 0 {
		var err error
		select {
		case m := <-c.Told:
			err = c.hear(context.Background(), m)
		case e := <-c.examined:
			c.examining--
			err = c.conclude(e)
		case q := <-c.Asked:
			var h Hello
			_ = json.Unmarshal(q.Data, &h)
			c.answer(context.Background(), q)
			for _, token := range h.Trying {
				if t := c.tokens[token]; t != nil && !t.deciding && q.From != c.Own && err == nil {
					err = c.verdict(t, interrupted(t))
				}
			}
		case <-away:
			for _, t := range c.tokens {
				if !t.deciding && err == nil {
					err = c.verdict(t, interrupted(t))
				}
			}
			away = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keepInputs keeps what an agent is given at a task, so that a try can be repeated by hand after the suite was edited,
// and returns its directory, which is named by its digest. All attempts of an agent at a task share it.
func (c *Coordinator) keepInputs(a Attempt) (string, error) {
	at := cell{a.Task, a.Agent}
	if dir, ok := c.inputs[at]; ok {
		return dir, nil
	}
	w, err := c.File.Work(Attempt{Task: a.Task, Agent: a.Agent}, 0, "", c.asks.Workspaces[a.Task])
	if err != nil {
		return "", err
	}
	w.Spec.RunID = ""
	delete(w.Spec.Env, EnvAttempt)
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

// before keeps what an attempt had before an edit, if that can be judged again. all are its tries, of which the last
// was made with the definitions of then.
func (c *Coordinator) before(a Attempt, all []schema.SuiteTry, then map[string]map[string]string) *earlier {
	last := all[len(all)-1]
	keys := differing(then["task "+a.Task], c.asks.Definitions["task "+a.Task])
	agent := differing(then["agent "+a.Agent], c.asks.Definitions["agent "+a.Agent])
	if last.Verdict == schema.SuiteInfrastructure || last.Bundle == "" || len(agent) > 0 || len(keys) == 0 ||
		slices.ContainsFunc(keys, func(k string) bool { return !slices.Contains(judging, k) }) {
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

// rejudge judges again what was done before an edit that changed nothing for the agents, as many attempts at once as
// this process may run. Run takes what comes of each from c.judged.
func (c *Coordinator) rejudge(ctx context.Context) {
	var all []*attempt
	for _, a := range c.attempts {
		if a.before != nil && a.open == nil && a.verdict == nil {
			all = append(all, a)
		} else {
			a.before = nil
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

// again writes the verdict on what was judged again. What cannot be judged runs again.
func (c *Coordinator) again(ctx context.Context, j judged) error {
	a, v := j.of, j.verdict
	switch {
	case ctx.Err() != nil:
		return nil // it is judged when the suite goes on
	case j.err != nil:
		c.note("%s cannot be judged again, and runs again: %v", a, j.err)
		a.before = nil
		return nil
	}
	inputs, err := c.keepInputs(a.Attempt)
	if err != nil {
		return err
	}
	line := ledger.Line{Kind: ledger.Verdict, Attempt: a.Attempt, Try: v.Try, Token: newToken(),
		Identity: c.asks.Identities[a.Attempt], Inputs: inputs, Verdict: v}
	if err := c.ledger.Append(line); err != nil {
		return err
	}
	a.number, a.before = v.Try, nil
	c.decide(a, v)
	a.earlier = len(a.tries)
	if c.OnVerdict != nil {
		c.OnVerdict(a.Attempt, v)
	}
	return nil
}

// judgeAgain judges the changes that an attempt's bundle keeps by the contract, and its record by the rules.
func (c *Coordinator) judgeAgain(ctx context.Context, a *attempt) (*schema.SuiteTry, error) {
	t, old := c.File.task(a.Task), a.before.try
	if !filepath.IsLocal(old.Bundle) {
		return nil, fmt.Errorf("the ledger names the bundle %q", old.Bundle)
	}
	v := &schema.SuiteTry{Try: a.number + 1, RunID: old.RunID, Bundle: old.Bundle, ExitCode: old.ExitCode,
		Host: old.Host, Judged: cmp.Or(old.Judged, old.Try)}
	bundle := filepath.Join(c.Dir, old.Bundle)
	path, text := c.File.ContractFile(t)
	contract := path != "" || text != nil
	if contract && slices.Contains(a.before.keys, "contract") {
		dir := filepath.Join("attempts", a.Task, a.Agent, fmt.Sprint(a.Attempt.Attempt), fmt.Sprintf("try-%d", v.Try))
		v.Bundle = filepath.Join(dir, "run.tar.gz")
		if err := c.judgeByContract(ctx, t, bundle, dir); err != nil {
			return nil, err
		}
		bundle = filepath.Join(c.Dir, v.Bundle)
	}
	exam := c.exam(t, bundle)
	exam.Evaluation = func(was schema.EvaluationDefinition) schema.EvaluationDefinition {
		return asNow(was, c.File.evaluation(t, c.File.agent(a.Agent)))
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
	v.Suspicions = append(v.Suspicions, a.before.suspicions...)
	return v, nil
}

// judgeByContract makes the bundle run.tar.gz in the directory of a try, with the verdict of the task's contract.
func (c *Coordinator) judgeByContract(ctx context.Context, t *Task, bundle, dir string) (err error) {
	if c.Judge == nil {
		return fmt.Errorf("nothing here can judge it")
	}
	j := Judging{Bundle: bundle, Output: filepath.Join(c.Dir, dir, "judged.tar.gz")}
	if err := os.MkdirAll(filepath.Dir(j.Output), 0o755); err != nil {
		return err
	}
	room, err := os.MkdirTemp("", "assay-suite-judge-*")
	if err != nil {
		return err
	}
	defer func() {
		if rerr := workspace.Remove(room); err == nil {
			err = rerr
		}
	}()
	path, text := c.File.ContractFile(t)
	if j.Contract = path; path == "" {
		j.Contract = filepath.Join(room, "contract.json")
		if err := os.WriteFile(j.Contract, text, 0o600); err != nil {
			return err
		}
	}
	j.Workspace = c.File.path(t.Workspace)
	if info, serr := os.Stat(j.Workspace); t.Workspace == "" || serr == nil && !info.IsDir() {
		from := j.Workspace
		if t.Workspace == "" {
			from = ""
		}
		j.Workspace = filepath.Join(room, "workspace")
		if err := copyWorkspace(ctx, from, j.Workspace); err != nil {
			return err
		}
	}
	if err := c.Judge(ctx, j); err != nil {
		return err
	}
	if err := os.Rename(j.Output, filepath.Join(c.Dir, dir, "run.tar.gz")); err != nil {
		return err
	}
	return syncTree(c.Dir, dir)
}

// judgedAgain names the keys that were edited of the attempts that are judged again, and how many these are.
func (c *Coordinator) judgedAgain(invalid map[Attempt]bool) (n int, keys []string) {
	of := map[string]bool{}
	for _, a := range c.attempts {
		if a.before != nil && invalid[a.Attempt] {
			n++
			for _, k := range a.before.keys {
				of[k] = true
			}
		}
	}
	return n, slices.Sorted(maps.Keys(of))
}

// choose takes so many of the attempts that are ready. Agents take turns: the next is one of which the fewest tries are
// open, and then the fewest were chosen. Of its attempts, the longest by earlier times goes first, and before these the
// ones of which no time is known.
func (c *Coordinator) choose(ready []*attempt, room int) []*attempt {
	open := map[string]int{}
	for _, t := range c.tokens {
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

// sooner reports whether a is to be tried before b, where so many tries of each agent are open.
func (c *Coordinator) sooner(a, b *attempt, open map[string]int) bool {
	if a.Agent != b.Agent {
		if n := cmp.Or(cmp.Compare(open[a.Agent], open[b.Agent]), cmp.Compare(c.turns[a.Agent],
			c.turns[b.Agent])); n != 0 {
			return n < 0
		}
	}
	return cmp.Or(-cmp.Compare(c.expected(a), c.expected(b)), cmp.Compare(a.Attempt.Attempt, b.Attempt.Attempt)) < 0
}

// expected grows with the longest that the agent has taken at the task; infinity where that is not known. Times that
// differ by less than a fifth or so count as equal: the first attempts of all tasks go before the second ones.
func (c *Coordinator) expected(a *attempt) float64 {
	if s, ok := c.longest[cell{a.Task, a.Agent}]; ok {
		return math.Round(2 * math.Log2(max(s, 0.01)))
	}
	return math.Inf(1)
}

// Results are the results of the suite so far.
func (c *Coordinator) Results() *schema.SuiteResults {
	r := &schema.SuiteResults{Schema: schema.SuiteResultsV0, Suite: c.File.Name, Attempts: []schema.SuiteAttempt{},
		Cells: []schema.SuiteCell{}, Agents: []schema.SuiteAgent{}, Flaky: []string{},
		Definitions: c.asks.Definitions}
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

// Counts counts the attempts by their verdicts.
func (c *Coordinator) Counts() (all schema.SuiteRates) {
	for _, a := range c.attempts {
		r := schema.SuiteAttempt{}
		if v := a.verdict; v != nil && a.open == nil && !c.wants(a) {
			r.Verdict = &v.Verdict
		}
		for _, t := range a.tries {
			r.Suspicions = append(r.Suspicions, t.Suspicions...)
		}
		all.Add(&r)
	}
	return all
}

func (c *Coordinator) result(a *attempt) schema.SuiteAttempt {
	r := schema.SuiteAttempt{ID: a.String(), Task: a.Task, Agent: a.Agent, Attempt: a.Attempt.Attempt,
		Identity: c.asks.Identities[a.Attempt], Tries: append([]schema.SuiteTry{}, a.tries...),
		Suspicions: []schema.Finding{}, Unknown: []string{}}
	if v := a.verdict; v != nil && v.Class != schema.SuiteInterrupted && v.Class != schema.SuiteNotBegun {
		r.Verdict, r.Reason, r.Bundle = &v.Verdict, v.Reason, v.Bundle
		r.Unknown = append(r.Unknown, v.Unknown...)
	} else if last := c.stopped(a); last != nil && a.open == nil {
		r.Verdict = new(schema.SuiteInfrastructure)
		r.Reason = fmt.Sprintf("it was not tried: the machine failed %d times in a row (%s: %s)", alike, last.Class,
			last.Reason)
	}
	for _, t := range a.tries { // what an agent did in an earlier try counts too
		r.Suspicions = append(r.Suspicions, t.Suspicions...)
	}
	return r
}

// syncTree syncs a directory and those above it up to the root.
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
