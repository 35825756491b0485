//go:build linux

package suite

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/assay-run/assay-run/runner/suite/ledger"
	"github.com/assay-run/assay-run/runner/workspace"
	"github.com/assay-run/assay-run/schema"
)

// judging are the keys of a task that say how its evidence is judged, and not what an agent gets. If nothing but these
// were edited, what agents did is judged again, and no agent runs.
var judging = []string{"contract", "hidden", "protected", "reward", "forbidden", "start_commit", "rules", "solution"}

// Judging is a contract that judges what a run left in its workspace.
type Judging struct {
	Bundle, Workspace, Contract string
	// Output is the new bundle, with the verdict.
	Output string
}

// earlier is the verdict on an attempt before the suite was edited.
type earlier struct {
	try  schema.SuiteTry
	keys []string // of the task, that were edited since
	// suspicions are those of tries before it that count as long as the attempt does.
	suspicions []schema.Finding
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

// judged is what came of judging an attempt again.
type judged struct {
	of      *attempt
	verdict *schema.SuiteTry
	err     error
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

// asNow is what a task says now of what an agent must not do, with what a worker added for its directories.
func asNow(was, now schema.EvaluationDefinition) schema.EvaluationDefinition {
	now.Workspace, now.Others, now.Agent = was.Workspace, was.Others, was.Agent
	for _, w := range was.Workspace {
		for _, lists := range []struct {
			was []string
			now *[]string
		}{{was.Hidden, &now.Hidden}, {was.Protected, &now.Protected}} {
			for _, pattern := range lists.was {
				if ofWorker(pattern, w) && !slices.Contains(*lists.now, pattern) {
					*lists.now = append(*lists.now, pattern)
				}
			}
		}
	}
	return now
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
