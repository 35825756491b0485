//go:build linux

package suite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/assay-run/assay-run/runner/suite/task"
	"github.com/assay-run/assay-run/runner/suite/trial"
	"github.com/assay-run/assay-run/schema"
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

// Contained returns an agent that works in the containers of tasks. See trial.Plan for setup and files.
func Contained(name, command, setup, files string, env []string) Agent {
	return Agent{Name: name, Command: command, Env: env, setup: setup, files: files}
}

// notName matches what may not be in the name of a suite.
var notName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// Refused is the error that lists the tasks that were refused, and why.
type Refused struct{ Causes []error }

func (r *Refused) Error() string { return errors.Join(r.Causes...).Error() }

func (r *Refused) Unwrap() []error { return append([]error{errFile}, r.Causes...) }

// FromFolders makes a suite of the tasks in dir, which is one task or a directory of tasks. If tasks are refused, it
// returns a suite of the others and a *[Refused].
func FromFolders(dir string, agents []Agent, attempts int, lenient bool) (*File, error) {
	dir, err := RealPath(dir)
	if err != nil {
		return nil, err
	}
	folders, err := task.Find(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errFile, err)
	}
	name := notName.ReplaceAllString(filepath.Base(dir), "-")
	f := &File{Name: name[:min(len(name), 80)], Attempts: attempts, Agents: agents, dir: dir}
	if !goodName.MatchString(f.Name) {
		f.Name = "tasks"
	}
	solves := slices.ContainsFunc(agents, func(a Agent) bool { return a.solves })
	refused := &Refused{}
	for _, folder := range folders {
		t, err := task.Read(folder, lenient, os.LookupEnv)
		if err == nil && !goodName.MatchString(t.Name) {
			err = fmt.Errorf("%.90q: %w: a name has only letters, digits, _, - and ., at most 80", t.Name,
				task.ErrRefused)
		}
		if err != nil {
			refused.Causes = append(refused.Causes, err)
			continue
		}
		f.Tasks = append(f.Tasks, ofFolder(t))
		if solves && !t.Solvable() {
			f.Exclude = append(f.Exclude, Exclude{t.Name, Oracle})
		}
	}
	f.setExcluded()
	if len(refused.Causes) > 0 {
		return f, refused
	}
	c := &checker{file: f}
	c.all()
	if err := errors.Join(c.problems...); err != nil {
		return nil, fmt.Errorf("%w: %s:\n%w", errFile, dir, err)
	}
	return f, nil
}

func ofFolder(t *task.Task) Task {
	check := fmt.Sprintf(`{"description": "the tests of the task pass", "checks": [{"name": %q, "command": %q, `+
		`"timeout_secs": %d}]}`, trial.CheckName, attemptStep+stepJudge, int64(t.VerifierTimeout.Of().Seconds())+judgeTime)
	made := Task{Name: t.Name, Prompt: t.Instruction, Containers: true, Contract: jsontext.Value(check), folder: t}
	if t.Solvable() {
		made.Solution = task.Solve
	}
	return made
}

// undecided reports whether a run's check is that of a folder, and the tests gave no reward.
func undecided(res *schema.Result) bool {
	for _, c := range res.Checks {
		if c.Name == trial.CheckName && c.ExitCode != nil && *c.ExitCode == trial.ExitUndecided {
			return res.Labels[labelFolder] != ""
		}
	}
	return false
}
