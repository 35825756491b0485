//go:build linux

package suite

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/assay-run/assay-run/runner/suite/carrier"
	"github.com/assay-run/assay-run/runner/suite/trial"
	"github.com/assay-run/assay-run/schema"
)

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

// examiner fetches the bundles of tries, has them verified and judged, and keeps them.
type examiner struct {
	file     *File
	dir      string // the suite's
	localDir string // of the worker of this process; empty if there is none
	hub      hub
	judge    func(context.Context, Exam) (*Examined, error)
	results  chan examination
	running  int
	fetching sync.Mutex // held while a bundle is fetched
}

func newExaminer(f *File, dir, localDir string, h hub, judge func(context.Context, Exam) (*Examined, error),
) *examiner {
	return &examiner{file: f, dir: dir, localDir: localDir, hub: h, judge: judge, results: make(chan examination)}
}

// start examines the bundle of a try in the background. The result comes to results, and then to done.
func (x *examiner) start(ctx context.Context, t *try, end *tryEnd, m carrier.Message) {
	x.running++
	go func() { x.results <- x.examine(ctx, t, end, m) }()
}

func (x *examiner) done() { x.running-- }

// wait returns when nothing is being examined.
func (x *examiner) wait() {
	for x.running > 0 {
		<-x.results
		x.running--
	}
}

// examine fetches the bundle of a try, verifies it, and moves it to its final place.
func (x *examiner) examine(ctx context.Context, t *try, end *tryEnd, m carrier.Message) examination {
	e := examination{try: t, end: end, message: m}
	if end.Bundle == "" {
		return e
	}
	dir := filepath.Join("attempts", t.of.Task, t.of.Agent, fmt.Sprint(t.of.Attempt.Attempt),
		fmt.Sprintf("try-%d", t.number))
	e.bundle = filepath.Join(dir, "run.tar.gz")
	part := filepath.Join(x.dir, e.bundle+".part")
	err := os.MkdirAll(filepath.Dir(part), 0o755)
	if err == nil {
		err = x.fetch(ctx, t, end, part)
	}
	if err == nil {
		exam := x.file.exam(x.file.task(t.of.Task), part)
		exam.AgentKeys = x.file.agentKeys(t.of.Attempt)
		e.found, err = x.judge(ctx, exam)
	}
	if err == nil {
		err = x.checkRun(t, e.found)
	}
	if err == nil {
		err = errors.Join(os.Rename(part, filepath.Join(x.dir, e.bundle)), syncTree(x.dir, dir))
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

// fetch moves or downloads the bundle of a try to a path. The worker can only name the bundle of its own try.
func (x *examiner) fetch(ctx context.Context, t *try, end *tryEnd, to string) error {
	if !end.Stored {
		if want := localBundle(x.localDir, t.token); x.localDir == "" || end.Bundle != want {
			return fmt.Errorf("the worker named a wrong file as its bundle: %q", end.Bundle)
		}
		return errors.Join(os.Rename(end.Bundle, to),
			renameIfThere(end.Bundle+artifacts, filepath.Join(filepath.Dir(to), trial.ArtifactsFile)))
	}
	if end.Bundle != runID(t.token) {
		return fmt.Errorf("the worker named a wrong bundle: %q", end.Bundle)
	}
	x.fetching.Lock()
	defer x.fetching.Unlock()
	for {
		err := x.fetchOnce(ctx, end, to)
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

func (x *examiner) fetchOnce(ctx context.Context, end *tryEnd, to string) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	sum := sha256.New()
	if err := errors.Join(x.hub.Fetch(ctx, end.Bundle, end.Size, io.MultiWriter(f, sum)), f.Sync(),
		f.Close()); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != end.Digest {
		return fmt.Errorf("%w: it has the digest %s, want %s", errOtherBundle, got, end.Digest)
	}
	return nil
}

// checkRun checks that the bundle has the run id and the labels of the try.
func (x *examiner) checkRun(t *try, found *Examined) error {
	if want := runID(t.token); found.RunID != want {
		return fmt.Errorf("the bundle is of the run %s, want %s", found.RunID, want)
	}
	for k, v := range x.file.labels(x.file.task(t.of.Task), t.of.Attempt, t.number) {
		if found.Labels[k] != v {
			return fmt.Errorf("the bundle has the label %s=%q, want %q", k, found.Labels[k], v)
		}
	}
	return nil
}

// forget removes a bundle that is kept here from the carrier, in the background.
func (x *examiner) forget(e *examination) {
	go func() {
		ctx, stop := context.WithTimeout(context.Background(), forgetTime)
		defer stop()
		_ = x.hub.Forget(ctx, runID(e.try.token), e.end.Size) // the end of the suite removes it, too
	}()
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
