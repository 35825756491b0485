//go:build linux

package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/suite/task"
	"github.com/assay-run/assay-run/runner/suite/trial"
	"github.com/assay-run/assay-run/schema"
	"github.com/assay-run/assay-run/schema/config"
)

// Variables of the run of an attempt at a folder: assay-suite itself, and the plan of the attempt.
const (
	envSelf = "ASSAY_SUITE_PROGRAM"
	envPlan = "ASSAY_SUITE_PLAN"
)

// The command of a run, and its check, are assay-suite itself.
const (
	attemptStep = `exec "$` + envSelf + `" attempt "$` + envPlan + `" `
	stepAgent   = "agent"
	stepJudge   = "judge"
)

// judgeTime is how long a judge may take beside the tests, in seconds: to commit, to copy and to start.
const judgeTime = 600

// engineVariables are the variables by which Docker's client finds its daemon.
var engineVariables = []string{"DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT"}

// Solver is the agent that runs each task's solution, and Idler the one that does nothing.
func Solver() Agent { return Agent{Name: Oracle, solves: true} }

// Idler is the agent that does nothing.
func Idler() Agent { return Agent{Name: Nop, Command: ":"} }

// JudgeAgain runs a task's tests on what an agent changed. See [trial.JudgeAgain].
func JudgeAgain(ctx context.Context, out io.Writer, t *task.Task, file string) (code int, err error) {
	digest := ""
	if t.Image == "" {
		if digest, err = digestTree(filepath.Join(t.Dir, task.Environment)); err != nil {
			return 0, err
		}
	}
	return trial.JudgeAgain(ctx, out, t, digest, file)
}

// notName matches what may not be in the name of a suite.
var notName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// Refused is the error that lists the tasks that were refused, and why.
type Refused struct{ Causes []error }

func (r *Refused) Error() string { return errors.Join(r.Causes...).Error() }

func (r *Refused) Unwrap() []error { return append([]error{errFile}, r.Causes...) }

// Folders says which tasks in folders a suite has, and how it tries them. Its fields are as those of [File].
type Folders struct {
	// Dir is one task, or a directory of tasks.
	Dir      string
	Agents   []Agent
	Attempts int
	Timeouts Multipliers
	Judge    string
	// Lenient ignores unknown keys in a task.toml.
	Lenient bool
}

// FromFolders makes a suite of tasks in folders. If tasks are refused, it returns a suite of the others and a
// *[Refused].
func FromFolders(of Folders) (*File, error) {
	dir, err := RealPath(of.Dir)
	if err != nil {
		return nil, err
	}
	name := notName.ReplaceAllString(filepath.Base(dir), "-")
	f := &File{Name: name[:min(len(name), 80)], Attempts: of.Attempts, Agents: of.Agents, Timeouts: of.Timeouts,
		Judge: of.Judge, dir: dir}
	if !goodName.MatchString(f.Name) {
		f.Name = "tasks"
	}
	if err := readFolders(f, dir, of.Lenient); errors.As(err, new(*Refused)) {
		return f, err
	} else if err != nil {
		return nil, err
	}
	f.setExcluded()
	for i := range f.Agents {
		f.Agents[i].useRecipe()
	}
	c := &checker{file: f}
	c.all()
	if err := errors.Join(c.problems...); err != nil {
		return nil, fmt.Errorf("%w: %s:\n%w", errFile, dir, err)
	}
	return f, nil
}

// readFolders replaces the tasks of a suite by those in a directory. If tasks are refused, it keeps the others and
// returns a *[Refused].
func readFolders(f *File, dir string, lenient bool) error {
	f.Tasks = nil
	folders, err := task.Find(f.path(dir))
	if err != nil {
		return fmt.Errorf("%w: %w", errFile, err)
	}
	solves := slices.ContainsFunc(f.Agents, func(a Agent) bool { return a.solves })
	refused := &Refused{}
	for _, folder := range folders {
		t, err := task.Read(folder, lenient, os.LookupEnv)
		if err == nil && !goodName.MatchString(t.Name) {
			err = fmt.Errorf("%.90q: %w: a name has only letters, digits, _, - and ., at most 80", t.Name,
				task.ErrRefused)
		}
		var made Task
		if err == nil {
			f.Timeouts.multiply(t)
			made, err = ofFolder(t)
		}
		if err != nil {
			refused.Causes = append(refused.Causes, err)
			continue
		}
		f.Tasks = append(f.Tasks, made)
		if solves && !t.Solvable() {
			f.Exclude = append(f.Exclude, Exclude{t.Name, Oracle})
		}
	}
	if len(refused.Causes) > 0 {
		return refused
	}
	return nil
}

// multiply multiplies the times of a task.
func (m Multipliers) multiply(t *task.Task) {
	for time, by := range map[*task.Duration]float64{&t.AgentTimeout: m.Agent, &t.VerifierTimeout: m.Verifier,
		&t.BuildTimeout: m.Build} {
		*time = task.Duration(float64(*time) * cmp.Or(by, 1))
	}
}

// maxMultiplier limits what a time is multiplied by.
const maxMultiplier = 1000

// check returns what is wrong with the multipliers, or nil.
func (m Multipliers) check() error {
	for _, by := range []float64{m.Agent, m.Verifier, m.Build} {
		if !(by >= 0 && by <= maxMultiplier) {
			return fmt.Errorf("%v is not a multiplier: give more than 0, and at most %d", by, maxMultiplier)
		}
	}
	return nil
}

// ofFolder makes a task of a suite from a folder. The table metadata.assay has keys of a suite's task.
func ofFolder(t *task.Task) (made Task, err error) {
	refuse := func(err error) error {
		return fmt.Errorf("%s: %w:\ntask.toml: metadata.assay: %w", t.Name, task.ErrRefused, err)
	}
	text, err := json.Marshal(t.Own)
	if err == nil && t.Own != nil {
		err = config.Decode(text, config.JSON, &made)
	}
	if err != nil {
		return made, refuse(err)
	}
	for _, key := range ofFolders {
		if _, given := t.Own[key]; given {
			return made, refuse(fmt.Errorf("%s: omit this key: the folder itself says that", key))
		}
	}
	for _, file := range []*string{&made.Policy, &made.Rules} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(t.Dir, *file)
		}
	}
	check := fmt.Sprintf(`{"description": "the tests of the task pass", "checks": [{"name": %q, "command": %q, `+
		`"timeout_secs": %d}]}`, trial.CheckName, attemptStep+stepJudge,
		2*int64(t.VerifierTimeout.Of().Seconds())+judgeTime)
	made.Name, made.Prompt, made.Containers, made.Contract, made.folder = t.Name, t.Instruction, true,
		jsontext.Value(check), t
	if t.Solvable() {
		made.Solution = task.Solve
	}
	return made, nil
}

// ofFolders are the keys of a task that a folder has in its own way.
var ofFolders = []string{"name", "prompt", "command", "workspace", "contract", "containers", "timeout", "solution",
	"tests"}

// undecided says why the check of a folder did not decide, or is empty.
func undecided(res *schema.Result) string {
	for _, c := range res.Checks {
		if c.Name != trial.CheckName || c.ExitCode == nil || res.Labels[labelFolder] == "" {
			continue
		}
		switch *c.ExitCode {
		case trial.ExitUndecided:
			return "the task's tests gave no reward: see the check's output"
		case trial.ExitInPlace:
			return "the task's tests pass in the agent's own container, but not in a fresh one from a commit of it: " +
				"see the check's output"
		}
	}
	return ""
}
