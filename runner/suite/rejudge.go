//go:build linux

package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
)

// judgingKeys are the keys of a task that say how its evidence is judged, and change nothing for an agent. If only
// these were edited, the existing bundles are judged again, and no agent runs.
var judgingKeys = []string{"contract", "hidden", "protected", "reward", "forbidden", "start_commit", "rules",
	"solution"}

// ContractCheck asks to judge what a run left in its workspace by a contract. The fields are paths.
type ContractCheck struct {
	Bundle string
	// Workspace is the workspace as it was before the run.
	Workspace string
	Contract  string
	// Output is the new bundle to write, with the verdict.
	Output string
}

// earlier is the verdict on an attempt before the suite was edited.
type earlier struct {
	try  schema.SuiteTry
	keys []string // keys of the task that were edited since
	// suspicions are those of earlier tries that the new verdict keeps.
	suspicions []schema.Finding
}

// judged is the result of judging an attempt again.
type judged struct {
	of      *attempt
	verdict *schema.SuiteTry
	err     error
}

// updated is the evaluation now, as the task defines it today, with the workspace and the patterns that the worker
// added for its directories to the evaluation was.
func updated(was, now schema.EvaluationDefinition) schema.EvaluationDefinition {
	now.Workspace, now.Others, now.Agent = was.Workspace, was.Others, was.Agent
	for _, w := range was.Workspace {
		for _, lists := range []struct {
			was []string
			now *[]string
		}{{was.Hidden, &now.Hidden}, {was.Protected, &now.Protected}, {was.Watched, &now.Watched}} {
			for _, pattern := range lists.was {
				if ofWorker(pattern, w) && !slices.Contains(*lists.now, pattern) {
					*lists.now = append(*lists.now, pattern)
				}
			}
		}
	}
	return now
}

// rejudger judges the bundles of earlier tries again, after an edit that changed nothing for the agents.
type rejudger struct {
	file    *File
	dir     string // the suite's
	sources map[string]source
	slots   int // how many it judges at once
	judge   func(context.Context, Exam) (*Examined, error)
	check   func(context.Context, ContractCheck) error // nil: there is no assay-run to check a contract
	results chan judged
	running int
}

func newRejudger(c *Config, sources map[string]source) *rejudger {
	return &rejudger{file: c.File, dir: c.Dir, sources: sources, slots: max(1, c.Slots), judge: c.Examine,
		check: c.CheckContract, results: make(chan judged)}
}

// start judges the attempts with an earlier verdict again, in the background. Each result comes to results, and then to
// done.
func (r *rejudger) start(ctx context.Context, attempts []*attempt) {
	var all []*attempt
	for _, a := range attempts {
		if a.earlier != nil && a.open == nil && a.verdict == nil {
			all = append(all, a)
		} else {
			a.earlier = nil
		}
	}
	r.running = len(all)
	todo := make(chan *attempt, len(all))
	for _, a := range all {
		todo <- a
	}
	close(todo)
	for range r.slots {
		go func() {
			for a := range todo {
				j := judged{of: a, err: context.Cause(ctx)}
				if j.err == nil {
					j.verdict, j.err = r.again(ctx, a)
				}
				r.results <- j
			}
		}()
	}
}

func (r *rejudger) done() { r.running-- }

// wait returns when nothing is being judged.
func (r *rejudger) wait() {
	for r.running > 0 {
		<-r.results
		r.running--
	}
}

// again judges the existing bundle of an attempt by the present contract, rules and evaluation definition.
func (r *rejudger) again(ctx context.Context, a *attempt) (*schema.SuiteTry, error) {
	t, old := r.file.task(a.Task), a.earlier.try
	if !filepath.IsLocal(old.Bundle) {
		return nil, fmt.Errorf("the ledger has an unsafe path of its bundle: %q", old.Bundle)
	}
	v := &schema.SuiteTry{Try: a.lastNumber + 1, RunID: old.RunID, Bundle: old.Bundle, ExitCode: old.ExitCode,
		Host: old.Host, Judged: cmp.Or(old.Judged, old.Try)}
	bundle := filepath.Join(r.dir, old.Bundle)
	path, text := r.file.contractFile(t)
	contract := path != "" || text != nil
	if contract && slices.Contains(a.earlier.keys, "contract") {
		dir := filepath.Join("attempts", a.Task, a.Agent, fmt.Sprint(a.Attempt.Attempt), fmt.Sprintf("try-%d", v.Try))
		v.Bundle = filepath.Join(dir, "run.tar.gz")
		if err := r.byContract(ctx, t, bundle, dir); err != nil {
			return nil, err
		}
		bundle = filepath.Join(r.dir, v.Bundle)
	}
	exam := r.file.exam(t, bundle)
	exam.AgentKeys = r.file.agentKeys(a.Attempt)
	exam.Evaluation = func(was schema.EvaluationDefinition) schema.EvaluationDefinition {
		return updated(was, r.file.evaluation(t, r.file.agent(a.Agent)))
	}
	found, err := r.judge(ctx, exam)
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

// byContract judges a bundle by the task's contract. It writes the new bundle as run.tar.gz to dir, the directory
// of the new try.
func (r *rejudger) byContract(ctx context.Context, t *Task, bundle, dir string) (err error) {
	if r.check == nil {
		return errors.New("there is no assay-run to check the contract")
	}
	check := ContractCheck{Bundle: bundle, Output: filepath.Join(r.dir, dir, "judged.tar.gz")}
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
	path, text := r.file.contractFile(t)
	if check.Contract = path; path == "" {
		check.Contract = filepath.Join(scratch, "contract.json")
		if err := os.WriteFile(check.Contract, text, 0o600); err != nil {
			return err
		}
	}
	check.Workspace = r.sources[t.Name].path
	if t.Workspace == "" {
		check.Workspace = filepath.Join(scratch, "workspace")
		if err := os.Mkdir(check.Workspace, 0o755); err != nil {
			return err
		}
	}
	if err := r.check(ctx, check); err != nil {
		return err
	}
	if err := os.Rename(check.Output, filepath.Join(r.dir, dir, "run.tar.gz")); err != nil {
		return err
	}
	return syncTree(r.dir, dir)
}
