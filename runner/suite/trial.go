//go:build linux

package suite

import (
	"slices"

	"github.com/assay-run/assay-run/runner"
)

// Names of the agents of a trial.
const (
	Oracle = "oracle" // runs each task's solution
	Nop    = "nop"    // does nothing
)

// Trial is a suite that tries the tasks themselves: once with the solution of each that has one, once with nothing
// done, or both. Models are not reached.
func (f *File) Trial(oracle, nop bool) *File {
	t := &File{Name: f.Name, Attempts: 1, Retries: f.Retries, Tasks: slices.Clone(f.Tasks), dir: f.dir,
		file: f.file}
	for i := range t.Tasks {
		task := &t.Tasks[i]
		task.Model = runner.Model{}
		task.Require = slices.DeleteFunc(slices.Clone(task.Require), isModelPath)
		if task.Solution == "" {
			t.Exclude = append(t.Exclude, Exclude{task.Name, Oracle})
		}
	}
	t.leaveOut()
	if oracle {
		t.Agents = append(t.Agents, Agent{Name: Oracle, solves: true})
	}
	if nop {
		t.Agents = append(t.Agents, Agent{Name: Nop, Command: ":"})
	}
	return t
}
