//go:build linux

package suite

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/schema"
)

// stage is a coordinator without workers: the test takes work from published and reports results itself.
type stage struct {
	*testing.T
	dir       string
	published chan *tryWork
	told      chan carrier.Message
	asked     chan Question
	verdicts  chan *schema.SuiteTry
	notes     []string
	from      string // the worker that reports; empty means w
	ended     chan error
	c         *Coordinator
	later     atomic.Int64 // how far the coordinator's clock is ahead, in nanoseconds
	looked    atomic.Int64 // how often the coordinator has called Up

	mu     sync.Mutex
	stored map[string]string            // bundles, by name
	labels map[string]map[string]string // by run
}

// Publish and the next methods are those of the hub.
func (s *stage) Publish(_ context.Context, _ string, work any) (uint64, error) {
	w := work.(*tryWork)
	s.mu.Lock()
	s.labels[w.Spec.RunID] = w.Spec.Labels
	s.mu.Unlock()
	s.published <- w
	return 1, nil
}

func (s *stage) Taken(context.Context, uint64) (bool, error) { return true, nil }

func (s *stage) Recall(context.Context) error { return nil }

func (s *stage) Up() bool { s.looked.Add(1); return true }

// expires waits until the coordinator has checked its leases, while nobody sends it anything. It calls Up in that
// check, and once more before it waits again.
func (s *stage) expires() {
	for began := s.looked.Load(); s.looked.Load() < began+4; time.Sleep(time.Millisecond) {
	}
}

func (s *stage) Fetch(_ context.Context, name string, _ int64, w io.Writer) error {
	s.mu.Lock()
	text, ok := s.stored[name]
	s.mu.Unlock()
	if !ok {
		return carrier.ErrNoBundle
	}
	_, err := io.WriteString(w, text)
	return err
}

func (s *stage) SendWorkspace(_ context.Context, name string, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err == nil {
		s.store(name, string(data))
	}
	return err
}

func (s *stage) Forget(context.Context, string, int64) error { return nil }

// examineText reads a bundle of these tests: a text with its run id and the agent's exit code.
func (s *stage) examineText(_ context.Context, e Exam) (*Examined, error) {
	bundle := e.Bundle
	text, err := os.ReadFile(bundle)
	if err != nil {
		return nil, err
	}
	words := strings.Fields(string(text))
	if len(words) != 2 {
		return nil, errors.New("it does not verify")
	}
	code := int(words[1][0] - '0')
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Examined{RunID: words[0], Labels: s.labels[words[0]],
		Result: &schema.Result{Outcome: schema.OutcomeExited, ExitCode: &code}}, nil
}

// play runs the suite file text in dir until stop is called. set changes the configuration.
func play(t *testing.T, dir, text string, lease time.Duration, set ...func(*Config)) (s *stage, stop func()) {
	t.Helper()
	file := filepath.Join(dir, "suite.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	s = &stage{T: t, dir: dir, published: make(chan *tryWork, 100), told: make(chan carrier.Message, 100),
		asked: make(chan Question, 100), verdicts: make(chan *schema.SuiteTry, 100), ended: make(chan error, 1),
		stored: map[string]string{}, labels: map[string]map[string]string{}}
	config := Config{File: f, Dir: filepath.Join(dir, "out"), Slots: 1, Lease: lease, Reports: s.told,
		Questions: s.asked, Examine: s.examineText,
		OnVerdict: func(_ Attempt, v *schema.SuiteTry) { s.verdicts <- v },
		OnNote:    func(n string) { s.notes = append(s.notes, n) }}
	for _, change := range set {
		change(&config)
	}
	now := func() time.Time { return time.Now().Add(time.Duration(s.later.Load())) }
	if s.c, err = open(config, now, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { s.ended <- s.c.Run(ctx, ctx, s) }()
	return s, func() {
		cancel()
		<-s.ended
		if err := s.c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// over waits until all attempts have a verdict.
func (s *stage) over() {
	s.Helper()
	if err := <-s.ended; err != nil {
		s.Error(err)
	}
	s.ended <- nil
}

func (s *stage) tell(told report) {
	s.Helper()
	data, err := json.Marshal(told)
	if err != nil {
		s.Fatal(err)
	}
	done := make(chan struct{})
	s.told <- carrier.Message{From: cmp.Or(s.from, "w"), Data: data, Done: func() { close(done) }}
	<-done
}

func (s *stage) begin(w *tryWork) { s.tell(report{Token: w.Token, Began: &schema.SuiteHost{}}) }

func (s *stage) store(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored[name] = text
}

// end stores a bundle of the run and reports it.
func (s *stage) end(w *tryWork, code string) {
	text := runID(w.Token) + " " + code
	s.store(runID(w.Token), text)
	s.tell(report{Token: w.Token, Ended: stored(runID(w.Token), text)})
}

// stored is the report of a bundle in the store.
func stored(name, text string) *tryEnd {
	sum := sha256.Sum256([]byte(text))
	return &tryEnd{Bundle: name, Stored: true, Size: int64(len(text)), Digest: "sha256:" + hex.EncodeToString(sum[:])}
}

// refused lists why messages were refused.
func (s *stage) refused() (why []string) {
	s.Helper()
	lines, err := ledger.Read(filepath.Join(s.dir, "out"))
	if err != nil {
		s.Fatal(err)
	}
	for _, l := range lines {
		if l.Kind == ledger.Refused {
			why = append(why, l.Why)
		}
	}
	return why
}

const oneTask = `name: stage
attempts: 1
tasks: [{name: t, command: "true"}]
agents: [{name: a, command: "true"}]
`

const hang = time.Hour // a lease that does not end during a test

// age advances the clock until there is a verdict, in steps so small that the coordinator does not extend its leases.
func (s *stage) age() *schema.SuiteTry {
	for {
		select {
		case v := <-s.verdicts:
			return v
		case <-time.After(tickTime):
			s.later.Add(int64(maxTickGap / 2)) // a busy machine adds to it
		}
	}
}

// ask sends a heartbeat of the worker w for tries with the tokens.
func (s *stage) ask(instance string, tokens ...string) *Welcome {
	s.Helper()
	return s.asks(hello{Instance: instance, Slots: 1, Running: tokens})
}

func (s *stage) asks(h hello) *Welcome {
	s.Helper()
	data, err := json.Marshal(h)
	if err != nil {
		s.Fatal(err)
	}
	answer := make(chan *Welcome, 1)
	s.asked <- Question{carrier.Question{From: "w", Data: data}, answer}
	return <-answer
}

// A worker that lacks a workspace gets it, or learns why it cannot.
func TestAWorkspaceIsSentToWhomLacksIt(t *testing.T) {
	dir := t.TempDir()
	input := filepath.Join(dir, "ws", "input")
	if err := errors.Join(os.Mkdir(filepath.Dir(input), 0o755), os.WriteFile(input, []byte("one"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s, stop := play(t, dir, strings.Replace(oneTask, `command: "true"`, `command: "true", workspace: ws`, 1), hang)
	defer stop()
	digest := (<-s.published).WorkspaceDigest
	ask := func(digest string) string {
		return s.asks(hello{Instance: "1", Slots: 1, MissingWorkspace: digest}).SendError
	}
	if why := ask("sha256:0"); why != "no task of the suite has a workspace with this digest" {
		t.Errorf("another workspace: %q", why)
	}
	for there := false; !there; time.Sleep(time.Millisecond) {
		if why := ask(digest); why != "" {
			t.Fatal(why)
		}
		s.mu.Lock()
		_, there = s.stored[sentName(digest)]
		s.mu.Unlock()
	}
	if err := os.WriteFile(input, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	why := ""
	for ; why == ""; time.Sleep(time.Millisecond) {
		why = ask(digest)
	}
	if !strings.Contains(why, "has changed since the suite began") {
		t.Errorf("a workspace that changed: %q", why)
	}
}

// A coordinator that was stopped for longer than a lease could not hear workers. It gives no try up for that.
func TestAStoppedCoordinatorLosesNothing(t *testing.T) {
	s, stop := play(t, t.TempDir(), oneTask, hang)
	defer stop()
	w := <-s.published
	s.begin(w)
	s.expires()
	s.later.Add(int64(2 * hang))
	s.expires()
	if over := s.ask("", w.Token).GiveUp; len(over) > 0 {
		t.Errorf("the try is over")
	}
	s.end(w, "0")
	s.over()
}

// While attempts are judged again, workers get answers, and their tries get verdicts.
func TestAttemptsAreJudgedAgainBesideOthers(t *testing.T) {
	dir := t.TempDir()
	text := func(hidden string, attempts int) string {
		return fmt.Sprintf("name: stage\nattempts: %d\ntasks: [{name: t, command: \"true\", hidden: [%s]}]\n"+
			"agents: [{name: a, command: \"true\"}]\n", attempts, hidden)
	}
	s, stop := play(t, dir, text("one", 1), hang)
	w := <-s.published
	s.begin(w)
	s.end(w, "0")
	s.over()
	stop()
	first := runID(w.Token)

	release := make(chan bool)
	s, stop = play(t, dir, text("two", 2), hang, func(c *Config) {
		c.Slots = 2
		exam := c.Examine
		c.Examine = func(ctx context.Context, e Exam) (*Examined, error) {
			if e.Evaluation != nil { // it is judged again
				<-release
			}
			return exam(ctx, e)
		}
	})
	defer stop()
	w = <-s.published
	if w.Attempt.Attempt != 2 {
		t.Errorf("%s runs again", w.Attempt)
	}
	if over := s.ask("", w.Token).GiveUp; len(over) > 0 {
		t.Error("the try is over")
	}
	s.begin(w)
	s.end(w, "0")
	if v := <-s.verdicts; v.Judged != 0 || v.Verdict != schema.SuitePassed {
		t.Errorf("the first verdict is %+v", v)
	}
	close(release)
	if v := <-s.verdicts; v.Judged != 1 || v.RunID != first {
		t.Errorf("what was judged again has the verdict %+v", v)
	}
	s.over()
}

// A try stays open as long as its worker sends heartbeats. Another process with the worker's name must give it up.
func TestATryIsOneWorkersAlone(t *testing.T) {
	s, stop := play(t, t.TempDir(), oneTask, 10*time.Second)
	defer stop()
	w := <-s.published
	s.tell(report{Token: w.Token, Instance: "1", Began: &schema.SuiteHost{}})
	s.tell(report{Token: w.Token, Instance: "2", Began: &schema.SuiteHost{}})
	if why := s.refused(); !slices.Equal(why, []string{"the try is another worker's"}) {
		t.Errorf("it refused %q", why)
	}
	for range 20 {
		s.later.Add(int64(maxTickGap * 3 / 4))
		if over := s.ask("1", w.Token).GiveUp; len(over) > 0 {
			t.Fatal("the try is over")
		}
		time.Sleep(tickTime)
	}
	if over := s.ask("2", w.Token, "no-token").GiveUp; len(over) != 2 {
		t.Errorf("over are %q", over)
	}
	s.end(w, "0")
	if why := s.refused(); len(why) != 2 { // the report has no instance
		t.Errorf("it refused %q", why)
	}
	text := runID(w.Token) + " 0"
	s.tell(report{Token: w.Token, Instance: "1", Ended: stored(runID(w.Token), text)})
	s.over()
}

// A worker's texts are made short and printable, and it cannot give its try a class that does not count.
func TestAWorkersWordsAreCleaned(t *testing.T) {
	s, stop := play(t, t.TempDir(), strings.Replace(oneTask, "attempts: 1", "retries: 0", 1), hang)
	defer stop()
	w := <-s.published
	s.tell(report{Token: w.Token, Began: &schema.SuiteHost{Kernel: "\x1b[2J" + strings.Repeat("k", 1000)}})
	s.tell(report{Token: w.Token, Ended: &tryEnd{Class: schema.SuiteInterrupted,
		Reason: "\x1b[2J" + strings.Repeat("r", 1<<20)}})
	v := <-s.verdicts
	if v.Class != schema.SuiteAssayRun || strings.Contains(v.Reason, "\x1b") || len(v.Reason) > 2*tailBytes ||
		strings.Contains(v.Host.Kernel, "\x1b") || len(v.Host.Kernel) > 300 {
		t.Errorf("the verdict is %.300v of %.300v", v, v.Host)
	}
	s.over()
}

// At most twice as many tries are open as workers of other processes run at once.
func TestWorkIsGivenOutForTheWorkersThatThereAre(t *testing.T) {
	s, stop := play(t, t.TempDir(), strings.Replace(oneTask, "attempts: 1", "attempts: 20", 1), hang)
	defer stop()
	first := <-s.published
	time.Sleep(2 * tickTime)
	if n := len(s.published); n != 0 {
		t.Errorf("%d more are published for one slot of the process", n)
	}
	answer := make(chan *Welcome, 1)
	question := `{"instance":"l","slots":3,"suite":"` + s.c.ID() + `"}`
	s.asked <- Question{carrier.Question{From: "w", Data: []byte(question)}, answer}
	<-answer
	for range 6 {
		<-s.published
	}
	time.Sleep(2 * tickTime)
	if n := len(s.published); n != 0 {
		t.Errorf("%d more are published for three slots besides", n)
	}
	s.end(first, "0")
	<-s.published
}

// A worker that sends nonsense does not fill the ledger.
func TestRefusalsAreRecordedUpToABound(t *testing.T) {
	s, stop := play(t, t.TempDir(), oneTask, hang)
	defer stop()
	w := <-s.published
	for range maxRefused + 50 {
		s.told <- carrier.Message{From: "w", Data: []byte(strings.Repeat("x", 1000)), Done: func() {}}
	}
	s.end(w, "0")
	s.over()
	if why := s.refused(); len(why) != maxRefused || len(why[0]) > 300 {
		t.Errorf("%d are recorded, the first as %q", len(why), why[0])
	}
}

// A worker of another version gets no work, and learns why.
func TestAnotherVersionIsRefused(t *testing.T) {
	s, stop := play(t, t.TempDir(), oneTask, hang)
	defer stop()
	answer := make(chan *Welcome, 1)
	s.asked <- Question{carrier.Question{From: "w", Data: []byte(`{"version":"v9","slots":4}`)}, answer}
	if w := <-answer; !strings.Contains(w.Refused, "v9") {
		t.Errorf("the answer is %+v", w)
	}
	s.asked <- Question{carrier.Question{From: "w", Data: []byte(`{"suite":"another","slots":4}`)}, answer}
	if w := <-answer; w != nil {
		t.Errorf("another suite's worker is answered: %+v", w)
	}
	s.end(<-s.published, "0")
	s.over()
	want := "the worker w gets no work: its assay-suite is version v9, but the coordinator's is "
	if !slices.Contains(s.notes, want) {
		t.Errorf("it says %q", s.notes)
	}
}

// Only the worker that got a try can report its result, and only with the bundle of that run.
func TestForgedResultsAreRefused(t *testing.T) {
	s, stop := play(t, t.TempDir(), strings.Replace(oneTask, "attempts: 1", "retries: 3", 1), hang)
	defer stop()
	w := <-s.published
	s.begin(w)
	passed := runID(w.Token) + " 0"
	s.store("other", passed)
	s.tell(report{Token: "0123456789abcdef0123456789abcdef", Ended: stored("other", passed)})
	s.tell(report{Token: strings.TrimPrefix(w.Spec.RunID, "try_"), Ended: stored("other", passed)})
	s.from = "another"
	s.tell(report{Token: w.Token, Ended: stored(runID(w.Token), passed)})
	s.from = "w"
	want := []string{"no such try is open", "no such try is open", "the try is another worker's"}
	if why := s.refused(); !slices.Equal(why, want) {
		t.Errorf("it refused %q", why)
	}
	for i, forged := range []struct{ name, text, told, want string }{
		{"other", passed, passed, `the worker named a wrong bundle: "other"`},
		{"", passed, passed + " ", "the bundle is not the one that the worker reported"},
		{"", "try_another 0", "try_another 0", "the bundle is of the run try_another, want try_"},
		{"", "x", "x", "it does not verify"},
	} {
		name := cmp.Or(forged.name, runID(w.Token))
		s.store(name, forged.text)
		s.tell(report{Token: w.Token, Ended: stored(name, forged.told)})
		v := <-s.verdicts
		if v.Class != schema.SuiteAssayRun || !strings.Contains(v.Reason, forged.want) {
			t.Errorf("%d: the verdict is %s %s: %s", i, v.Verdict, v.Class, v.Reason)
		}
		if i < 3 {
			w = <-s.published
		}
	}
	s.over()
}

// A result cannot make the coordinator take a file from its own disk.
func TestAResultNamesNoFile(t *testing.T) {
	s, stop := play(t, t.TempDir(), oneTask, hang)
	defer stop()
	secret := filepath.Join(s.dir, "secret")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := <-s.published
	s.tell(report{Token: w.Token, Ended: &tryEnd{Bundle: secret}})
	if v := <-s.verdicts; v.Class != schema.SuiteAssayRun {
		t.Errorf("the verdict is %s %s", v.Verdict, v.Class)
	}
	s.end(<-s.published, "0")
	s.over()
	if _, err := os.Stat(secret); err != nil {
		t.Error(err)
	}
}

// A try without heartbeats is given to another worker. A later result of the first worker is refused, and does not open
// the try again for the next process.
func TestALateResultIsRefused(t *testing.T) {
	s, stop := play(t, t.TempDir(), oneTask, 10*time.Second)
	late := <-s.published
	s.begin(late)
	if v := s.age(); v.Class != schema.SuiteWorkerLost {
		t.Fatalf("the verdict is %s %s: %s", v.Verdict, v.Class, v.Reason)
	}
	s.end(late, "3")
	if why := s.refused(); len(why) != 1 {
		t.Errorf("it refused %q", why)
	}
	w := <-s.published
	s.begin(w)
	s.end(w, "0")
	s.over()
	if r := s.c.Results().Attempts[0]; *r.Verdict != schema.SuitePassed || len(r.Tries) != 2 {
		t.Errorf("the attempt is %+v", r)
	}
	stop()
	s, stop = play(t, s.dir, oneTask, hang)
	defer stop()
	s.over()
	lines, err := ledger.Read(filepath.Join(s.dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	lines = slices.DeleteFunc(lines, func(l ledger.Line) bool { return l.Kind != ledger.Verdict })
	if len(lines) != 2 {
		t.Errorf("the ledger has the verdicts %+v, want one for each try", lines)
	}
}

// A try that a worker took but never began does not count as one.
func TestATryThatNeverBeganCostsNothing(t *testing.T) {
	text := strings.Replace(oneTask, "attempts: 1", "retries: 0", 1)
	s, stop := play(t, t.TempDir(), text, 20*time.Millisecond)
	defer stop()
	for range 3 {
		<-s.published
		if v := <-s.verdicts; v.Class != schema.SuiteNotBegun {
			t.Fatalf("the verdict is %s %s", v.Verdict, v.Class)
		}
	}
}

// Five infrastructure failures of one class in a row stop an agent at a task, but not at others. The next process tries
// again.
func TestFaultsAlikeStopAnAgentAtATask(t *testing.T) {
	dir := t.TempDir()
	text := `name: stage
attempts: 20
retries: 1
tasks: [{name: t, command: "true"}]
agents: [{name: bad, command: "true"}, {name: good, command: "true"}]
`
	s, stop := play(t, dir, text, hang)
	bad, verdicts := 0, 0
	for verdicts < 25 {
		w := <-s.published
		if w.Agent == "bad" {
			bad++
			s.tell(report{Token: w.Token, Ended: &tryEnd{Class: schema.SuiteEngine, Reason: "no engine"}})
		} else {
			s.end(w, "0")
		}
		<-s.verdicts
		verdicts++
	}
	s.over()
	r := s.c.Results()
	stop()
	if bad != maxFailures || r.Agents[0].Infrastructure != 20 || r.Agents[1].Passed != 20 {
		t.Errorf("%d tries were made; the agents are %+v", bad, r.Agents)
	}
	if why := r.Attempts[len(r.Attempts)-2].Reason; !strings.Contains(why, "5 times in a row (engine: no engine)") {
		t.Errorf("an attempt that was not tried says %q", why)
	}
	if ExitCode(r) != ExitUndecided {
		t.Errorf("the exit code is %d", ExitCode(r))
	}
	s, stop = play(t, dir, text, hang)
	defer stop()
	for range 20 {
		w := <-s.published
		s.end(w, "0")
		if v := <-s.verdicts; w.Agent != "bad" || v.Verdict != schema.SuitePassed {
			t.Fatalf("%s has the verdict %s", w.Agent, v.Verdict)
		}
	}
	s.over()
}

// If a try was given up, its bundle is removed from the directory of this process's worker.
func TestALostTryLeavesNoBundle(t *testing.T) {
	own := t.TempDir()
	s, stop := play(t, t.TempDir(), oneTask, 10*time.Second, func(c *Config) { c.LocalWorker, c.LocalDir = "w", own })
	defer stop()
	w := <-s.published
	s.begin(w)
	if v := s.age(); v.Class != schema.SuiteWorkerLost {
		t.Errorf("the verdict is %+v", v)
	}
	bundle := localBundle(own, w.Token)
	if err := os.WriteFile(bundle, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.tell(report{Token: w.Token, Ended: &tryEnd{Bundle: bundle}})
	if _, err := os.Stat(bundle); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the bundle is left: %v", err)
	}
	if why := s.refused(); !slices.Equal(why, []string{"no such try is open"}) {
		t.Errorf("it refused %q", why)
	}
}

// A worker that dies with many attempts of an agent at a task counts as one failure.
func TestWhatIsLostWithOneWorkerCountsOnce(t *testing.T) {
	const attempts = maxFailures + 3
	s, stop := play(t, t.TempDir(), strings.Replace(oneTask, "attempts: 1", fmt.Sprint("attempts: ", attempts), 1),
		10*time.Second, func(c *Config) { c.Slots = attempts })
	defer stop()
	for range attempts {
		w := <-s.published
		s.tell(report{Token: w.Token, Instance: "1", Began: &schema.SuiteHost{}})
	}
	lost := []*schema.SuiteTry{s.age()}
	for range attempts - 1 {
		lost = append(lost, <-s.verdicts)
	}
	for _, v := range lost {
		if v.Class != schema.SuiteWorkerLost {
			t.Errorf("a try of the worker that died is %s (%s)", v.Verdict, v.Class)
		}
	}
	for range attempts {
		w := <-s.published
		text := runID(w.Token) + " 0"
		s.store(runID(w.Token), text)
		s.tell(report{Token: w.Token, Instance: "2", Began: &schema.SuiteHost{}})
		s.tell(report{Token: w.Token, Instance: "2", Ended: stored(runID(w.Token), text)})
	}
	s.over()
	if passed := s.c.Results().Agents[0].Passed; passed != attempts {
		t.Errorf("%d attempts passed, want %d", passed, attempts)
	}
}

// After an edit the suite says what changed and which attempts that affects, and runs only those.
func TestAnEditIsToldOf(t *testing.T) {
	dir := t.TempDir()
	text := `name: stage
tasks: [{name: t, command: "true"}, {name: u, command: "true"}]
agents: [{name: a, command: "true"}]
`
	s, stop := play(t, dir, text, hang)
	for range 2 {
		s.end(<-s.published, "0")
	}
	s.over()
	stop()
	s, stop = play(t, dir, strings.Replace(text, `u, command: "true"`, `u, command: "false", timeout: 1m`, 1), hang)
	defer stop()
	w := <-s.published
	if w.Task != "u" || w.Try != 2 {
		t.Errorf("it tries %s, try %d", w.Attempt, w.Try)
	}
	s.end(w, "0")
	s.over()
	want := "task u: command, timeout changed; will run again: u/a/1"
	if !slices.Contains(s.notes, want) {
		t.Errorf("it says %q, want %q", s.notes, want)
	}
}

func TestADirectoryInAWorkspaceIsRefused(t *testing.T) {
	dir := t.TempDir()
	f := &File{Name: "n", Tasks: []Task{{Name: "t", Workspace: "."}}, dir: dir}
	_, err := Open(Config{File: f, Dir: filepath.Join(dir, "out")})
	if !errors.Is(err, ErrDirectory) {
		t.Errorf("it says %v", err)
	}
}
